//! What the report says, to the letter.

use std::path::PathBuf;
use std::time::Duration;

use rallypoint_core::agent::{CloseReason, NodeError, PeersAtExit, RunClosure};

use super::*;
use crate::launch::workers::exit_record::{ErrorFileContent, WorkerEnd};

fn program(path: &str, arguments: &[&str]) -> Program {
    Program {
        path: path.into(),
        arguments: arguments.iter().map(Into::into).collect(),
        placeholders: false,
    }
}

fn failure(local_rank: u32, exit: Exit, message: Option<&str>) -> WorkerFailure {
    let message = message.map(str::to_owned);
    WorkerFailure { host: "node7".to_owned(), local_rank, rank: 4 + local_rank, exit, message }
}

fn result(outcome: NodeOutcome, failures: Vec<WorkerFailure>) -> RunResult {
    RunResult { exit_code: 1, outcome, failures }
}

fn record(local_rank: u32, error: Option<&str>, stderr: Option<&Path>) -> Arc<ExitRecord> {
    let words = |text: &str| ErrorFileContent {
        said: ErrorFile::parse(text).unwrap(),
        text: text.to_owned(),
    };
    let ended =
        WorkerEnd { at: UNIX_EPOCH + Duration::from_secs(1_700_000_000), error: error.map(words) };
    Arc::new(ExitRecord {
        pid: 100 + local_rank,
        stdout: None,
        stderr: stderr.map(Path::to_owned),
        error_file: Some(PathBuf::from(format!("/logs/{local_rank}/error.json"))),
        ended: ended.into(),
    })
}

const RECORD: &str = r#"{"message":{"message":"ValueError: no","extraInfo":{"py_callstack":"Traceback:\n  File x\n","timestamp":"1"}}}"#;

#[test]
fn the_root_cause_comes_first_then_further_failures_then_the_log() {
    let mut log = tempfile::NamedTempFile::new().unwrap();
    io::Write::write_all(&mut log, b"one\ntwo\n").unwrap();
    let root = failure(1, Exit::Code(3), Some("ValueError: no"));
    let closing = CloseReason::Failed(root.to_string());
    let result = result(
        NodeOutcome::WorkerFailed(closing),
        vec![root, failure(0, Exit::Signal(15), None), failure(2, Exit::Code(1), None)],
    );
    let exit_records = |rank| match rank {
        0 => Some(record(0, None, None)),
        1 => Some(record(1, Some(RECORD), Some(log.path()))),
        _ => None,
    };
    let report =
        FailureReport::new(&program("python3", &["-u", "train.py"]), &result, exit_records)
            .unwrap();
    let path = log.path().display();
    let expected = format!(
        "\
============================================================
train.py FAILED
the job failed: rank 5 (local rank 1 on node7) failed with exit code 3: ValueError: no
------------------------------------------------------------
Root cause (the first failure seen on this node):
  time       : 2023-11-14 22:13:20 UTC
  host       : node7
  rank       : 5 (local_rank: 1)
  exitcode   : 3 (pid: 101)
  error_file : /logs/1/error.json
  message    : ValueError: no
  traceback  : \n    Traceback:
      File x
------------------------------------------------------------
Other failures:
[1]
  time       : 2023-11-14 22:13:20 UTC
  host       : node7
  rank       : 4 (local_rank: 0)
  exitcode   : signal 15 (SIGTERM) (pid: 100)
  error_file : none
[2]
  host       : node7
  rank       : 6 (local_rank: 2)
  exitcode   : 1
  error_file : none
------------------------------------------------------------
The end of {path}:
  one
  two
============================================================
"
    );
    assert_eq!(report.text(), expected);
}

#[test]
fn the_log_is_what_the_worker_complained_of_or_else_what_it_said() {
    let root = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(root.path().join(name), text).unwrap();
        Some(root.path().join(name))
    };
    let record = |stdout, stderr| ExitRecord { stdout, stderr, ..ExitRecord::default() };
    let missing = || Some(root.path().join("missing"));
    for (record, expected) in [
        (record(file("a", "said\n"), file("b", "complained\n")), "/b:\n  complained\n"),
        (record(file("c", "said\n"), file("d", "")), "/c:\n  said\n"),
        (record(file("e", ""), file("f", "")), "/f is empty\n"),
        (record(None, missing()), "missing cannot be read: No such file"),
        (record(None, None), "--tee 3 keeps it"),
    ] {
        let mut text = String::new();
        LogTail::of(&record).describe(&mut text);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_run_that_another_node_closed_says_by_whom_and_why() {
    let reason =
        CloseReason::Failed("rank 9 (local rank 1 on node8) failed with signal 9".to_owned());
    let closed = RunClosure { by: "node8".to_owned(), reason };
    let result = result(NodeOutcome::RunFailed(closed), Vec::new());
    let report = FailureReport::new(&program("./train", &[]), &result, |_| None).unwrap();
    let text = report.text();
    let expected =
        "./train FAILED\nthe run was closed by node8: failed: rank 9 (local rank 1 on node8)";
    assert!(text.contains(expected) && !text.contains("Root cause"), "{text}");
}

#[test]
fn a_node_that_could_not_go_on_says_why() {
    let trouble = NodeError::NotStarted("there is no program".to_owned());
    let result = result(NodeOutcome::NodeFailed(trouble), Vec::new());
    let text = FailureReport::new(&program("./train", &[]), &result, |_| None).unwrap().text();
    assert!(text.contains("the workers could not be started: there is no program"), "{text}");
}

#[test]
fn there_is_none_without_a_failure() {
    for outcome in [NodeOutcome::Succeeded(PeersAtExit::Done), NodeOutcome::Signalled(15)] {
        let result = result(outcome, Vec::new());
        assert!(FailureReport::new(&program("true", &[]), &result, |_| None).is_none());
    }
}

#[test]
fn the_error_file_of_the_root_cause_is_passed_on_or_one_is_made() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("error.json");
    let left = |failures: Vec<WorkerFailure>, record: Option<Arc<ExitRecord>>| {
        let closed =
            RunClosure { by: "node8".to_owned(), reason: CloseReason::Failed("x".to_owned()) };
        let result = result(NodeOutcome::RunFailed(closed), failures);
        let report =
            FailureReport::new(&program("true", &[]), &result, |_| record.clone()).unwrap();
        report.leave_error_file(&path).unwrap();
        serde_json::from_str::<serde_json::Value>(&fs::read_to_string(&path).unwrap()).unwrap()
    };
    let passed_on =
        left(vec![failure(1, Exit::Code(3), None)], Some(record(1, Some(RECORD), None)));
    assert_eq!(passed_on["message"]["errorCode"], 3);
    assert_eq!(passed_on["message"]["message"], "ValueError: no");
    assert_eq!(passed_on["message"]["extraInfo"]["timestamp"], "1");
    let made = left(vec![failure(1, Exit::Signal(9), None)], Some(record(1, None, None)));
    let message = "rank 5 (local rank 1 on node7) failed with signal 9 (SIGKILL)";
    assert_eq!(made["message"]["message"], message);
    assert_eq!(made["message"]["errorCode"], -9);
    assert_eq!(made["message"]["extraInfo"]["timestamp"], "1700000000");
    let elsewhere = left(Vec::new(), None);
    assert_eq!(elsewhere["message"]["message"], "the run was closed by node8: failed: x");
    assert_eq!(elsewhere["message"]["errorCode"], 1);
}

#[test]
fn the_program_is_called_what_the_user_calls_it() {
    for (path, arguments, expected) in [
        ("python3", &["-u", "train.py", "-x"][..], "train.py"),
        ("/usr/bin/python3.11", &["-u", "-m", "pkg.train"], "pkg.train"),
        ("python3", &[], "python3"),
        ("./train.sh", &["train.py"], "./train.sh"),
    ] {
        assert_eq!(name(&program(path, arguments)), expected);
    }
}
