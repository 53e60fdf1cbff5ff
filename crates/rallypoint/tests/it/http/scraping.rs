//! A real Prometheus scrapes a job in which nodes die, and its numbers are those of the job's events.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::documents::{dashboard, path};
use super::reckoned::{Numbers, numbers_of};
use super::{get, told_address};
use crate::launch::{Job, Launcher, free_endpoint, recorded, until, until_true};
use crate::support::process::{Directory, Process};
use crate::support::tools::{free_port, prometheus};

/// The metrics that are compared.
const COMPARED: &str = "rallypoint_(rounds_total|worker_exits_total|members_lost_total|restarts_left|run_round|\
    (stage|recovery)_seconds_(count|sum)|seconds_total|run_state|node_state|nodes)";

/// A Prometheus that scrapes five times a second.
struct Prometheus {
    _process: Process,
    address: String,
    directory: Directory,
    targets: Vec<String>,
}

impl Prometheus {
    fn start() -> Self {
        let directory = Directory::new();
        let file = |name: &str| directory.path().join(name);
        let rules = path("prometheus/rules.yml");
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 1s}}\n\
             rule_files: [{rules:?}]\n\
             scrape_configs: [{{job_name: it, file_sd_configs: [{{files: [{:?}], refresh_interval: 1s}}]}}]\n",
            file("targets.json")
        );
        std::fs::write(file("prometheus.yml"), config).unwrap();
        std::fs::write(file("targets.json"), "[]").unwrap();
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
        Self { _process: process, address, directory, targets: Vec::new() }
    }

    /// Scrapes the pages of one more launcher.
    fn scrape(&mut self, launcher: &Launcher) {
        self.targets.push(pages(launcher));
        let targets = serde_json::json!([{ "targets": self.targets }]).to_string();
        let new = self.directory.path().join("new.json");
        std::fs::write(&new, targets).unwrap();
        std::fs::rename(new, self.directory.path().join("targets.json")).unwrap();
    }

    /// The result of a query.
    fn query(&self, query: &str) -> Option<Vec<serde_json::Value>> {
        let query: String = query
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
                byte => format!("%{byte:02X}"),
            })
            .collect();
        let answer = self.ask(&format!("/api/v1/query?query={query}"))?;
        Some(answer["result"].as_array()?.clone())
    }

    /// What it answers, once it does.
    fn ask(&self, path: &str) -> Option<serde_json::Value> {
        std::net::TcpStream::connect(&self.address).ok()?;
        let page = get(&self.address, path);
        let mut answer: serde_json::Value = serde_json::from_str(&page.body).ok()?;
        assert_ne!(answer["status"], "error", "{path}: {answer}");
        Some(answer["data"].take())
    }

    /// Waits until it has evaluated the alerts. Returns those that fire.
    fn alerts(&self) -> Vec<String> {
        until("the alerts are evaluated", || {
            let answer = self.ask("/api/v1/rules")?;
            let rules = answer["groups"][0]["rules"].as_array()?.clone();
            let text =
                |rule: &serde_json::Value, field: &str| rule[field].as_str().map(str::to_owned);
            let mut firing = Vec::new();
            for rule in &rules {
                assert_ne!(rule["health"], "err", "{rule}");
                if rule["health"] != "ok" {
                    return None;
                }
                if rule["state"] == "firing" {
                    firing.extend(text(rule, "name"));
                }
            }
            Some(firing)
        })
    }

    #[track_caller]
    fn until(&self, query: &str, expected: f64) {
        let value = || value(self.query(query)?.first()?);
        until(&format!("{query} is {expected}"), || (value()? == expected).then_some(()));
    }

    /// The last numbers that a launcher told, which may be dead since.
    fn numbers_of(&self, launcher: usize) -> Numbers {
        let instance = &self.targets[launcher];
        let series = format!(r#"{{__name__=~"{COMPARED}",instance="{instance}"}}"#);
        let found = self.query(&format!("last_over_time({series}[1h])")).unwrap_or_default();
        let number = |one: &serde_json::Value| {
            let labels = &one["metric"];
            let own = ["reason", "stage", "code", "phase", "state"]
                .iter()
                .find_map(|name| labels[*name].as_str());
            let name = labels["__name__"].as_str()?.strip_prefix("rallypoint_")?;
            let value = value(one)?;
            Some((format!("{name} {}", own.unwrap_or_default()), value))
        };
        Numbers::new(found.iter().filter_map(number))
    }

    /// Waits until the numbers of the launchers are those of their events: neither more nor less.
    #[track_caller]
    fn agrees(&self, job: &Job, launchers: &[&Launcher]) {
        for launcher in launchers {
            let number = launcher.number;
            let begun = std::time::Instant::now();
            loop {
                let told = self.numbers_of(number);
                let events = numbers_of(&recorded::read(&job.events_of(number)));
                if events.is_told_by(&told) {
                    break;
                }
                let in_time = begun.elapsed() < crate::launch::PATIENCE;
                assert!(
                    in_time,
                    "launcher {number}: Prometheus has {told:#?}, its events {events:#?}"
                );
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    }
}

fn value(result: &serde_json::Value) -> Option<f64> {
    result["value"][1].as_str()?.parse().ok()
}

fn pages(launcher: &Launcher) -> String {
    until("the launcher names the address of its pages", || told_address(&launcher.stderr()))
}

#[test]
fn the_numbers_of_a_real_prometheus_are_those_of_the_events_of_a_job_whose_nodes_die() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "2:3", "lease_ttl=5,last_call_timeout=1");
    let mut prometheus = Prometheus::start();
    let launch = |prometheus: &mut Prometheus, serves: bool| {
        let conf = format!("is_host={serves},lease_ttl=5,last_call_timeout=1");
        let http = ["--http", "127.0.0.1:0", "--max-restarts", "3", "--rdzv-conf", &conf];
        let hangs = ["--hang-after", "600"];
        let launcher = job.recorded().with(&http).with(&hangs).start();
        prometheus.scrape(&launcher);
        launcher
    };
    let mut head = launch(&mut prometheus, true);
    let [mut second, mut third] = [launch(&mut prometheus, false), launch(&mut prometheus, false)];
    let group = job.group(3);
    prometheus.until(r#"sum(rallypoint_node_state{run="job",state="member"})"#, 3.0);
    prometheus.until(r#"max(rallypoint_nodes{state="member"})"#, 3.0);
    prometheus.until(r#"max(rallypoint_run_state{state="final"})"#, 1.0);
    prometheus.until(r#"sum(etcd_server_has_leader)"#, 1.0);
    prometheus.agrees(&job, &[&head, &second, &third]);

    // A worker fails, and all restart.
    group.of(&second)[0].tell("exit 7");
    let group = job.group_after(&group, 3);
    prometheus.until(r#"sum(rallypoint_worker_exits_total{code="7"})"#, 1.0);
    // A node may learn that others have begun another round before it learns why.
    prometheus.until(r#"max(rallypoint_rounds_total{reason="worker_failed"})"#, 1.0);
    prometheus.until("sum(rallypoint_rounds_total)", 6.0);
    prometheus.until("sum(rallypoint_recovery_seconds_count)", 3.0);
    prometheus.until("min(rallypoint_restarts_left)", 2.0);
    prometheus.agrees(&job, &[&head, &second, &third]);

    // A node dies, and those who are left go on.
    third.kill();
    let group = job.group_after(&group, 2);
    prometheus.until(r#"max(rallypoint_rounds_total{reason="node_lost"})"#, 1.0);
    prometheus.agrees(&job, &[&head, &second, &third]);

    // Another comes in its place, a worker is killed, and a second node dies.
    let mut fourth = launch(&mut prometheus, false);
    let group = job.group_after(&group, 3);
    group.of(&fourth)[0].tell("kill -SEGV $$");
    let group = job.group_after(&group, 3);
    prometheus.until(r#"sum(rallypoint_worker_exits_total{code="SIGSEGV"})"#, 1.0);
    prometheus.agrees(&job, &[&head, &second, &fourth]);
    second.kill();
    let group = job.group_after(&group, 2);
    prometheus.until("max(rallypoint_run_round)", group.round as f64);
    prometheus.agrees(&job, &[&head, &second, &third, &fourth]);

    // Every panel of the dashboard has data of this job, and the alert that its restarts call for fires.
    for expression in dashboard() {
        let found = until("an answer", || prometheus.query(&expression));
        assert!(!found.is_empty(), "{expression} finds nothing");
    }
    until_true("RallypointFewRestartsLeft fires", || {
        prometheus.alerts().contains(&"RallypointFewRestartsLeft".to_owned())
    });

    // One leaves. Prometheus has seen it up to some event, and not a number that was never true.
    fourth.signal(Signal::TERM);
    fourth.ends_with(143);
    let told = prometheus.numbers_of(fourth.number);
    let events = recorded::read(&job.events_of(fourth.number));
    let was_true = (0..=events.len()).any(|end| numbers_of(&events[..end]).is_told_by(&told));
    assert!(was_true, "{told:?}");
    head.signal(Signal::TERM);
    head.ends_with(143);
}
