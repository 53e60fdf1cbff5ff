//! Every option: its spellings, its variable, its default, its effect, and what it says to a bad value.

use std::collections::BTreeSet;

use clap::{Arg, CommandFactory};

use super::*;
use crate::cli::run::options::Options;
use crate::launch::job::StreamSelection;

struct Row {
    name: &'static str,
    /// A beginning that no other option has.
    prefix: &'static str,
    /// Without one it is a flag.
    value: Option<&'static str>,
    /// What the option has an effect on.
    effect: fn(&JobSpec) -> String,
    default: &'static str,
    expected: &'static str,
    /// A bad value, and what is said to it.
    bad: &'static str,
    words: &'static str,
}

const FLAG: (&str, &str) = ("yes", "give 0 or 1");

fn conf(plan: &JobSpec, key: &str) -> String {
    plan.rendezvous.parameters.get(key).unwrap_or("-").to_owned()
}

fn streams(selection: &StreamSelection) -> String {
    let mark = |on| if on { '+' } else { '-' };
    [0, 1, 11]
        .map(|rank| selection.of(rank))
        .map(|s| format!("{}{}", mark(s.stdout), mark(s.stderr)))
        .join(" ")
}

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    let option = |name, prefix, value, effect, default, expected, bad, words| {
        Row { name, prefix, value: Some(value), effect, default, expected, bad, words }
    };
    let flag = |name, prefix, effect, default, expected| {
        Row { name, prefix, value: None, effect, default, expected, bad: FLAG.0, words: FLAG.1 }
    };
    vec![
        option("nnodes", "nn", "2:4", |p| format!("{}:{}", p.rendezvous.parameters.min_nodes, p.rendezvous.parameters.max_nodes),
            "1:1", "2:4", "4:2", "give a number of nodes"),
        option("nproc-per-node", "nproc", "3", |p| p.agent.local_workers.to_string(), "1", "3", "0", "give a number of at least 1"),
        option("planned", "plan", "3", |p| conf(p, "planned"), "-", "3", "0", "0 is not in 1..="),
        option("sizes", "siz", "4,2", |p| conf(p, "sizes"), "-", "2/4", "2-4", "give numbers of nodes, such as 2,4,8"),
        option("node-unit", "node-u", "2", |p| conf(p, "node_unit"), "-", "2", "0", "0 is not in 1..="),
        option("scale-up-after", "sc", "7.5", |p| conf(p, "scale_up_after"), "-", "7.5", "-1", "give seconds"),
        option("node-rank", "node-r", "1", |p| conf(p, "node_rank"), "-", "1", "-1", "is not in 0..="),
        option("local-addr", "local-a", "10.0.0.1", |p| format!("{:?}", p.rendezvous.parameters.local_addr),
            "None", "Some(\"10.0.0.1\")", "", "give a name"),
        option("role", "ro", "learner", |p| p.role.clone(), "default", "learner", "", "give a name"),
        flag("standalone", "stand", |p| format!("{:?}", p.rendezvous.server), "Loopback", "Loopback"),
        option("rdzv-endpoint", "rdzv-e", "other:1", |p| p.rendezvous.parameters.endpoint.clone(), "", "other:1",
            "other:x", "the port must be a number"),
        option("engine", "en", "etcd", |p| format!("{:?}", p.etcd_member.as_ref().map(|member| member.own)), "None", "Some(1)",
            "mysql", "give embedded or etcd"),
        option("rdzv-id", "rdzv-i", "job7", |p| p.rendezvous.parameters.run_id.clone(), "5eed", "job7", "a/b", "without slashes"),
        flag("reopen", "reo", |p| conf(p, "reopen"), "-", "true"),
        option("rdzv-backend", "rdzv-b", "etcd", |p| p.rendezvous.parameters.backend.clone(), "rallypoint", "etcd",
            "etdc", "did you mean etcd?"),
        option("rdzv-conf", "rdzv-c", "lease_ttl=5", |p| conf(p, "lease_ttl"), "-", "5", "lease_tll=5", "did you mean lease_ttl?"),
        option("master-addr", "master-a", "other", |p| p.rendezvous.parameters.endpoint.clone(), "", "other:29500",
            "other:1", "--master-port names the port"),
        option("master-port", "master-p", "1234", |p| p.rendezvous.parameters.endpoint.clone(), "", "127.0.0.1:1234",
            "0", "0 is not in 1..=65535"),
        option("secret-file", "sec", "SECRET", |p| conf(p, "user"), "-", "rallypoint", "/nowhere/secret", "cannot read --secret-file"),
        option("cacert", "ca", "ca.pem", |p| p.rendezvous.tls.is_some().to_string(), "false", "true", "", "give a value"),
        option("cert", "ce", "c.pem", |p| conf(p, "cert"), "-", "c.pem", "", "give a value"),
        option("key", "k", "k.pem", |p| conf(p, "key"), "-", "k.pem", "", "give a value"),
        option("max-restarts", "max", "3", |p| p.max_restarts.to_string(), "0", "3", "-1", "is not in 0..="),
        option("no-restart-exit-code", "no-r", "none", |p| format!("{:?}", p.agent.no_restart_exit_code),
            "Some(78)", "None", "0", "from 1 to 255"),
        option("restart-delay", "res", "2:9", |p| format!("{:?}", p.agent.restart_backoff),
            "RestartBackoff { first: 1s, longest: 30s }", "RestartBackoff { first: 2s, longest: 9s }", "9:2", "give 1:30, not 30:1"),
        option("notice", "noti", "2.5:SIGUSR2", |p| format!("{:?} {}", p.agent.notice, p.notice_signal),
            "0ns 10", "2.5s 12", "2:SIGKILL", "no signal that can be handled"),
        option("hang-after", "ha", "5:60", |p| format!("{:?}", p.agent.hang), "None",
            "Some(HangPolicy { after: 5s, first: 60s })", "0", "give seconds from 0.001"),
        option("on-hang", "on", "restart", |p| format!("{:?}", p.agent.on_hang), "Report", "Restart { min_nodes: 1 }",
            "kill", "give report or restart"),
        option("progress", "prog", "file:/beat", |p| p.progress.to_string(), "auto", "file:/beat", "moon", "auto, output, beat or file:PATH"),
        option("shutdown-timeout", "sh", "1.5", |p| format!("{:?}", p.agent.shutdown_timeout), "30s", "1.5s", "-1", "give seconds"),
        option("exit-barrier-timeout", "exit", "300", |p| format!("{:?}", p.agent.exit_barrier), "None", "Some(300s)", "x", "or none"),
        option("signals-to-handle", "sig", "SIGUSR1, SIGTERM", |p| p.handled.signals.to_string(),
            "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "SIGUSR1,SIGTERM", "SIGTERM,SIGFOO", "\"SIGFOO\" is no signal"),
        option("monitor-interval", "mon", "5", |_| String::new(), "", "", "0", "give seconds above 0"),
        flag("module", "mod", |p| format!("{:?}", p.program.path), "\"true\"", "\"python3\""),
        flag("no-python", "no-p", |p| format!("{:?}", p.program.path), "\"true\"", "\"true\""),
        option("preflight", "preflight", "true", |p| format!("{:?}", p.preflight.as_ref().map(|preflight| &preflight.command)),
            "None", "Some(\"true\")", "", "give a command"),
        option("preflight-timeout", "preflight-t", "7", |p| format!("{:?}", p.preflight.as_ref().map(|preflight| preflight.timeout)),
            "Some(300s)", "Some(7s)", "0", "give seconds above 0"),
        option("ports", "po", "2", |p| p.ports.count.to_string(), "0", "2", "65", "give a number of ports from 0 to 64"),
        flag("placeholders", "plac", |p| p.program.placeholders.to_string(), "false", "true"),
        flag("virtual-local-rank", "v", |p| p.virtual_local_rank.to_string(), "false", "true"),
        option("stdin", "std", "0", |p| format!("{:?}", p.stdin), "None", "Some(0)", "1", "0 to 0"),
        option("numa-binding", "nu", "core-complex", |p| format!("{:?}", p.numa_binding), "None", "Some(CoreComplex)",
            "moon", "node, socket, exclusive, core-complex"),
        option("http", "ht", "127.0.0.1:0", |p| format!("{:?}", p.http), "None", "Some(127.0.0.1:0)", "9480", "give an IP address and a port"),
        option("events", "ev", "e.jsonl", |p| format!("{:?}", p.events), "None", "Some(\"e.jsonl\")", "", "a value is required"),
        flag("records", "rec", |p| p.records.to_string(), "false", "true"),
        option("log-dir", "log-d", "/dev/null", |p| format!("{:?}", p.logs.directory), "Temporary", "Nowhere", "", "a value is required"),
        option("redirects", "redirect", "0:1,11:3", |p| streams(&p.logs.redirects), "-- -- --", "+- -- ++", "4", "give 0 (none)"),
        option("tee", "te", "2", |p| streams(&p.logs.tee), "-- -- --", "-+ -+ -+", "0:1,0:2", "local rank 0 is there twice"),
        option("log-line-prefix-template", "log-l", "<${rank}>", |p| p.logs.prefix.to_string(),
            "[${role_name}${local_rank}]:", "<${rank}>", "${word}", "stands for nothing"),
        option("local-ranks-filter", "local-r", "0,12", |p| format!("{:?}", p.logs.console.0), "{}", "{0, 12}", "a", "give local ranks"),
        // These make no plan to look at: `arguments::dry_run` has them.
        flag("dry-run", "dr", |_| String::new(), "", ""),
        flag("json", "j", |_| String::new(), "", ""),
    ]
}

/// What else must be there for the option to mean something.
fn context(name: &str) -> &'static [&'static str] {
    match name {
        "nnodes" => &["--rdzv-endpoint=other", "--rdzv-id=a"],
        "planned" | "sizes" | "node-unit" => {
            &["--nnodes=2:4", "--rdzv-endpoint=other", "--rdzv-id=a"]
        }
        "node-rank" => &["--nnodes=2", "--rdzv-endpoint=other", "--rdzv-id=a"],
        "cert" => &["--key=k.pem", "--cacert=ca.pem", "--rdzv-endpoint=other"],
        "key" => &["--cert=c.pem", "--cacert=ca.pem", "--rdzv-endpoint=other"],
        "cacert" => &["--rdzv-endpoint=other"],
        "records" => &["--events=e.jsonl"],
        "engine" => &["--rdzv-endpoint=other,alias,10.0.0.3"],
        "preflight-timeout" => &["--preflight=true"],
        _ => &[],
    }
}

/// Certificates and their keys come in pairs, and dry runs end without a plan.
fn has_default(name: &str) -> bool {
    !matches!(name, "cert" | "key" | "dry-run" | "json")
}

fn effect(row: &Row, host: &HostFacts, given: &[String]) -> Result<String, RunError> {
    let mut line: Vec<&str> = context(row.name).to_vec();
    line.extend(given.iter().map(String::as_str));
    line.push("true");
    match errand_on(host, &line)? {
        RunAction::Launch(plan) => Ok((row.effect)(&plan)),
        RunAction::Show(_) => Ok(row.expected.to_owned()),
    }
}

fn effect_of(row: &Row, given: &[String]) -> String {
    effect(row, &host(&[]), given).unwrap_or_else(|error| panic!("{given:?}: {error}"))
}

/// Rows with the file of the secret in place of its name.
fn with_rows(check: impl Fn(&Row)) {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "open sesame\n").unwrap();
    let path: &'static str = Box::leak(secret.path().to_str().unwrap().to_owned().into_boxed_str());
    for mut row in rows() {
        if row.value == Some("SECRET") {
            row.value = Some(path);
        }
        check(&row);
    }
}

#[test]
fn no_option_is_missing_here() {
    let command = Options::command();
    let there: BTreeSet<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
    let rows = rows();
    let tested: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
    assert_eq!(there, tested);
    assert_eq!(rows.len(), tested.len());
    for option in command.get_arguments().filter(|option| option.get_long().is_some()) {
        assert!(option.get_help().is_some(), "{option}");
        let alone = ["dry_run", "json"].contains(&option.get_id().as_str());
        assert_eq!(option.get_help_heading().is_none(), alone, "{option}");
    }
}

#[test]
fn an_option_has_its_effect_in_every_spelling() {
    with_rows(|row| {
        // The plan needs --dry-run beside it.
        if row.name == "json" {
            return;
        }
        if has_default(row.name) {
            assert_eq!(effect_of(row, &[]), row.default, "{}", row.name);
        }
        for name in [row.name.to_owned(), row.name.replace('-', "_"), row.prefix.to_owned()] {
            let spellings: Vec<Vec<String>> = match row.value {
                None => vec![vec![format!("--{name}")], vec![format!("--{name}"), "--".to_owned()]],
                Some(value) => {
                    let apart = vec![format!("--{name}"), value.to_owned()];
                    vec![vec![format!("--{name}={value}")], apart]
                }
            };
            for given in spellings {
                assert_eq!(effect_of(row, &given), row.expected, "{given:?}");
            }
        }
    });
}

#[test]
fn a_variable_does_the_same_and_the_command_line_wins() {
    with_rows(|row| {
        if row.name == "json" {
            return;
        }
        let variable = format!("PET_{}", row.name.replace('-', "_").to_uppercase());
        let value = row.value.unwrap_or("1");
        let set = host(&[(variable.as_str(), value)]);
        assert_eq!(effect(row, &set, &[]).unwrap(), row.expected, "{variable}");
        let empty = host(&[(variable.as_str(), "")]);
        if has_default(row.name) {
            assert_eq!(effect(row, &empty, &[]).unwrap(), row.default, "{variable}");
        }
        let other = host(&[(variable.as_str(), if row.value.is_some() { row.bad } else { "0" })]);
        let flag = format!("--{}", row.name);
        let given = row.value.map_or_else(|| flag.clone(), |value| format!("{flag}={value}"));
        assert_eq!(effect(row, &other, &[given]).unwrap(), row.expected, "{variable}");
    });
}

#[test]
fn a_bad_value_is_named_with_what_would_be_right() {
    with_rows(|row| {
        let variable = format!("PET_{}", row.name.replace('-', "_").to_uppercase());
        if row.value.is_some() {
            let given = format!("--{}={}", row.name, row.bad);
            let error = effect(row, &host(&[]), &[given]).unwrap_err().to_string();
            assert!(error.contains(row.words), "--{}: {error}", row.name);
            assert!(error.contains(row.bad.split('=').next().unwrap()), "{error}");
        }
        // An empty variable is none.
        if !row.bad.is_empty() {
            let host = host(&[(variable.as_str(), row.bad)]);
            let error = effect(row, &host, &[]).unwrap_err().to_string();
            assert!(error.contains(row.words), "{variable}: {error}");
        }
    });
}

#[test]
fn a_bad_variable_is_called_by_its_name() {
    for (variable, value, words) in [
        ("PET_NNODES", "many", "PET_NNODES \"many\": give a number of nodes"),
        ("PET_STANDALONE", "on", "PET_STANDALONE \"on\": give 0 or 1"),
        ("PET_NUMA_BINDING", "moon", "PET_NUMA_BINDING \"moon\": give one of node, socket"),
        ("PET_MAX_RESTARTS", "-2", "PET_MAX_RESTARTS \"-2\": -2 is not in 0..="),
        ("PET_MASTER_PORT", "70000", "PET_MASTER_PORT \"70000\": 70000 is not in 1..=65535"),
    ] {
        let error = refusal(&["true"], &[(variable, value)]);
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn what_came_from_a_variable_is_said() {
    let variables = [
        ("PET_MAX_RESTARTS", "2"),
        ("PET_NPROC_PER_NODE", "3"),
        ("PET_RDZV_CONF", "user=me,password=hidden"),
        ("PET_STANDALONE", "1"),
    ];
    let plan = plan_on(&host(&variables), &["--nproc-per-node=4", "true"]).unwrap();
    let said: Vec<String> = plan.provenance.iter().map(ToString::to_string).collect();
    let expected = [
        "--standalone 1 from PET_STANDALONE",
        "--rdzv-conf … from PET_RDZV_CONF",
        "--max-restarts 2 from PET_MAX_RESTARTS",
        "run id 5eed from a random number",
    ];
    assert_eq!(said[..4], expected);
}
