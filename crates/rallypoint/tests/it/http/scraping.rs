//! A real Prometheus scrapes a job in which a node dies, and its numbers are those of the job.

use std::process::{Command, Stdio};

use super::{get, told_address};
use crate::launch::{Job, Launcher, free_endpoint, until};
use crate::support::process::{Directory, Process};
use crate::support::tools::{free_port, prometheus};

/// A Prometheus that scrapes these addresses five times a second.
struct Prometheus {
    _process: Process,
    address: String,
    _directory: Directory,
}

impl Prometheus {
    fn start(targets: &[String]) -> Self {
        let directory = Directory::new();
        let file = |name: &str| directory.path().join(name);
        let targets: Vec<String> = targets.iter().map(|target| format!("{target:?}")).collect();
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n\
             scrape_configs: [{{job_name: it, static_configs: [{{targets: [{}]}}]}}]\n",
            targets.join(", ")
        );
        std::fs::write(file("prometheus.yml"), config).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let log = file("log");
        let output = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(prometheus("prometheus"));
        command
            .arg(format!("--config.file={}", file("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", file("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output);
        let process = Process::of(&mut command, vec![log]);
        Self { _process: process, address, _directory: directory }
    }

    /// The value of a query that has one result.
    fn value(&self, query: &str) -> Option<f64> {
        std::net::TcpStream::connect(&self.address).ok()?;
        let query: String = query
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
                byte => format!("%{byte:02X}"),
            })
            .collect();
        let page = get(&self.address, &format!("/api/v1/query?query={query}"));
        let body = page.body.get(page.body.find('{')?..=page.body.rfind('}')?)?;
        let answer: serde_json::Value = serde_json::from_str(body).ok()?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }

    #[track_caller]
    fn until(&self, query: &str, expected: f64) {
        until(&format!("{query} is {expected}"), || (self.value(query)? == expected).then_some(()));
    }
}

fn pages(launcher: &Launcher) -> String {
    until("the launcher names the address of its pages", || told_address(&launcher.stderr()))
}

#[test]
fn a_real_prometheus_sees_what_happens_to_a_job() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "2", "lease_ttl=5,last_call_timeout=1");
    let http = ["--http", "127.0.0.1:0", "--max-restarts", "3"];
    let mut first = job.launch_with(&http);
    let first_pages = pages(&first);
    let mut second = job.launch_with(&http);
    let group = job.group(2);
    let prometheus = Prometheus::start(&[first_pages.clone(), pages(&second)]);
    prometheus.until(r#"sum(rallypoint_node_state{run="job",state="member"})"#, 2.0);
    prometheus.until(r#"max(rallypoint_nodes{state="member"})"#, 2.0);
    prometheus.until(r#"max(rallypoint_run_state{state="final"})"#, 1.0);
    prometheus.until(r#"sum(etcd_server_has_leader)"#, 1.0);

    // A worker of the first node fails, and all restart.
    let of_first = |worker: &&crate::launch::Worker| worker.launcher() == first.number;
    group.workers.iter().find(of_first).unwrap().tell("exit 7");
    let group = job.group_after(&group, 2);
    prometheus.until(r#"sum(rallypoint_worker_exits_total{code="7"})"#, 1.0);
    prometheus.until(r#"sum(rallypoint_rounds_total{reason="worker_failed"})"#, 2.0);
    prometheus.until("sum(rallypoint_recovery_seconds_count)", 2.0);
    prometheus.until("min(rallypoint_restarts_left)", 2.0);

    // The second node dies, and another takes its place.
    second.kill();
    let of_pages = format!(r#"{{instance="{first_pages}"}}"#);
    let lost = format!(r#"rallypoint_rounds_total{{reason="node_lost",instance="{first_pages}"}}"#);
    prometheus.until(&lost, 1.0);
    let mut third = job.launch_with(&http);
    let group = job.group_after(&group, 2);
    prometheus.until(&format!("rallypoint_run_round{of_pages}"), group.round as f64);
    group.workers.iter().for_each(|worker| worker.tell("exit 0"));
    first.ends_with(0);
    third.ends_with(0);
}
