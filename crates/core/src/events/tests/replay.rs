//! A record leads to the same decisions again, and a changed one does not.

use std::error::Error;

use super::*;

fn replay(lines: &[String]) -> Result<Replayed, ReplayError> {
    let mut replay = Replay::default();
    lines.iter().try_for_each(|line| replay.line(line))?;
    Ok(replay.end())
}

#[test]
fn a_record_leads_to_the_same_decisions_again() {
    let lines = recorded();
    let replayed = replay(&lines).unwrap();
    assert_eq!((replayed.starts, replayed.inputs, replayed.cut_off), (2, 13, Vec::new()));
    let event = RunEvent::parse(&lines[7]).unwrap();
    assert_eq!(event.to_line(), lines[7], "a line is read back as it was written");
    // A process that was killed: its last line is cut off, and the next start goes on after it.
    let mut cut = lines.clone();
    cut[16].truncate(40);
    cut.truncate(17);
    assert_eq!(replay(&cut).unwrap().cut_off, [17]);
    cut.extend(super::lines(&node_text()));
    assert_eq!(replay(&cut).unwrap().cut_off, [17]);
}

#[test]
fn a_changed_record_is_refused_by_its_line() {
    let lines = recorded();
    let at = |kind: &str| {
        lines.iter().position(|line| line.contains(&format!("\"kind\":\"{kind}\""))).unwrap()
    };
    for (kind, before, after) in [
        ("worker_exited", "\"code\":7", "\"code\":8"),
        ("worker_exited", "out of memory", "nothing"),
        ("workers_stopping", "\"signal\":15", "\"signal\":9"),
        ("restart_requested", "\"kind\":\"restart_requested\"", "\"kind\":\"a_later_kind\""),
        ("joined", "\"round\":1", "\"round\":2"),
        ("session_opened", "\"ms\":2000", "\"ms\":2001"),
    ] {
        let mut changed = lines.clone();
        changed[at(kind)] = lines[at(kind)].replace(before, after);
        assert_ne!(changed, lines, "{kind}");
        let error = replay(&changed).unwrap_err();
        let ReplayError::Differs { line, .. } = &error else { panic!("{error}") };
        assert_eq!(*line as usize, at(kind) + 1, "{error}");
        assert!(error.to_string().contains(before.trim_matches('"')), "{error}");
    }
    // An input that leads to other decisions, and decisions that do not follow.
    let last_step = lines.iter().rposition(|line| line.contains("\"agent_step\"")).unwrap();
    for (before, after) in [("\"code\":7", "\"code\":0"), ("\"consume_restart\"", "\"consume\"")] {
        let mut changed = lines.clone();
        changed[last_step] = lines[last_step].replace(before, after);
        assert_ne!(changed, lines);
        let error = replay(&changed).unwrap_err().to_string();
        assert!(error.starts_with(&format!("line {} differs", last_step + 1)), "{error}");
    }
    let request = lines.iter().position(|line| line.contains("\"purpose\":\"open\"")).unwrap();
    let mut changed = lines.clone();
    changed[request] =
        lines[request].replace("\"min\":1", "\"min\":2").replace("\"txn\":\"", "\"txn\":\"0");
    let error = replay(&changed).unwrap_err().to_string();
    assert!(error.starts_with(&format!("line {} differs", request + 1)), "{error}");
}

#[test]
fn a_record_that_is_not_whole_is_refused() {
    let lines = recorded();
    let without = |gone: usize| [&lines[..gone], &lines[gone + 1..]].concat();
    let error = replay(&without(3)).unwrap_err().to_string();
    assert!(error.starts_with("line 4 is number 5 of node a, and number 4 is missing"), "{error}");
    let error = replay(&lines[1..]).unwrap_err().to_string();
    assert!(error.starts_with("line 1 is number 2 of node a, and number 1 is missing"), "{error}");
    let mut other = lines.clone();
    other[2] = "{".to_owned();
    let error = replay(&other).unwrap_err();
    assert_eq!(error.to_string(), "line 3 cannot be read");
    assert_eq!(error.source().unwrap().to_string(), "the line is no event");
    other[2] = lines[2].replace("\"format\":1", "\"format\":9");
    let error = replay(&other).unwrap_err();
    let source = error.source().unwrap().to_string();
    assert!(
        source.starts_with("the event has format 9, and this version reads format 1"),
        "{source}"
    );
    let event = lines[2].replace("\"seq\":3", "\"seq\":1");
    let error = replay(&[event]).unwrap_err().to_string();
    assert!(error.starts_with("line 1 is the first of node a, and no record"), "{error}");
    let step = lines[1].replace("\"seq\":2", "\"seq\":1");
    let error = replay(&[step]).unwrap_err().to_string();
    assert!(error.starts_with("line 1: there is no agent_began of node a"), "{error}");
}
