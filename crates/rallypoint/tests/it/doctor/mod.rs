//! `rallypoint doctor` as its users see it: real servers, real launchers, hosts that are network namespaces.

mod command_line;
mod hosts;
mod servers;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Five seconds, and what a busy machine adds to them.
const SOON: Duration = Duration::from_secs(10);

/// A doctor that is about to be called.
pub struct Doctor {
    words: Vec<String>,
    environment: Vec<(String, String)>,
}

/// What the doctor found, as JSON.
#[derive(Debug)]
pub struct Diagnosis {
    pub code: Option<i32>,
    pub report: Value,
    pub stderr: String,
}

impl Doctor {
    /// With these options.
    pub fn new(options: &[&str]) -> Self {
        let ours = [env!("CARGO_BIN_EXE_rallypoint"), "doctor"];
        let words = ours.iter().chain(options).map(ToString::to_string).collect();
        Self { words, environment: Vec::new() }
    }

    /// Started by another program, which becomes it.
    pub fn by(mut self, words: &[String]) -> Self {
        self.words.splice(0..0, words.iter().cloned());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// What it prints: exit code, standard output, standard error.
    pub fn prints(&self) -> (Option<i32>, String, String) {
        let begun = Instant::now();
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.envs(self.environment.iter().cloned()).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// What it finds.
    pub fn finds(mut self) -> Diagnosis {
        self.words.push("--json".to_owned());
        let (code, stdout, stderr) = self.prints();
        let report = serde_json::from_str(&stdout);
        let report = report.unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
        Diagnosis { code, report, stderr }
    }
}

impl Diagnosis {
    /// The results of a check, with the message and the remedy of each.
    pub fn of(&self, check: &str) -> Vec<(String, String)> {
        let checks = self.report["checks"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let found = checks.iter().filter(|found| found["check"] == check);
        found
            .map(|found| {
                let words = format!("{} {}", text(&found["message"]), text(&found["remedy"]));
                (text(&found["result"]), words.trim_end().to_owned())
            })
            .collect()
    }

    /// One of the results of a check is this, in such words.
    pub fn says(&self, check: &str, result: &str, words: &str) {
        let found = self.of(check);
        assert!(
            found.iter().any(|(verdict, text)| verdict == result && text.contains(words)),
            "{check} {result} {words:?}: {:#}",
            self.report
        );
    }

    /// Whether all went well, which is also the exit code.
    pub fn is(self, result: &str) -> Self {
        let code = if result == "ok" { 0 } else { 1 };
        assert_eq!(self.report["result"], result, "{:#}", self.report);
        assert_eq!(self.code, Some(code), "{:#}{}", self.report, self.stderr);
        self
    }
}
