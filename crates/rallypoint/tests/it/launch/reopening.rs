//! A run that is over, and is opened again on purpose.

use std::process::Command;

use super::{Job, wait};
use crate::support::embedded::Embedded;

fn reopen(server: &str) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_rallypoint");
    let words = ["reopen", "--rdzv-endpoint", server, "job", "--yes"];
    let output = Command::new(program).args(words).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_run_that_is_over_is_refused_until_it_is_opened_again() {
    let server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "1", "is_host=false");
    let run = |options: &[&str], code: i32| {
        let line = job.launcher().with(options).program(&["true"]);
        line.start().ends_with(code).stderr
    };
    let (code, said) = reopen(&server.address());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the server has no run \"job\""), "{said}");
    run(&[], 0);
    let said = run(&[], 1);
    assert!(said.contains("--reopen to open this one again"), "{said}");
    run(&["--reopen"], 0);
    run(&[], 1);
    let (code, said) = reopen(&server.address());
    assert_eq!((code, &*said), (Some(0), "run \"job\" is open again\n"));
    run(&[], 0);
}
