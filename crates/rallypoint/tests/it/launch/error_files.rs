//! What a worker says of its failure, and what is made of it.

use super::{Job, host};

/// What `@record` writes.
const RECORD: &str = r#"printf '%s' '{"message": {"message": "ValueError: no such layer", "extraInfo": {"py_callstack": "Traceback: line 7", "timestamp": "1700000000"}}}' > "$TORCHELASTIC_ERROR_FILE""#;

/// The plain form.
const PLAIN: &str = r#"printf '%s' '{"message": "out of luck", "timestamp": 1700000000}' > "$TORCHELASTIC_ERROR_FILE""#;

fn fail(job: &Job, script: &str) -> super::Ended {
    job.launcher().program(&["sh", "-c", script]).start().ends_with(1)
}

#[test]
fn the_report_names_the_root_cause() {
    let job = Job::new(&["--nproc-per-node", "3", "--role", "trainer"]);
    // The other workers fail because they are stopped, which is not their failure.
    let script = r#"[ $RANK != 1 ] || exit 13; exec sleep 1000"#;
    let said = fail(&job, script).stderr;
    for words in ["FAILED", "rank 1", "local rank 1", "exit code 13", &host()] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    assert!(!said.contains("rank 2 "), "{said}");
    assert!(said.contains("--tee") || said.contains("--redirects"), "how to have a log: {said}");
}

#[test]
fn the_report_has_the_last_lines_of_the_log() {
    for options in [["--tee", "3"], ["--redirects", "3"]] {
        let job = Job::new(&[&["--nproc-per-node", "2"], &options[..]].concat());
        let script = r#"
            [ $RANK = 1 ] || exec sleep 1000
            n=0; while [ $n -lt 100 ]; do n=$((n + 1)); echo "line $n of it" >&2; done
            echo "the cause of it all" >&2; kill -KILL $$"#;
        let said = fail(&job, script).stderr;
        let at = said.find("FAILED").unwrap_or_else(|| panic!("{said}"));
        let report = &said[at..];
        for words in ["the cause of it all", "line 100 of it", "SIGKILL"] {
            assert!(report.contains(words), "no {words:?} in {report}");
        }
        assert!(!report.contains("line 50 of it"), "only the last ones: {report}");
    }
}

#[test]
fn an_error_file_is_read_in_both_forms() {
    for (form, words) in [
        (RECORD, &["ValueError: no such layer", "Traceback: line 7"][..]),
        (PLAIN, &["out of luck"]),
    ] {
        let job = Job::new(&["--nproc-per-node", "2"]);
        let script = format!("[ $RANK = 1 ] || exec sleep 1000\n{form}\nexit 1");
        let said = fail(&job, &script).stderr;
        for words in words {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
    }
}

/// The other nodes learn of it, too.
#[test]
fn what_an_error_file_says_is_told_to_every_node() {
    let job = Job::at(&super::free_endpoint(), "2");
    let mut nodes = job.launchers(2);
    job.group(2).workers[1].tell(&format!("{RECORD}; exit 1"));
    for node in &mut nodes {
        let said = node.ends_with(1).stderr;
        assert!(said.contains("ValueError: no such layer"), "launcher {}", node.number);
    }
}

/// It is said which file it is, and the failure is reported all the same.
#[test]
fn an_error_file_that_makes_no_sense_is_said() {
    for text in ["no json", "{}", ""] {
        let job = Job::new(&["--log-dir"]);
        let logs = job.file("logs");
        let script = format!("printf '%s' '{text}' > \"$TORCHELASTIC_ERROR_FILE\"; exit 9");
        let said = job
            .launcher()
            .with(&[&logs])
            .program(&["sh", "-c", &script])
            .start()
            .ends_with(1)
            .stderr;
        assert!(said.contains("error.json") && said.contains("exit code 9"), "{text:?}: {said}");
    }
}

/// A launcher may itself be somebody's worker.
#[test]
fn the_launchers_own_error_file_is_written() {
    let read = |job: &Job, script: &str| -> serde_json::Value {
        let own = job.file("own.json");
        std::fs::write(&own, "left by another").unwrap();
        let line = job.launcher().env("TORCHELASTIC_ERROR_FILE", &own);
        line.program(&["sh", "-c", script]).start().ends_with(1);
        serde_json::from_str(&std::fs::read_to_string(own).unwrap()).unwrap()
    };
    let job = Job::new(&["--nproc-per-node", "1"]);
    let written = read(&job, &format!("{RECORD}\nexit 5"));
    assert_eq!(written["message"]["message"], "ValueError: no such layer");
    assert_eq!(written["message"]["extraInfo"]["py_callstack"], "Traceback: line 7");
    assert_eq!(written["message"]["errorCode"], 5);
    // A worker that left none.
    let written = read(&job, "exit 6");
    let message = written["message"]["message"].as_str().unwrap();
    assert!(message.contains("exit code 6"), "{message}");
    // And the worker does not find the launcher's own, but its own.
    let script = r#"printf '%s' "$TORCHELASTIC_ERROR_FILE" > $JOB/named; exit 1"#;
    read(&job, script);
    let named = std::fs::read_to_string(job.path().join("named")).unwrap();
    assert!(named.ends_with("error.json"), "{named}");
}

#[test]
fn a_job_that_succeeds_writes_no_error_file() {
    let job = Job::new(&["--nproc-per-node", "1"]);
    let own = job.file("own.json");
    job.launcher().env("TORCHELASTIC_ERROR_FILE", &own).program(&["true"]).start().ends_with(0);
    assert!(!std::path::Path::new(&own).exists());
}
