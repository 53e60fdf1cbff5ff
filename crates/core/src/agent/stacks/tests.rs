use super::*;
use crate::agent::hang::HangRequest;

fn frame(function: &str, file: &str, line: u32) -> Frame {
    Frame { function: function.into(), file: file.into(), line }
}

fn worker(rank: u32, frames: &[Frame]) -> WorkerStack {
    WorkerStack { rank, step: None, frames: frames.to_vec(), note: None }
}

fn training(rank: u32) -> WorkerStack {
    worker(rank, &[frame("train_step", "/job/train.py", 585), frame("main", "/job/train.py", 9)])
}

fn node(host: &str, workers: impl IntoIterator<Item = WorkerStack>) -> NodeStacks {
    NodeStacks { host: host.into(), node: String::new(), workers: workers.into_iter().collect() }
}

fn report(nodes: &[NodeStacks], missing: &[u32]) -> HangReport {
    let request =
        HangRequest { round: 1, number: 1, host: "h1".into(), millis: 9_960, since: None };
    HangReport::new(&request, nodes, missing)
}

const QUEUE: &str = "/usr/lib/python3.11/queue.py";

#[test]
fn a_place_is_the_innermost_call_of_the_users_own_code() {
    let own = || frame("load", "/home/me/data.py", 88);
    let put = || frame("Queue.put", QUEUE, 140);
    let wait = || frame("Condition.wait", "/usr/lib/python3.11/threading.py", 327);
    let reduce = || {
        let file = "/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py";
        frame("all_reduce", file, 2501)
    };
    for (frames, expected) in [
        (vec![own()], "load (data.py:88)"),
        (vec![own(), put()], "load (data.py:88)"),
        (vec![put(), own()], "load (data.py:88), in Queue.put (queue.py:140)"),
        (vec![wait(), put(), own()], "load (data.py:88), in Queue.put (queue.py:140)"),
        (
            vec![reduce(), own(), frame("main", "/home/me/train.py", 1)],
            "load (data.py:88), in all_reduce (distributed_c10d.py:2501)",
        ),
        (vec![wait(), put()], "Condition.wait (threading.py:327)"),
        (vec![frame("hrtimer_nanosleep", "sleep", 0)], "hrtimer_nanosleep (sleep)"),
        (
            vec![frame("x", "<frozen importlib>", 1), own()],
            "load (data.py:88), in x (<frozen importlib>:1)",
        ),
    ] {
        assert_eq!(worker(0, &frames).place(), expected);
    }
    let exited = WorkerStack { note: Some("no process any more".into()), ..worker(0, &[]) };
    assert_eq!(exited.place(), "no process any more");
    assert_eq!(worker(0, &[]).place(), "an unknown place");
}

#[test]
fn the_odd_rank_comes_first_with_its_host_and_line() {
    let odd = worker(7, &[frame("Queue.put", QUEUE, 140), frame("load", "/job/data.py", 88)]);
    let odd = WorkerStack { step: Some(1199), ..odd };
    let others = |ranks: std::ops::Range<u32>| {
        ranks.map(|rank| WorkerStack { step: Some(1200), ..training(rank) })
    };
    let nodes = [
        node("h1", others(0..4)),
        node("h2", others(4..7).chain([odd])),
        node("h3", others(8..12)),
        node("h4", others(12..16)),
    ];
    let text = report(&nodes, &[]).to_string();
    let expected = "\
no progress on h1 for 10 s: rank 7 on h2 is in load (data.py:88), in Queue.put (queue.py:140); \
15 ranks are in train_step (train.py:585)
  rank 7 on h2: load (data.py:88), in Queue.put (queue.py:140); step 1199
  ranks 0-6, 8-15 on h1, h2, h3, h4: train_step (train.py:585); step 1200
  stack of rank 7 on h2:
    Queue.put (/usr/lib/python3.11/queue.py:140)
    load (/job/data.py:88)
  stack of rank 0 on h1:
    train_step (/job/train.py:585)
    main (/job/train.py:9)";
    assert_eq!(text, expected);
}

#[test]
fn what_is_not_known_is_said() {
    let text = report(&[node("h1", [training(0)])], &[1, 2, 5]).to_string();
    assert!(text.contains("rank 0 on h1 is in train_step (train.py:585); 3 of the"), "{text}");
    assert!(text.contains("no answer from the nodes with the ranks 1-2, 5"), "{text}");
    let note = Some("py-spy: Permission denied".to_owned());
    let kernel = worker(1, &[frame("futex_wait", "python3", 0)]);
    let text = report(&[node("h1", [WorkerStack { note, ..kernel }])], &[]).to_string();
    assert!(text.contains("\n    (py-spy: Permission denied)"), "{text}");
    assert_eq!(report(&[], &[]).headline(), "no progress on h1 for 10 s: ");
}

#[test]
fn a_node_describes_its_own_workers() {
    let text = node("h1", [training(4), training(5)]).describe();
    assert!(
        text.starts_with("ranks 4-5 on h1: train_step (train.py:585)\n  stack of rank 4"),
        "{text}"
    );
}

#[test]
fn a_report_is_bounded_whatever_the_workers_do() {
    let workers = (0..1000).map(|rank| {
        let frame = frame(&format!("f{rank}"), &"x/".repeat(200), rank);
        worker(rank, &vec![frame; 20])
    });
    let nodes: Vec<NodeStacks> = workers
        .map(|worker| NodeStacks::decode(node("h", [worker]).encode().as_bytes()).unwrap())
        .collect();
    let text = report(&nodes, &[]).to_string();
    assert!(text.len() < 32 << 10, "{}", text.len());
    assert!(text.contains("984 ranks in 984 other places"), "{text}");
    let everywhere = report(&[node("h", (0..999).step_by(2).map(training))], &[]).to_string();
    assert!(everywhere.contains("ranks 0, 2, 4, 6, 8, 10, 12, 14, … on h: "), "{everywhere}");
}

#[test]
fn a_document_is_bounded_and_read_back() {
    let small = node("h1", [training(0)]);
    assert_eq!(NodeStacks::decode(small.encode().as_bytes()), Some(small));
    let large =
        node("h", (0..128).map(|rank| worker(rank, &vec![frame(&"f".repeat(200), QUEUE, 1); 99])));
    let text = large.encode();
    assert!(text.len() <= LARGEST, "{}", text.len());
    let read = NodeStacks::decode(text.as_bytes()).unwrap();
    assert_eq!(read.workers.len(), 128);
    assert_eq!(NodeStacks::decode(b"[1]"), None);
}

/// Imports within imports: the program itself is far out.
#[test]
fn the_place_of_a_worker_is_never_cut_off() {
    let library = |line| frame("_find_and_load", "<frozen importlib._bootstrap>", line);
    for depth in [1, 2, 14, 15, 16, 17, 40] {
        let mut frames: Vec<Frame> = (0..depth).map(library).collect();
        frames.extend([frame("<module>", "/job/train.py", 2), frame("main", "/job/main.py", 1)]);
        let deep = worker(0, &frames);
        for most in [16, 8, 2] {
            let cut = node("h", [deep.clone()]).plain(most);
            assert_eq!(cut.workers[0].place(), deep.place(), "{depth} {most}");
            assert!(cut.workers[0].frames.len() <= most);
        }
    }
}

#[test]
fn what_a_terminal_would_interpret_is_escaped() {
    let evil = frame("\x1b[2J\u{202e}put\n", "/a\u{7}/data.py", 88);
    let stacks = node("h\r2", [WorkerStack { note: Some("\x1b".into()), ..worker(0, &[evil]) }]);
    let read = NodeStacks::decode(serde_json::to_string(&stacks).unwrap().as_bytes()).unwrap();
    let text = report(&[read], &[]).to_string();
    assert!(text.contains(r"rank 0 on h\r2 is in \u{1b}[2J\u{202e}put\n (data.py:88)"), "{text}");
    assert!(text.lines().all(|line| !line.contains(char::is_control)), "{text:?}");
}

#[test]
fn a_name_is_bounded_once() {
    for text in ["a".repeat(500), "\u{7}".repeat(500), "ä\n\"'\\".repeat(100), "short".into()] {
        for bound in [plain, plain_end] {
            let once = bound(&text);
            assert!(once.chars().count() <= LONGEST_NAME + 1, "{once}");
            assert_eq!(bound(&once), once);
        }
    }
}
