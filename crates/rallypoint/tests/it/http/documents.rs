//! The page of metrics in the book, the alerts and the dashboard: they name what is exported.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{get, promtool, told_address};
use crate::launch::{Job, free_endpoint, until};
use crate::support::process::Directory;

/// A file of the documents.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn document(name: &str) -> String {
    let docs = path(name);
    std::fs::read_to_string(&docs).unwrap_or_else(|error| panic!("{}: {error}", docs.display()))
}

/// The families of a page of metrics, with their kinds.
fn exported(page: &str) -> BTreeSet<(String, String)> {
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let words = families.map(|family| family.split_once(' ').unwrap());
    words.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// The rows of the tables of the page of metrics: a name and a kind.
fn listed() -> BTreeSet<(String, String)> {
    let page = document("reference/metrics.md");
    let mut names = BTreeSet::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, kind, ..] = cells[..] else { continue };
        // A row of another table has a path.
        if let Some(name) = name.strip_prefix('`').filter(|name| !name.starts_with('/')) {
            let name = name.split(['`', '{']).next().unwrap();
            assert!(names.insert((name.to_owned(), kind.to_owned())), "{name} is there twice");
        }
    }
    names
}

#[test]
fn every_metric_is_in_the_book_and_every_metric_of_the_book_is_exported() {
    // A launcher that embeds the server tells all of them.
    let job = Job::with_conf(&free_endpoint(), "1", "lease_ttl=3,last_call_timeout=1");
    let options = ["--max-restarts", "1", "--http", "127.0.0.1:0", "--hang-after", "600"];
    let mut launcher = job.launch_with(&options);
    let group = job.group(1);
    let address = until("the address", || told_address(&launcher.stderr()));
    // Series that begin with their first event: an exit, and the margin of the lease.
    group.workers[0].tell("exit 7");
    let group = job.group_after(&group, 1);
    let page = until("the lease is renewed", || {
        let page = get(&address, "/metrics").body;
        page.contains("rallypoint_lease_margin_seconds").then_some(page)
    });
    let mut said = promtool(&["check", "metrics"], &page);
    said.retain(|line| !line.starts_with("etcd_"));
    assert_eq!(said, Vec::<String>::new());
    let exported = exported(&page);
    group.workers[0].tell("exit 0");
    launcher.ends_with(0);
    let listed = listed();
    let missing: Vec<_> = exported.difference(&listed).collect();
    assert!(missing.is_empty(), "not in docs/reference/metrics.md: {missing:?}");
    let superfluous: Vec<_> = listed.difference(&exported).collect();
    assert!(superfluous.is_empty(), "not exported: {superfluous:?}");
}

/// Every expression of the dashboard, for all runs.
pub fn dashboard() -> Vec<String> {
    let dashboard: serde_json::Value = serde_json::from_str(&document("grafana.json")).unwrap();
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    found
}

fn expressions(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if name == "expr" => found.push(text.replace("$run", ".*")),
                    _ => expressions(value, found),
                }
            }
        }
        serde_json::Value::Array(values) => {
            values.iter().for_each(|value| expressions(value, found));
        }
        _ => {}
    }
}

/// The metrics that a text names, in the way of PromQL.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let of_ours = ["rallypoint_", "etcd_", "grpc_server_", "process_"];
    let names = words.filter(|word| of_ours.iter().any(|start| word.starts_with(start)));
    names
        .map(|name| {
            let ends = ["_bucket", "_sum", "_count"];
            ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name).to_owned()
        })
        .collect()
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_exist_and_the_alerts_pass_their_tests() {
    let found = dashboard();
    assert!(found.len() > 10, "{found:?}");
    let rules = found.iter().enumerate().map(|(number, expression)| {
        format!("  - record: it:{number}\n    expr: {}\n", serde_json::json!(expression))
    });
    let rules = format!("groups:\n- name: it\n  rules:\n{}", rules.collect::<String>());
    let directory = Directory::new();
    let file = directory.path().join("rules.yml");
    std::fs::write(&file, rules).unwrap();
    assert_eq!(promtool(&["check", "rules", file.to_str().unwrap()], ""), Vec::<String>::new());
    let alerts = document("prometheus/rules.yml");
    let path = path("prometheus/rules.yml");
    assert_eq!(promtool(&["check", "rules", path.to_str().unwrap()], ""), Vec::<String>::new());
    let tests = path.with_file_name("tests.yml");
    assert_eq!(promtool(&["test", "rules", tests.to_str().unwrap()], ""), Vec::<String>::new());
    // Each alert is expected there, and expected not to fire.
    let tested = document("prometheus/tests.yml");
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let cases: Vec<&str> =
            tested.split("- eval_time: ").filter(|case| case.contains(alert)).collect();
        let silent = cases.iter().filter(|case| case.contains("exp_alerts: []")).count();
        assert!(
            0 < silent && silent < cases.len(),
            "docs/prometheus/tests.yml lacks cases of {alert}"
        );
    }
    let listed: BTreeSet<String> = listed().into_iter().map(|(name, _)| name).collect();
    let alerts: Vec<&str> = alerts.lines().filter(|line| !line.contains("description")).collect();
    for text in found.iter().map(String::as_str).chain(alerts) {
        for name in named(text) {
            assert!(listed.contains(&name), "{name}, in {text}, is not exported");
        }
    }
}
