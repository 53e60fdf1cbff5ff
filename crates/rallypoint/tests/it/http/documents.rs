//! The page of metrics in the book lists what is exported, and nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use super::{get, told_address};
use crate::launch::{Job, until};

fn document(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
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
    let job = Job::new(&["--standalone", "--max-restarts", "1", "--http", "127.0.0.1:0"]);
    let mut launcher = job.launch();
    let group = job.group(1);
    let address = until("the address", || told_address(&launcher.stderr()));
    let exported = exported(&get(&address, "/metrics").body);
    group.workers[0].tell("exit 0");
    launcher.ends_with(0);
    let listed = listed();
    let missing: Vec<_> = exported.difference(&listed).collect();
    assert!(missing.is_empty(), "not in docs/reference/metrics.md: {missing:?}");
    let superfluous: Vec<_> = listed.difference(&exported).collect();
    assert!(superfluous.is_empty(), "not exported: {superfluous:?}");
}
