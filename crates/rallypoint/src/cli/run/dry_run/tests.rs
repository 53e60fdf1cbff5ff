use super::*;
use crate::cli::run::tests::{host, plan_on};

const LINE: [&str; 12] = [
    "--nproc-per-node=2",
    "--nnodes=1:2",
    "--rdzv-endpoint=alias",
    "--rdzv-id=job7",
    "--rdzv-conf=user=me,password=hidden",
    "--tee=1:3",
    "--local-ranks-filter=1",
    "--virtual-local-rank",
    "--log-dir=/logs",
    "sh",
    "-c",
    "echo 'hi' $RANK",
];

#[test]
fn a_plan_among_others() {
    let host = host(&[("PET_MAX_RESTARTS", "3"), ("CUDA_VISIBLE_DEVICES", "4,6")]);
    let expected = r#"command               sh -c 'echo '\''hi'\'' $RANK'
min nodes             1
max nodes             2
workers               2
role                  default
run id                job7
backend               rallypoint
endpoint              alias:29400
server                in this process, at 10.0.0.1:29400, unless one is there already
authentication        true
tls                   false
rendezvous options    {"local_world_size":"2","password":"…","user":"me"}
local address         none
max restarts          3
restart delay         [1.0,30.0]
no restart exit code  78
shutdown seconds      30.0
notice seconds        none
notice signal         none
hang after seconds    none
on hang               none
progress              none
exit barrier seconds  none
signals               SIGTERM,SIGINT,SIGHUP,SIGQUIT
preflight             none
preflight seconds     none
stdin of              none
numa binding          none
virtual local rank    true
ports                 0
placeholders          false
log directory         /logs
redirected            []
copied                ["1/stdout.log","1/stderr.log"]
line prefix           [${role_name}${local_rank}]:
on console            [1]
http                  none
events                none
records               false
provenance            --max-restarts 3 from PET_MAX_RESTARTS
provenance            OMP_NUM_THREADS 1 from the launcher, as there are several workers; set it to what suits them best

every worker's environment, beside what it inherits
  GROUP_RANK=<from the group>
  GROUP_WORLD_SIZE=<from the group>
  LOCAL_RANK=0
  LOCAL_WORLD_SIZE=2
  MASTER_ADDR=<from the group>
  MASTER_PORT=<from the group>
  OMP_NUM_THREADS=1
  RALLYPOINT_ATTEMPT=0
  RALLYPOINT_NODE_ID=<from the group>
  RALLYPOINT_NOTICE_FILE=<in the log directory>
  RALLYPOINT_ROUND=<from the group>
  RANK=<from the group>
  ROLE_NAME=default
  ROLE_RANK=<from the group>
  ROLE_WORLD_SIZE=<from the group>
  TORCHELASTIC_ERROR_FILE=<in the log directory>
  TORCHELASTIC_MAX_RESTARTS=3
  TORCHELASTIC_RESTART_COUNT=<from the group>
  TORCHELASTIC_RUN_ID=job7
  TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT
  TORCHELASTIC_USE_AGENT_STORE=True
  TORCH_NCCL_ASYNC_ERROR_HANDLING=1
  WORLD_SIZE=<from the group>
worker 0: CUDA_VISIBLE_DEVICES=4
worker 1: CUDA_VISIBLE_DEVICES=6
"#;
    assert_eq!(text(&plan_on(&host, &LINE).unwrap()), expected);
}

#[test]
fn a_plan_for_one_alone() {
    let plan = plan_on(&host(&[]), &["--nproc=2", "--log-dir=/dev/null", "train.py"]).unwrap();
    let text = text(&plan);
    let known = [
        "command               python3 -u train.py",
        "server                in this process, on loopback at a free port",
        "provenance            run id 5eed from a random number",
        "  GROUP_RANK=0",
        "  WORLD_SIZE=2",
        "  MASTER_PORT=<from the group>",
        "  TORCHELASTIC_ERROR_FILE=",
        "worker 1: LOCAL_RANK=1 RANK=1 ROLE_RANK=1",
    ];
    for line in known {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn a_plan_as_json() {
    let plan = plan_on(&host(&[("PET_MAX_RESTARTS", "3")]), &LINE).unwrap();
    let report: Value = serde_json::from_str(&as_json(&plan)).unwrap();
    assert_eq!(report["command"], json!(["sh", "-c", "echo 'hi' $RANK"]));
    assert_eq!(report["settings"]["max_nodes"], json!(2));
    assert_eq!(report["settings"]["rendezvous_options"]["password"], json!("…"));
    assert_eq!(report["settings"]["copied"], json!(["1/stdout.log", "1/stderr.log"]));
    let expected = json!([{"what": "--max-restarts", "value": "3", "from": "PET_MAX_RESTARTS"}]);
    assert_eq!(report["provenance"][0], expected[0]);
    assert_eq!(report["workers"][1]["CUDA_VISIBLE_DEVICES"], json!("1"));
    assert_eq!(report["workers"][1]["RANK"], json!("<from the group>"));
}

#[test]
fn placeholders_are_replaced_as_far_as_the_values_are_known() {
    let line = [
        "--nproc=2",
        "--ports=1",
        "--placeholders",
        "serve",
        "--rank={rank}",
        "{{rank}}",
        "{port0}",
    ];
    let plan = plan_on(&host(&[]), &line).unwrap();
    let text = text(&plan);
    for line in [
        "command               serve '--rank={rank}' '{{rank}}' '{port0}'",
        "  RALLYPOINT_PORT_0=<from the group>",
        "  runs serve --rank=1 '{rank}' '<from the group>'",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let report: Value = serde_json::from_str(&as_json(&plan)).unwrap();
    assert_eq!(report["commands"][1], json!(["serve", "--rank=1", "{rank}", "<from the group>"]));
    for (line, words) in [
        (
            ["--ports=1", "--placeholders", "serve", "{port1}"],
            "{port1} is no port of this job, which has 1",
        ),
        (["--ports=1", "--placeholders", "serve", "{rnak}"], "{rnak} stands for nothing"),
    ] {
        let error = plan_on(&host(&[]), &line).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn words_are_quoted_as_a_shell_takes_them() {
    for (word, expected) in [
        ("a/b-c=1", "a/b-c=1"),
        ("", "''"),
        ("a b", "'a b'"),
        ("it's", r"'it'\''s'"),
        ("$x", "'$x'"),
    ] {
        assert_eq!(quoted(word), expected);
    }
}
