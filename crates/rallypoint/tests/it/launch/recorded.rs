//! Launchers that record their events, and the proof that what they recorded is what they decided.

use std::process::{Command, Output};

use rallypoint::core::events::{EventBody, RunEvent};
use serde_json::Value;

use super::Job;
use super::launcher::Line;

impl Job {
    /// The file of the events of a launcher that was [`recorded`](Self::recorded).
    pub fn events_of(&self, launcher: usize) -> String {
        self.file(&format!("events-{launcher}.jsonl"))
    }

    /// The next launcher, not started yet, with a file of its events.
    pub fn recorded(&self) -> Line {
        let line = self.launcher();
        let file = self.events_of(line.number);
        line.with(&["--events", &file, "--records"])
    }

    /// Decides again what each of the first launchers recorded. Those that ended by themselves recorded everything;
    /// of the others, a last line may be cut off, or all of them if they had not begun.
    pub fn replays(&self, launchers: usize, finished: impl Fn(usize) -> bool) {
        for launcher in 0..launchers {
            let path = self.events_of(launcher);
            let Ok(text) = std::fs::read(&path) else {
                assert!(!finished(launcher), "launcher {launcher} has no events");
                continue;
            };
            let said = replays(&path);
            let cut_off = !text.is_empty() && !text.ends_with(b"\n");
            assert!(cut_off || !said.contains("is cut off"), "{said}");
            if finished(launcher) {
                let last = read(&path).pop().map(|event| event.body);
                assert!(!cut_off && last.is_some(), "launcher {launcher}: {last:?}");
            }
        }
    }
}

/// The events of a file, which is whole.
pub fn read(path: &str) -> Vec<RunEvent> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| RunEvent::parse(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

/// `rallypoint replay`.
pub fn replay(path: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rallypoint")).args(["replay", path]).output().unwrap()
}

/// The same, which finds no difference. Returns what it says.
#[track_caller]
pub fn replays(path: &str) -> String {
    let Output { status, stdout, stderr } = replay(path);
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// The numbers of the lines of records that have decisions.
pub fn decisions(lines: &[String]) -> Vec<usize> {
    let has_decided = |line: &String| match RunEvent::parse(line).map(|event| event.body) {
        Ok(EventBody::AgentStep { outputs, .. } | EventBody::NodeStep { outputs, .. }) => {
            !outputs.is_empty()
        }
        _ => false,
    };
    (1..).zip(lines).filter(|(_, line)| has_decided(line)).map(|(number, _)| number).collect()
}

/// A record without the last of its decisions.
pub fn without_last_decision(line: &str) -> String {
    let mut record: Value = serde_json::from_str(line).unwrap();
    record["outputs"].as_array_mut().unwrap().pop().unwrap();
    record.to_string()
}
