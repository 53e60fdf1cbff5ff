//! The pictures of the docs. `RALLYPOINT_SCREENSHOTS=1 cargo test --test it screenshots` rewrites them.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rallypoint::core::events::rfc3339;
use serde_json::json;

use super::Served;
use super::browser::Browser;
use super::documents::Documents;

/// A time some seconds ago, in milliseconds since 1970.
fn ago(seconds: u64) -> u64 {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    u64::try_from(then.duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn at(millis: u64) -> String {
    rfc3339(millis)
}

/// A job that has lost a node, was restarted, and has a node that may be dead.
fn job7() -> Documents {
    let id = |rank: usize| format!("gb200-{rank}-47{rank:02}-5c1e");
    let mut run = Documents::of("job7");
    let since = ago(2_530);
    run.active(4, "final", (6, 8), &json!({
        "world": 8, "rank0": id(0), "since": since, "previous": 3, "coordinator": { "id": id(0), "address": "10.1.0.1" },
        "reason": "workers failed on gb200-2: rank 17 exited with 1", "events": 14,
    }));
    for rank in 0..9 {
        run.node(&id(rank), &format!("gb200-{rank}"), rank);
    }
    (0..8).for_each(|rank| run.member(4, &id(rank), rank, 8));
    run.spare(&id(8));
    run.suspect(&id(5));
    let failure = json!({
        "round": 3, "verdict": "counted",
        "blame": "rank 17 on gb200-2 exited with 1: RuntimeError: CUDA error: uncorrectable ECC error encountered",
    });
    let evicted = json!({
        "operation": "evict", "node": "gb200-3-4703-77aa", "by": "ali@head", "reason": "ECC errors", "round": 1,
        "at": ago(7_260),
    });
    run.restarts(&json!({ "used": 1, "max": 3, "last": failure, "actions": [evicted] }));
    let others: Vec<usize> = (0..64).filter(|rank| *rank != 42).collect();
    let hosts: Vec<String> = (0..8).map(|host| format!("gb200-{host}")).collect();
    run.hang(&json!({
        "round": 4, "number": 1, "host": "gb200-3", "silent_ms": 600_000, "missing": [],
        "text": "no progress on gb200-3 for 600 s", "groups": [
            { "place": "load (data.py:88), in Queue.put (queue.py:140)", "count": 1, "ranks": [42],
              "hosts": ["gb200-5"], "first_step": 1199, "last_step": 1199, "frames": [
                "Condition.wait (/usr/lib/python3.12/threading.py:355)",
                "Queue.put (/usr/lib/python3.12/queue.py:140)",
                "load (/home/me/data.py:88)", "main (/home/me/train.py:31)",
            ] },
            { "place": "train_step (train.py:585), in all_reduce (distributed_c10d.py:2501)", "count": 63,
              "ranks": others, "hosts": hosts, "first_step": 1200, "last_step": 1200, "frames": [
                "all_reduce (/opt/torch/distributed/distributed_c10d.py:2501)",
                "train_step (/home/me/train.py:585)", "main (/home/me/train.py:31)",
            ] },
        ],
    }));
    let rounds = [
        (11_400, 4_200, 250, 8, "the run begins"),
        (7_250, 8_060, 60, 7, "a member of the group has left: gb200-3-4703-77aa"),
        (6_900, 1_400, 50, 8, "1 late node waits, and the group has room for it"),
        (2_530, 320, 20, 8, "workers failed on gb200-2: rank 17 exited with 1"),
    ];
    for (round, (begun, gather, confirm, size, why)) in (1..).zip(rounds) {
        let begun = ago(begun);
        let opened = json!({ "coordinator": id(0), "previous": round - 1, "why": why });
        run.event(&at(begun), round, "round_opened", &opened);
        let frozen = if size == 8 { "the group is full" } else { "the last call is over" };
        let frozen = json!({ "size": size, "rank0": id(0), "why": frozen });
        run.event(&at(begun + gather), round, "round_frozen", &frozen);
        let formed = json!({ "size": size, "rank0": id(0), "coordinator": id(0) });
        run.event(&at(begun + gather + confirm), round, "round_final", &formed);
        match round {
            1 => {
                let lost = json!({ "count": 1, "nodes": ["gb200-3-4703-77aa"], "why": "gb200-3-4703-77aa: it has left" });
                run.event(&at(ago(7_251)), round, "members_lost", &lost);
            }
            2 => run.event(&at(ago(6_901)), round, "nodes_waiting", &json!({ "count": 1 })),
            _ => {}
        }
    }
    run
}

/// A job of which two nodes have not come.
fn job9() -> Documents {
    let mut run = Documents::of("job9");
    let coordinator = json!({ "id": "gpu0-4711-02ce", "address": "10.1.0.1" });
    run.active(1, "joinable", (4, 4), &json!({ "since": ago(723), "coordinator": coordinator }));
    let opened = json!({ "coordinator": "gpu0-4711-02ce", "previous": 0, "why": "the run begins" });
    run.event(&at(ago(723)), 1, "round_opened", &opened);
    for rank in [0, 2] {
        let id = format!("gpu{rank}-4711-02ce");
        run.node_with_rank(&id, &format!("gpu{rank}"), rank, Some(rank));
        run.joined(1, &id, Some(rank));
    }
    run
}

/// 4,096 nodes, of which some are lost.
fn llama() -> Documents {
    let mut run = Documents::of("llama-70b");
    let coordinator = json!({ "id": "gb200-0000-4700", "address": "10.1.0.1" });
    let lost = ["gb200-0077-4700", "gb200-0078-4700", "gb200-1500-4700"];
    let since = ago(10_800);
    run.active(3, "final", (4000, 4096), &json!({
        "world": 4096, "rank0": "gb200-0000-4700", "since": since, "coordinator": coordinator,
        "reason": "a member of the group is lost", "lost": 3, "lost_names": lost,
        "lost_because": ["its lease has expired", "its lease has expired", "its lease has expired"],
    }));
    run.restarts(&json!({ "used": 1, "max": 5 }));
    for rank in 0..4096 {
        let id = format!("gb200-{rank:04}-4700");
        if !lost.contains(&id.as_str()) {
            run.node(&id, &format!("gb200-{rank:04}"), rank);
        }
        run.member(3, &id, rank, 4096);
    }
    run.suspect("gb200-1033-4700");
    for number in 4096..4112 {
        let id = format!("gb200-{number}-4700");
        run.node(&id, &format!("gb200-{number}"), number);
        run.spare(&id);
    }
    run
}

fn eval() -> Documents {
    let mut run = Documents::of("eval");
    let closed = json!({ "since": ago(86_000), "outcome": "succeeded", "reason": "all workers have finished" });
    run.active(1, "closed", (1, 1), &closed);
    run.restarts(&json!({ "used": 0, "max": 3 }));
    run
}

#[test]
fn screenshots_are_written_if_they_are_asked_for() {
    if std::env::var_os("RALLYPOINT_SCREENSHOTS").is_none() {
        return;
    }
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    std::fs::create_dir_all(&images).unwrap();
    let served = Served::start();
    for run in [job7(), job9(), llama(), eval()] {
        run.write(&served.endpoint());
    }
    let mut browser = Browser::start();
    let rounds = "document.querySelectorAll('.round').length === 4";
    let cells = "document.querySelectorAll('.board .cell').length === 4112";
    // Each with its height, and what it is scrolled to.
    let views = [
        ("runs", 430, "", "h1", "document.querySelectorAll('tbody tr').length === 4"),
        ("run", 1200, "#/run/job7", "h1", rounds),
        ("timeline", 760, "#/run/job7", "#s-timeline", rounds),
        ("waiting", 780, "#/run/job9", "h1", "document.querySelectorAll('.round').length === 1"),
        ("board", 1280, "#/run/llama-70b", "#s-nodes", cells),
        ("node", 640, "#/run/job7/node/gb200-0-4700-5c1e", "h1", "document.querySelector('.turn')"),
    ];
    for (dark, scheme) in [(false, "light"), (true, "dark")] {
        for (name, height, fragment, top, ready) in views {
            browser.look(1180, height, dark);
            browser.open(&served.url(fragment));
            browser.until(name, ready);
            if top != "h1" {
                browser.js(&format!("document.querySelector('{top}').scrollIntoView()"));
            }
            let path = images.join(format!("page-{name}-{scheme}.png"));
            browser.screenshot(&path);
            let size = std::fs::metadata(&path).unwrap().len();
            assert!(size < 150 << 10, "{} has {size} bytes", path.display());
        }
    }
}
