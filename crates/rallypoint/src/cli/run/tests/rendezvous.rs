//! Where nodes meet, under which name, and who runs the server.

use super::*;
use crate::embedded::ServerPlacement;

fn at(address: &str, required: bool) -> ServerPlacement {
    ServerPlacement::Here { address: address.parse().unwrap(), required }
}

const ID: &str = "--rdzv-id=job";

#[test]
fn one_host_in_the_endpoint_runs_the_server() {
    for (line, endpoint, server) in [
        (
            &["--rdzv-endpoint=other", "--nnodes=2", ID][..],
            "other:29400",
            ServerPlacement::Undecided { resolves: true },
        ),
        (
            &["--rdzv-endpoint=unknown", "--nnodes=2", ID],
            "unknown:29400",
            ServerPlacement::Undecided { resolves: false },
        ),
        (&["--rdzv-endpoint=alias", "--nnodes=2", ID], "alias:29400", at("10.0.0.1:29400", false)),
        (&["--rdzv-endpoint=localhost:7", "--nnodes=2", ID], "localhost:7", at("0.0.0.0:7", false)),
        (
            &["--rdzv-endpoint=[fd00::1]:7", "--nnodes=2", ID],
            "[fd00::1]:7",
            at("[fd00::1]:7", false),
        ),
        (&["--rdzv-endpoint=debian", "--nnodes=2", ID], "debian:29400", at("0.0.0.0:29400", false)),
        (
            &["--rdzv-endpoint=debian", "--nnodes=2", ID, "--local-addr=10.0.0.1"],
            "debian:29400",
            at("10.0.0.1:29400", false),
        ),
        (&["--rdzv-endpoint=node1:5", "--nnodes=2", ID], "node1:5", at("0.0.0.0:5", false)),
        (
            &["--rdzv-endpoint=other", "--nnodes=2", ID, "--rdzv-conf=is_host=true"],
            "other:29400",
            at("0.0.0.0:29400", true),
        ),
        (
            &["--rdzv-endpoint=alias", "--nnodes=2", ID, "--rdzv-conf=is_host=0"],
            "alias:29400",
            ServerPlacement::Elsewhere,
        ),
        // Hosts that succeed each other.
        (
            &["--rdzv-endpoint=other,alias,b:7", "--nnodes=3", ID],
            "other:29400,alias:29400,b:7",
            ServerPlacement::Order { is_here: true },
        ),
        (
            &["--rdzv-endpoint=other,b:7,c", "--nnodes=3", ID],
            "other:29400,b:7,c:29400",
            ServerPlacement::Order { is_here: false },
        ),
        (
            &["--rdzv-endpoint=alias,b", "--nnodes=3", ID, "--rdzv-conf=succession=off"],
            "alias:29400",
            at("10.0.0.1:29400", false),
        ),
        // An etcd that is there already.
        (
            &["--rdzv-endpoint=alias,b:7", "--rdzv-backend=etcd", "--nnodes=2", ID],
            "alias:2379,b:7",
            ServerPlacement::Elsewhere,
        ),
        (
            &["--rdzv-endpoint=alias", "--rdzv-backend=etcd", "--nnodes=2", ID],
            "alias:2379",
            ServerPlacement::Elsewhere,
        ),
        (&["--rdzv-backend=etcd"], "", ServerPlacement::Elsewhere),
        // torchrun's words for it.
        (
            &["--rdzv-endpoint=alias", "--rdzv-backend=c10d", "--nnodes=2", ID],
            "alias:29400",
            at("10.0.0.1:29400", false),
        ),
        // Alone.
        (&[], "", ServerPlacement::Loopback),
        (&["--nnodes=1:1", "--rdzv-endpoint="], "", ServerPlacement::Loopback),
        (&["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"], "", ServerPlacement::Loopback),
        (&["--rdzv-backend=static"], "", ServerPlacement::Loopback),
        (
            &["--standalone", "--rdzv-endpoint=other", "--rdzv-backend=etcd"],
            "",
            ServerPlacement::Loopback,
        ),
        (&["--rdzv-endpoint=localhost"], "localhost:29400", at("127.0.0.1:29400", false)),
    ] {
        let line: Vec<&str> = line.iter().copied().chain(["true"]).collect();
        let config = plan(&line).rendezvous;
        assert_eq!(config.parameters.endpoint, endpoint, "{line:?}");
        assert_eq!(config.server, server, "{line:?}");
    }
}

#[test]
fn in_the_static_form_rank_0_runs_the_server() {
    let host_of = |rank: &'static str, more: &[&str]| {
        let line = ["--nnodes=2", "--node-rank", rank, "--master-port=7"];
        let line: Vec<&str> = line.iter().chain(more).copied().chain(["true"]).collect();
        let plan = plan(&line);
        let parameters = plan.rendezvous.parameters;
        assert_eq!(parameters.get("node_rank"), Some(rank));
        (parameters.endpoint, parameters.run_id, plan.rendezvous.server)
    };
    let named = |host: &str, server| (format!("{host}:7"), format!("static-{host}:7"), server);
    let alias = ["--master-addr=alias"];
    assert_eq!(host_of("0", &alias), named("alias", at("10.0.0.1:7", true)));
    assert_eq!(host_of("1", &alias), named("alias", ServerPlacement::Elsewhere));
    // A service in front of this host.
    assert_eq!(host_of("0", &["--master-addr=service"]), named("service", at("0.0.0.0:7", true)));
    assert_eq!(host_of("0", &[]), named("127.0.0.1", at("127.0.0.1:7", true)));
    assert_eq!(host_of("1", &[]), named("127.0.0.1", ServerPlacement::Elsewhere));
    assert_eq!(
        host_of("0", &["--master-addr=fd00::1"]),
        named("[fd00::1]", at("[fd00::1]:7", true))
    );
    // Kubeflow's variables.
    let variables = [
        ("PET_NNODES", "2"),
        ("PET_NODE_RANK", "0"),
        ("PET_MASTER_ADDR", "job-node-0-0.job"),
        ("PET_MASTER_PORT", "29500"),
        ("PET_RDZV_BACKEND", "c10d"),
    ];
    let plan = plan_on(&host(&variables), &["train.py"]).unwrap();
    assert_eq!(plan.rendezvous.parameters.endpoint, "job-node-0-0.job:29500");
    assert_eq!(plan.rendezvous.server, at("0.0.0.0:29500", true));
}

#[test]
fn tasks_of_slurm_that_share_a_node_and_each_take_all_of_it_are_warned() {
    let tasks = |count: &'static str, workers: &str| {
        let host = host(&[
            ("SLURM_JOB_ID", "5123"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_STEP_NUM_TASKS", count),
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NODELIST", "node[1-2]"),
            ("CUDA_VISIBLE_DEVICES", "0,1,2,3"),
        ]);
        let plan = plan_on(&host, &["--nproc-per-node", workers, "train.py"]).unwrap();
        plan.warnings.iter().any(|warning| warning.contains("--ntasks-per-node 1"))
    };
    assert!(tasks("16", "gpu"));
    assert!(!tasks("2", "gpu"));
    assert!(!tasks("16", "1"));
}

#[test]
fn slurm_knows_the_rest() {
    let step = |rank: &'static str| {
        host(&[
            ("SLURM_JOB_ID", "5123"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_NODES", "4"),
            ("SLURM_NODEID", rank),
            ("SLURM_STEP_NODELIST", "node[1-4]"),
        ])
    };
    let first = plan_on(&step("0"), &["train.py"]).unwrap();
    let said: Vec<String> = first.provenance.iter().map(ToString::to_string).collect();
    let expected = [
        "number of nodes 4 from SLURM_STEP_NUM_NODES",
        "node rank 0 from SLURM_NODEID",
        "endpoint node1:29523,node2:29523,node3:29523 from SLURM_STEP_NODELIST",
        "run id slurm-5123.0 from SLURM_JOB_ID",
    ];
    assert_eq!(said, expected);
    // The first three succeed each other, and rank 0 is on the first of them whatever its name means here.
    assert_eq!(first.rendezvous.server, ServerPlacement::Order { is_here: true });
    let listens = [(0, "0.0.0.0:29523".parse().unwrap())];
    assert_eq!(first.rendezvous.own_places.places, listens);
    let third = plan_on(&step("2"), &["train.py"]).unwrap().rendezvous;
    assert_eq!(third.parameters.endpoint, "node1:29523,node2:29523,node3:29523");
    assert_eq!(third.server, ServerPlacement::Order { is_here: false });
    let two = ["--nnodes=2", "train.py"];
    let second = plan_on(&step("1"), &two).unwrap().rendezvous;
    assert_eq!(second.parameters.endpoint, "node1:29523", "two nodes have no successor");
    assert_eq!((third.parameters.min_nodes, third.parameters.max_nodes), (4, 4));
    // The command line wins, and what is not needed is not read.
    let line = ["--nnodes=2", "--node-rank=1", "--rdzv-endpoint=other", ID, "true"];
    let mut odd = step("x");
    assert!(plan_on(&odd, &line).unwrap().provenance.is_empty());
    assert!(plan_on(&odd, &["--standalone", "true"]).is_ok());
    let error = plan_on(&odd, &["true"]).unwrap_err().to_string();
    assert!(error.starts_with("SLURM_NODEID \"x\": it should be a whole number"), "{error}");
    // A batch script runs once.
    odd.environment.remove("SLURM_STEP_ID");
    odd.environment.insert("SLURM_JOB_NUM_NODES".into(), "4".into());
    let alone = plan_on(&odd, &["true"]).unwrap();
    assert_eq!(alone.rendezvous.server, ServerPlacement::Loopback);
    assert!(alone.warnings[0].starts_with("Slurm gave this job 4 nodes"), "{:?}", alone.warnings);
}

#[test]
fn a_run_never_goes_by_a_name_that_others_have_too() {
    assert_eq!(plan(&["true"]).rendezvous.parameters.run_id, "5eed");
    assert_eq!(plan(&["--standalone", ID, "true"]).rendezvous.parameters.run_id, "job");
    for (line, words) in [
        (
            &["--nnodes=2", "--rdzv-endpoint=other"][..],
            "--rdzv-id is missing: give a name that only",
        ),
        (&["--nnodes=2", "--master-addr=other"], "--rdzv-id is missing: give a name"),
        (&["--nnodes=2", "--rdzv-endpoint=other", "--node-rank=1"], "--rdzv-id is missing"),
    ] {
        let line: Vec<&str> = line.iter().copied().chain(["true"]).collect();
        let error = refusal(&line, &[]);
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn what_does_not_fit_together_is_said() {
    for (line, words) in [
        (&["--nnodes=4", ID][..], "--rdzv-endpoint is missing: 4 nodes need a place to meet"),
        (&["--nnodes=4", ID, "--rdzv-backend=etcd"], "--rdzv-endpoint is missing"),
        (&["--nnodes=1:4", "--standalone"], "--standalone and --nnodes 1:4 contradict each other"),
        (
            &["--nnodes=2", ID, "--rdzv-endpoint=a,b", "--rdzv-conf=is_host=1"],
            "is_host=true and an --rdzv-endpoint",
        ),
        (
            &["--nnodes=2", "--master-addr=a", "--node-rank=2"],
            "--node-rank \"2\": give a rank below",
        ),
        (
            &["--cacert=ca.pem", "--rdzv-endpoint=alias"],
            "--cert is missing: this host runs the server",
        ),
        (
            &["--cert=c.pem", "--rdzv-endpoint=other"],
            "cert and protocol http contradict each other",
        ),
        (&["--rdzv-endpoint=0.0.0.0:7"], "--rdzv-endpoint \"0.0.0.0:7\": this is no host"),
        (&["--rdzv-conf=lease_ttl=1"], "lease_ttl \"1\": give a whole number from 2"),
        (&["--rdzv-backend=etcd-v2", ID, "--nnodes=2"], "--rdzv-endpoint is missing"),
        (
            &["--rdzv-backend=etcd-v2", "--rdzv-conf=keep_alive_interval=5"],
            "unknown option \"keep_alive_interval\" of backend \"etcd\"",
        ),
        (
            &["--rdzv-backend=dynamic"],
            "--rdzv-backend \"dynamic\": this one is for programs that use the library; give rallypoint, or etcd for \
             existing servers",
        ),
        (
            &["--rdzv-backend=etdc"],
            "--rdzv-backend \"etdc\": did you mean etcd? give rallypoint, or etcd for existing servers",
        ),
        (
            &["--rdzv-backend=toy"],
            "--rdzv-backend \"toy\": give rallypoint, or etcd for existing servers",
        ),
    ] {
        let line: Vec<&str> = line.iter().copied().chain(["true"]).collect();
        let error = refusal(&line, &[]);
        assert!(error.starts_with(words), "{line:?}: {error}");
    }
    let warned = plan(&["--rdzv-endpoint=other", "--master-addr=x", "true"]).warnings;
    assert_eq!(
        warned,
        ["--master-addr or --master-port is not used: --rdzv-endpoint says where to meet"]
    );
}

#[test]
fn a_secret_is_asked_for_by_the_server_and_never_shown() {
    let secret = [("RALLYPOINT_SECRET", "open sesame")];
    let plan = plan_on(&host(&secret), &["true"]).unwrap();
    assert_eq!(plan.rendezvous.credentials.as_ref().unwrap().password, "open sesame");
    assert_eq!(plan.rendezvous.parameters.get("password"), Some("open sesame"));
    let mut shown = format!("{:?}", plan.rendezvous);
    for line in [&["--dry-run", "true"][..], &["--dry-run", "--json", "true"]] {
        let Ok(RunAction::Show(text)) = errand_on(&host(&secret), line) else { panic!() };
        shown.push_str(&text);
    }
    assert!(!shown.contains("sesame"), "{shown}");
    // A cluster has users of its own.
    let line = ["--rdzv-endpoint=a,b", "--rdzv-backend=etcd", "true"];
    let etcd = plan_on(&host(&secret), &line).unwrap();
    assert!(etcd.rendezvous.credentials.is_none());
    assert!(etcd.warnings[0].starts_with("RALLYPOINT_SECRET is not used"), "{:?}", etcd.warnings);
    let file = tempfile::NamedTempFile::new().unwrap();
    let option = format!("--secret-file={}", file.path().display());
    assert!(refusal(&[&option, "true"], &[]).contains("the file is empty"));
    std::fs::write(file.path(), "open\n").unwrap();
    let line = [&option, "--rdzv-endpoint=a,b", "--rdzv-backend=etcd", "true"];
    let error = refusal(&line, &[]);
    assert!(error.starts_with("--secret-file and servers that are there already"), "{error}");
    let error = refusal(&[&option, "--rdzv-conf=user=me,password=x", "true"], &[]);
    assert!(error.starts_with("--secret-file and user in --rdzv-conf"), "{error}");
}

#[test]
fn tls_by_options() {
    let line = ["--cacert=ca.pem", "--cert=c.pem", "--key=k.pem", "--rdzv-endpoint=alias", "true"];
    let config = plan(&line).rendezvous;
    assert!(config.tls.unwrap().identity.is_some());
    assert_eq!(config.parameters.get("protocol"), Some("https"));
    let config = plan(&["--rdzv-endpoint=https://other", "--cacert=ca.pem", "true"]).rendezvous;
    assert_eq!(config.parameters.endpoint, "https://other:29400");
    assert!(config.tls.unwrap().identity.is_none());
}
