use std::sync::{Arc, mpsc};

use rallypoint_core::agent::stacks::{Frame, OddNode, WorkerStack};
use rallypoint_core::rendezvous::documents::Address;

use super::super::console::Console;
use super::*;
use crate::store::HashStore;

fn stacks(host: &str, rank: u32, line: u32) -> NodeStacks {
    let frames = vec![Frame { function: "f".into(), file: "a.py".into(), line }];
    NodeStacks {
        host: host.into(),
        node: host.into(),
        workers: vec![WorkerStack { rank, step: None, frames, note: None }],
    }
}

/// Of four nodes, one answers, one answers nonsense, and one is silent.
#[tokio::test]
async fn the_report_has_the_answers_and_names_who_is_missing() {
    let store = HashStore::default();
    let key = |rank| stacks_key(2, rank);
    store.set(key(1).as_bytes(), stacks("h1", 1, 7).encode().into()).await.unwrap();
    store.set(key(2).as_bytes(), "nonsense".into()).await.unwrap();
    let group = NodeGroup {
        round: 4,
        rank: 0,
        nodes: 4,
        restarts: 0,
        store: Address { host: "h0".into(), port: 1 },
    };
    let request = HangRequest { round: 4, number: 2, host: "h0".into(), millis: 1000, since: None };
    let deadline = Instant::now() + Duration::from_secs(1);
    let (report, odd) = gather(stacks("h0", 0, 7), &group, &store, &request, deadline).await;
    assert_eq!(odd.reason, "2 of the group's nodes did not answer");
    let report = report.to_string();
    assert!(report.contains("2 ranks are in f (a.py:7)"), "{report}");
    assert!(report.contains("no answer from the nodes with the ranks 2-3"), "{report}");
}

/// A look that waits for a file system holds the signs. The next one is no second thread that waits, and no hang.
#[tokio::test]
async fn signs_that_cannot_be_read_are_those_that_were_known() {
    let signs = Arc::new(Mutex::new(ProgressSigns::default()));
    let known = Some(std::time::Instant::now());
    assert_eq!(latest_sign(signs.clone(), true, known).await, None);
    let ((locked, is_locked), (done, is_done)) = (mpsc::channel(), mpsc::channel::<()>());
    let held = signs.clone();
    let stuck = std::thread::spawn(move || {
        let _held = held.lock().unwrap();
        locked.send(()).unwrap();
        is_done.recv().unwrap_err();
    });
    is_locked.recv().unwrap();
    assert_eq!(latest_sign(signs.clone(), true, known).await, known);
    assert_eq!(steps(signs.clone()).await, []);
    drop(done);
    stuck.join().unwrap();
}

fn said(odd: &OddNodes, on_hang: Option<OnHang>) -> String {
    let (console, _, error) = Console::shown(false);
    let console = Arc::new(console);
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(console.clone()).finish();
    tracing::subscriber::with_default(log, || log_odd(odd, on_hang, "job7"));
    console.flush();
    error.text()
}

#[test]
fn the_odd_node_is_named_with_what_helps_and_only_with_options_of_the_launcher() {
    let nodes = vec![OddNode { id: "gpu5-1-a".into(), host: "gpu5".into() }];
    let odd = OddNodes { nodes, reason: "3 of 4 ranks are elsewhere".into() };
    let named = "the odd node is gpu5: 3 of 4 ranks are elsewhere";
    let evict = "; `rallypoint evict job7 gpu5-1-a` lets the job go on without it";
    let more = ", and --on-hang restart does so by itself";
    for (on_hang, expected) in [
        (None, format!("{named}{evict}\n")),
        (Some(OnHang::Report), format!("{named}{evict}{more}\n")),
        (Some(OnHang::Restart { min_nodes: 1 }), format!("{named}\n")),
    ] {
        let said = said(&odd, on_hang);
        assert!(said.ends_with(&expected) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_hang_without_an_odd_node_says_why() {
    let reason = "all ranks are at the same place".to_owned();
    let said = said(&OddNodes { nodes: Vec::new(), reason }, None);
    let words =
        "no node is to blame, and the job stays as it is: all ranks are at the same place\n";
    assert!(said.ends_with(words) && said.lines().count() == 1, "{said}");
}
