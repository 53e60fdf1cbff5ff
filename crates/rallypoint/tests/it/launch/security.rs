//! Who is let in.

use super::{Job, free_endpoint, host_of};
use crate::secure::Certificates;

const CONF: &str = "lease_ttl=30,last_call_timeout=30,timeout=60";

#[test]
fn who_has_the_secret_is_let_in_and_its_workers_do_not_see_it() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "2", CONF);
    let file = job.file("secret");
    std::fs::write(&file, "sesame\n").unwrap();
    let mut nodes = vec![
        job.launch_with(&["--secret-file", &file]),
        job.launcher().env("RALLYPOINT_SECRET", "sesame").start(),
    ];
    let group = job.group(2);
    for worker in &group.workers {
        assert!(!worker.environment.contains_key("RALLYPOINT_SECRET"));
        assert!(!worker.environment.values().any(|value| value.contains("sesame")));
    }
    for node in &nodes {
        let line = std::fs::read_to_string(format!("/proc/{}/cmdline", node.id())).unwrap();
        assert!(!line.contains("sesame"));
    }
    group.tell("exit 0");
    for node in &mut nodes {
        let ended = node.ends_with(0);
        assert!(!ended.stderr.contains("sesame"), "it is in the log");
    }
}

/// The password of a user, which may be that of an etcd, is neither in the arguments nor in the workers' environment.
#[test]
fn a_password_appears_in_no_output_or_command_line() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "2", CONF);
    let file = job.file("password");
    std::fs::write(&file, "sesame\n").unwrap();
    let conf = format!("{CONF},user=ali");
    let by_file = format!("{conf},password_file={file}");
    let by_variable = job.launcher().with(&["--rdzv-conf", &conf]);
    let mut nodes = vec![
        job.launch_with(&["--rdzv-conf", &by_file]),
        by_variable.env("RALLYPOINT_PASSWORD", "sesame").start(),
    ];
    let group = job.group(2);
    for worker in &group.workers {
        assert!(!worker.environment.contains_key("RALLYPOINT_PASSWORD"));
        assert!(!worker.environment.values().any(|value| value.contains("sesame")));
    }
    let wrong = job.launcher().with(&["--rdzv-conf", &conf]).env("RALLYPOINT_PASSWORD", "simsim");
    let said = wrong.start().ends_with(1).stderr;
    assert!(said.contains("authentication failed"), "{said}");
    group.tell("exit 0");
    for node in &mut nodes {
        let ended = node.ends_with(0);
        assert!(!ended.stderr.contains("sesame"), "it is in the log");
    }
}

/// With one line that says what is wrong, and without harm to other nodes.
#[test]
fn who_has_another_secret_or_none_is_refused() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "2", CONF);
    let mut nodes = vec![job.launcher().env("RALLYPOINT_SECRET", "sesame").start()];
    host_of(&nodes, &endpoint);
    for secret in ["simsim", ""] {
        let said = job.launcher().env("RALLYPOINT_SECRET", secret).start().ends_with(1).stderr;
        let about: Vec<&str> = said.lines().filter(|line| line.contains("secret")).collect();
        assert_eq!(about.len(), 1, "{said}");
    }
    nodes.push(job.launcher().env("RALLYPOINT_SECRET", "sesame").start());
    job.group(2).tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

#[test]
fn nodes_meet_over_tls() {
    let certificates = Certificates::new();
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "2", CONF);
    let options = certificates.options();
    let mut nodes = vec![job.launch_with(&options)];
    host_of(&nodes, &endpoint);
    // One that trusts somebody else, and one that does not speak TLS at all.
    let other = certificates.other_ca();
    let wrong = [&options[..], &["--cacert", &other]].concat();
    let said = job.launch_with(&wrong).ends_with(1).stderr;
    assert!(said.contains("not signed by the given CA"), "{said}");
    let said = job
        .launch_with(&["--rdzv-conf", "lease_ttl=30,timeout=3,is_host=false"])
        .ends_with(1)
        .stderr;
    assert!(said.contains(&endpoint), "{said}");
    nodes.push(job.launch_with(&options));
    job.group(2).tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// The address that the endpoint names, not every interface.
#[test]
fn the_server_listens_where_the_endpoint_says() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let nodes = vec![job.launch()];
    let host = host_of(&nodes, &endpoint);
    let port: u16 = endpoint.rsplit(':').next().unwrap().parse().unwrap();
    let addresses = super::processes::listening(nodes[host].id());
    let of_server: Vec<_> = addresses.iter().filter(|at| at.port() == port).collect();
    assert_eq!(of_server.len(), 1, "{addresses:?}");
    assert!(addresses.iter().all(|at| at.ip().is_loopback()), "{addresses:?}");
}
