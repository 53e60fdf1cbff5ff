//! The JSON of `status` and `explain` is what `docs/reference/status.md` says: scripts depend on it.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::Server;
use crate::launch::until;

/// Every field of a value, as a path.
pub(crate) fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                found.insert(path.clone());
                fields(value, &path, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fields(value, path, found)),
        _ => {}
    }
}

/// The fields in the tables of the page, below a heading.
fn documented(heading: &str) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/status.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
}

#[test]
fn the_fields_of_the_json_are_those_of_the_page() {
    let server = Server::ours();
    // Between them these runs have every field: a failure, a hang, an eviction, a missing node, a
    // closed run.
    let job = server.job("2");
    let options = ["--max-restarts", "1", "--hang-after", "1", "--progress", "beat"];
    let launch = |rank: &str| job.launch_with(&[&options[..], &["--node-rank", rank]].concat());
    let mut nodes = ["0", "1"].map(launch);
    let group = job.group(2);
    group.workers[1].tell("exit 3");
    let again = job.group_after(&group, 2);
    let mut found = BTreeSet::new();
    let mut look = || {
        let said = server.says(&["status", "job", "--json"]);
        fields(&serde_json::from_str(&said.stdout).unwrap(), "", &mut found);
    };
    until("the job hangs", || (!server.status()["hang"].is_null()).then_some(()));
    look();
    let id = server.status()["nodes"][1]["id"].as_str().unwrap().to_owned();
    let said = server.says(&["evict", "job", &id, "--reason", "why", "--yes"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    until("a node is missing", || {
        let missing = server.status()["missing"].as_array().unwrap().len();
        (missing > 0).then_some(())
    });
    look();
    assert!(!again.lives());
    let said = server.says(&["close", "job", "--reason", "why", "--yes"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    look();
    nodes[0].ended();
    assert_eq!(found, documented("JSON of status"));
    let said = server.says(&["explain", "job", "--json"]);
    let mut found = BTreeSet::new();
    fields(&serde_json::from_str(&said.stdout).unwrap(), "", &mut found);
    assert_eq!(found, documented("JSON of explain"));
}
