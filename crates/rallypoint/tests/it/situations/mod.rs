//! Twelve situations from real reports, and the words that a user sees in them: each names the cause and the remedy.
//!
//! Each test stages one with real processes, and compares what `doctor`, `explain` or the launcher says with the text
//! in the test. `docs/troubleshooting.md` lists the same situations.

mod hangs;
mod members;
mod network;
mod schedulers;

use crate::launch::{Launcher, host, until};
use crate::status::Server;

/// The words are these. Both sides are made [`plain`], so the expected ones may be on several lines.
fn assert_words(found: &str, expected: &str) {
    let (found, expected) = (plain(found), plain(expected));
    assert_eq!(found, expected, "\n   found: {found}\nexpected: {expected}\n");
}

/// Waits until the launcher has said a line with these words. Returns it from them on.
fn said(node: &Launcher, words: &str) -> String {
    until(&format!("launcher {} says {words:?}", node.number), || {
        let text = node.stderr();
        let line = text.lines().find(|line| line.contains(words))?;
        line.find(words).map(|start| line[start..].to_owned())
    })
}

/// What `rallypoint explain` says, once it says this.
fn explained(server: &Server, words: &str) -> String {
    until(&format!("an explanation with {words:?}"), || {
        Some(server.says(&["explain", "job"]).stdout).filter(|told| told.contains(words))
    })
}

/// A text without what differs from run to run: times are `N s`, ports `PORT`, ids of nodes end with `…`, this host is
/// `HOST`, a function of the kernel is `CALL`, and there is one space where there is any.
fn plain(text: &str) -> String {
    let words = text.replace("ms. ", "ms . ");
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let host = host();
    let words = words.replace(&host, "HOST");
    let mut plain: Vec<String> =
        words.split(' ').map(|word| without_port(&without_id(word))).collect();
    for place in 1..plain.len() {
        let unit = plain[place].trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
        let number = plain[place - 1].trim_start_matches('(').to_owned();
        let is_number = number.parse::<f64>().is_ok();
        if is_number && ["s", "min"].contains(&unit.as_str()) {
            plain[place - 1] = plain[place - 1].replace(&number, "N");
        }
        // Functions of the kernel have other names in other versions.
        if ["sleep", "sh"].contains(&unit.as_str()) && plain[place].starts_with('(') {
            plain[place - 1] = "CALL".to_owned();
        }
    }
    // A time has one unit or two.
    plain.join(" ").replace("N . ", "N s. ").replace("N min N s", "N s").replace("N min", "N s")
}

/// `node0-4711-463a3eea0cfc0958` is `node0-…`, and `963.0ms` is `N`.
fn without_id(word: &str) -> String {
    if word.strip_suffix("ms").is_some_and(|number| number.parse::<f64>().is_ok()) {
        return "N".to_owned();
    }
    let is_hash = |part: &str| part.len() == 16 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let end = word.trim_end_matches(|c: char| !c.is_ascii_hexdigit());
    let parts: Vec<&str> = end.rsplitn(3, '-').collect();
    match parts[..] {
        [hash, pid, name] if is_hash(hash) && pid.parse::<u32>().is_ok() => {
            format!("{name}-…{}", &word[end.len()..])
        }
        _ => word.to_owned(),
    }
}

/// Ports that were free are `PORT`; those below 30000 were chosen.
fn without_port(word: &str) -> String {
    let end = word.trim_end_matches(|c: char| !c.is_ascii_digit());
    let Some((host, port)) = end.rsplit_once(':') else { return word.to_owned() };
    match port.parse::<u16>() {
        Ok(30_000..) => format!("{host}:PORT{}", &word[end.len()..]),
        _ => word.to_owned(),
    }
}

#[test]
fn what_differs_from_run_to_run_is_left_out() {
    assert_words("at 10.0.0.1:41231, (12 s, 9 min 48 s left)", "at 10.0.0.1:PORT, (N s, N s left)");
    assert_words("node0-4711-463a3eea0cfc0958, and", "node0-…, and");
    assert_words("head:29400 of 8 nodes", "head:29400\n   of 8 nodes");
}
