//! `rallypoint bench`: that it measures, not what.

use std::process::Command;

use crate::support::process::own_temporary_files;

/// The objects that a benchmark prints.
fn bench(words: &[&str]) -> Vec<serde_json::Value> {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_rallypoint"));
    bench.arg("bench").args(words);
    let output = own_temporary_files(&mut bench).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = output.stdout.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[test]
fn a_group_that_is_observed_is_compared_with_one_that_is_not() {
    let words = ["rendezvous", "--nodes", "3", "--observed", "--idle", "2", "--scrape", "1"];
    let printed = bench(&words);
    let (formings, turns) = printed.split_at(3);
    let kinds = |objects: &[serde_json::Value]| -> Vec<String> {
        objects.iter().filter_map(|one| one["observed"].as_str()).map(str::to_owned).collect()
    };
    assert_eq!(kinds(formings), ["off", "on", "records"]);
    for forming in formings {
        assert!(forming["forming_seconds"][0].as_f64() > Some(0.0), "{forming}");
        assert!(forming["forming_nodes"][0].as_f64() > Some(0.0), "{forming}");
    }
    assert_eq!(kinds(turns), ["off", "on", "records", "records", "on", "off"]);
    for turn in turns {
        assert!(turn["idle"]["nodes"].as_f64() > Some(0.0), "{turn}");
        assert_eq!(turn["idle"]["revisions"], 0.0, "an idle group writes nothing: {turn}");
        assert_eq!(turn["idle"]["calls"], 0.0, "an idle group asks for nothing: {turn}");
    }
}

#[test]
fn a_group_whose_hosts_may_succeed_each_other_is_compared_with_one_that_has_one_host() {
    let words = ["rendezvous", "--nodes", "4", "--rounds", "2", "--succession", "--idle", "2"];
    let printed = bench(&words);
    let of_phase = |phase: &str| -> Vec<bool> {
        let of_it = printed.iter().filter(|one| one["phase"] == phase);
        of_it.filter_map(|one| one["succession"].as_bool()).collect()
    };
    assert_eq!(of_phase("forming"), [false, true, true, false]);
    assert_eq!(of_phase("idle"), [false, true, true, false]);
    for usage in &printed {
        assert!(usage["seconds"].as_f64() > Some(0.0), "{usage}");
        assert!(usage["processor"].as_f64() > Some(0.0), "{usage}");
    }
    for forming in printed.iter().filter(|one| one["phase"] == "forming") {
        assert!(forming["requests"].as_f64() > Some(0.0), "{forming}");
    }
}

#[test]
fn a_store_is_measured() {
    let rows = bench(&["store", "--calls", "2", "--json"]);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["what"].as_str()).collect();
    assert_eq!(
        names,
        [
            "set",
            "get, 10 keys",
            "get, 1000 keys",
            "get, set by another",
            "add, 1 at once",
            "add, 32 at once",
            "add, 128 at once"
        ]
    );
    assert!(rows.iter().all(|row| row["median_us"].as_f64() > Some(0.0)), "{rows:?}");
}

#[test]
fn an_idle_group_renews_its_leases_and_does_nothing_else() {
    let words =
        ["rendezvous", "--nodes", "3", "--idle", "4", "--lease-ttl", "3", "--stores", "--json"];
    let lines = bench(&words);
    assert_eq!(lines[0]["nodes"], 3, "{lines:?}");
    // Three nodes renew leases of three seconds once a second. A busy machine may renew them late, or idle for longer.
    let requests = lines[1]["requests"].as_u64().unwrap();
    let seconds = lines[1]["idle_seconds"].as_f64().unwrap();
    assert!(seconds >= 4.0, "{lines:?}");
    assert!(requests >= 3, "each node renews its lease: {lines:?}");
    assert!(requests as f64 <= 3.0 * (seconds + 1.0), "they do nothing else: {lines:?}");
    assert!(lines[1]["bytes"].as_u64() > Some(0), "{lines:?}");
}

#[test]
fn a_group_of_any_size_is_formed_without_a_network() {
    let phases = bench(&["scale", "--nodes", "300", "--json"]);
    let names: Vec<&str> = phases.iter().filter_map(|phase| phase["phase"].as_str()).collect();
    assert_eq!(names, ["open", "round 1", "round 2", "idle"]);
    for phase in phases.iter().filter(|phase| phase["phase"] != "open") {
        // A node asks a constant number of times, and the coordinator's share is small.
        let requests = phase["requests"].as_u64().unwrap();
        assert!((300..=1200).contains(&requests), "{phase}");
        assert!(phase["server_seconds"].as_f64() > Some(0.0), "{phase}");
    }
}
