//! The units for systemd in the examples: what they run, on hosts of their own.

use std::fs::File;
use std::process::{Command, Stdio};

use super::hosts::{Network, address};
use super::{Job, Launcher};
use crate::support::process::Process;

/// The words that a unit runs, without the program, with the directories that systemd makes for it.
fn words(unit: &str, job: &Job) -> Vec<String> {
    let path = format!("{}/../../examples/systemd/{unit}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let line = line.replace("${CREDENTIALS_DIRECTORY}", &job.file("credentials"));
    let line = line.replace("${STATE_DIRECTORY}", &job.file("state"));
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    assert_eq!(words[0], "/usr/local/bin/rallypoint");
    words[1..].to_vec()
}

#[test]
fn nodes_of_the_unit_meet_at_the_server_of_the_unit() {
    let network = Network::new(3);
    for host in &network.hosts {
        host.knows(&[(&address(0), "head")]);
    }
    let job = Job::new(&[]);
    std::fs::create_dir(job.path().join("credentials")).unwrap();
    std::fs::write(job.path().join("credentials/secret"), "of the hosts\n").unwrap();

    let log = job.path().join("server.log");
    let enter = network.hosts[0].enter();
    let mut serve = Command::new(&enter[0]);
    serve.args(&enter[1..]).arg(env!("CARGO_BIN_EXE_rallypoint"));
    serve.args(words("rallypoint-server.service", &job)).stdin(Stdio::null());
    let output = File::create(&log).unwrap();
    serve.stdout(output.try_clone().unwrap()).stderr(output);
    let mut server = Process::of(&mut serve, vec![log]);

    let mut line = words("rallypoint-node.service", &job);
    // No other node is expected, so there is nothing to wait for.
    let conf = line.iter_mut().find(|word| *word == "is_host=false").unwrap();
    conf.push_str(",last_call_timeout=1");
    assert_eq!(line[0], "run");
    let script = line.iter().position(|word| word == "train.py").unwrap();
    let options: Vec<&str> = line[1..script].iter().map(String::as_str).collect();
    let start = |number: usize| {
        let enter = network.hosts[number].enter();
        let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
        let line = job.launcher().with(&options).by(&enter);
        line.env("CUDA_VISIBLE_DEVICES", "0").start()
    };
    let mut nodes: Vec<Launcher> = [1, 2].map(start).into();
    let group = job.group(2);
    assert_eq!(group.workers[0].get("TORCHELASTIC_RUN_ID"), "job7");
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    assert!(!server.has_ended(), "the server goes on");
}
