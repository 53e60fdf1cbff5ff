//! The status of runs as text. Every name and every reason was written by another host, so control characters are
//! escaped: they could change what a terminal shows.

use std::time::Duration;

use rallypoint_core::rendezvous::documents::DisplayTime;
use rallypoint_core::status::{NodeState, NodeStatus, RunStatus, Sentence, Topic, age};

/// The text with control characters, and characters that reorder a line, as escapes.
pub(super) fn printable(text: &str) -> String {
    let hidden = |letter: char| {
        letter.is_control()
            || ('\u{200b}'..='\u{200f}').contains(&letter)
            || ('\u{2028}'..='\u{202e}').contains(&letter)
            || ('\u{2060}'..='\u{206f}').contains(&letter)
            || letter == '\u{feff}'
    };
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match hidden(letter) {
            true => shown.extend(letter.escape_unicode()),
            false => shown.push(letter),
        }
    }
    shown
}

/// Columns of equal width, the last as wide as it is.
fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// One line for each run.
pub(super) fn runs(runs: &[RunStatus], now: DisplayTime) -> String {
    if runs.is_empty() {
        return "this server has no runs\n".to_owned();
    }
    let titles = ["RUN", "STATE", "NODES", "ROUND", "RESTARTS", "SINCE", "REASON"];
    let line = |run: &RunStatus| {
        let state = run.state.word().to_owned();
        let (nodes, round, restarts) = (nodes(run), run.round.to_string(), restarts(run));
        vec![run.run.clone(), state, nodes, round, restarts, since(run, now), run.reason.clone()]
    };
    let lines: Vec<Vec<String>> =
        std::iter::once(words(&titles)).chain(runs.iter().map(line)).collect();
    table(&lines)
}

/// One run, with a line for each node, and for each node that is missing.
pub(super) fn run(run: &RunStatus, now: DisplayTime) -> String {
    let mut text =
        format!("run {}: {}, {}\n", printable(&run.run), run.state.word(), printable(&run.reason));
    text += &format!(
        "nodes {}, round {}, restarts left {}, since {}\n",
        nodes(run),
        run.round,
        restarts(run),
        since(run, now)
    );
    let titles =
        ["RANK", "STATE", "NODE", "HOST", "ADDRESS", "WORKERS", "LEASE", "JOINED", "UP", "NOTE"];
    let mut lines = vec![words(&titles)];
    lines.extend(run.nodes.iter().map(|one| node(one, now)));
    let absent = run.missing.iter().filter(|missing| missing.id.is_none());
    let row = |rank: String, note: String| -> Vec<String> {
        let dashes = std::iter::repeat_n("-".to_owned(), titles.len() - 3);
        [rank, "missing".to_owned()].into_iter().chain(dashes).chain([note]).collect()
    };
    let known: Vec<Vec<String>> =
        absent.map(|missing| row(optional(missing.rank), missing.why.clone())).collect();
    let more = run.counts.needed.saturating_sub(known.len());
    lines.extend(known);
    if more > 0 {
        lines.push(row("-".to_owned(), format!("{more} more needed")));
    }
    if lines.len() > 1 {
        text += &table(&lines);
    }
    for problem in &run.problems {
        text += &format!("trouble: {}\n", printable(problem));
    }
    text
}

fn node(node: &NodeStatus, now: DisplayTime) -> Vec<String> {
    let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let workers = match node.state {
        NodeState::Lost => "-".to_owned(),
        _ => node.workers.to_string(),
    };
    vec![
        optional(node.rank),
        node.state.word().to_owned(),
        node.id.clone(),
        dash(&node.host),
        dash(&node.address),
        workers,
        optional(node.lease.map(|lease| format!("{}/{} s", lease.left_s, lease.ttl_s))),
        optional(node.joined.map(|joined| age(now.elapsed_since(joined)))),
        optional(node.started.map(|started| age(now.elapsed_since(started)))),
        node.note.clone(),
    ]
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// `7/8`, or `3/2:4` if the size may vary, the planned nodes while some of them are missing, and the spare nodes.
fn nodes(run: &RunStatus) -> String {
    let counts = run.counts;
    let wanted = match counts.limits() {
        None => return optional((!run.nodes.is_empty()).then_some(run.nodes.len())),
        Some(limits) if limits.min == limits.max => limits.max.to_string(),
        Some(limits) => limits.to_string(),
    };
    let planned = run.sizes.planned.filter(|planned| counts.present < *planned);
    let planned = planned.map(|planned| format!(" ({planned} planned)")).unwrap_or_default();
    let spare = if counts.spare > 0 { format!(" +{} spare", counts.spare) } else { String::new() };
    format!("{}/{wanted}{planned}{spare}", counts.present)
}

fn restarts(run: &RunStatus) -> String {
    match (run.restarts.left, run.restarts.max) {
        (Some(left), Some(max)) => format!("{left}/{max}"),
        _ => "-".to_owned(),
    }
}

fn since(run: &RunStatus, now: DisplayTime) -> String {
    let elapsed = |since: DisplayTime| -> Duration { now.elapsed_since(since) };
    optional(run.since.map(|since| age(elapsed(since))))
}

/// One line for each sentence; remedies are marked.
pub(super) fn sentences(sentences: &[Sentence]) -> String {
    let line = |sentence: &Sentence| {
        let text = printable(&sentence.text);
        match sentence.topic {
            Topic::Remedy => format!("What helps: {text}\n"),
            _ => format!("{text}\n"),
        }
    };
    sentences.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_other_hosts_cannot_drive_a_terminal() {
        let hostile = "n1\u{1b}[2Jroot\r\n\u{202e}gpj.\u{7}\u{9b}1m";
        let shown = printable(hostile);
        assert_eq!(shown, "n1\\u{1b}[2Jroot\\u{d}\\u{a}\\u{202e}gpj.\\u{7}\\u{9b}1m");
        assert_eq!(printable("Müller's node (α)"), "Müller's node (α)");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [words(&["A", "B", "C"]), words(&["long", "x", ""])];
        assert_eq!(table(&rows), "A     B  C\nlong  x\n");
    }
}
