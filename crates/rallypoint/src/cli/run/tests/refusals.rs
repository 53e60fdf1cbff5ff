//! What is not taken, and what is said instead.

use super::*;

#[test]
fn options_of_torchrun_that_are_not_here_are_refused_by_name() {
    for (given, words) in [
        (
            "--start-method=fork",
            "--start-method is an option of torchrun that there is no use for here: workers",
        ),
        ("--start_method", "--start_method is an option of torchrun"),
        ("--event-log-handler=console", "use --events"),
        ("--run-path", "a *.py file runs under python3 -u by itself"),
        ("--logs-specs=x", "use --log-dir, --redirects and --tee"),
        ("--duplicate-stdout-filters=x", "use --tee"),
        ("--duplicate_stderr_filters", "use --tee"),
        ("--print-completion", "--help lists the options"),
        ("--use-env", "always in the environment"),
        ("--use_env", "always in the environment"),
        ("--start-m", "--start-m is an option of torchrun"),
    ] {
        let error = refusal(&[given, "true"], &[]);
        assert!(error.contains(words), "{given}: {error}");
    }
}

#[test]
fn a_beginning_of_several_options_names_them() {
    let error = refusal(&["--rdzv=x", "true"], &[]);
    let words = "--rdzv may be any of --rdzv-endpoint, --rdzv-id, --rdzv-backend, --rdzv-conf;";
    assert!(error.starts_with(words), "{error}");
    let error = refusal(&["--no", "true"], &[]);
    assert!(error.contains("--node-rank") && error.contains("--no-python"), "{error}");
}

#[test]
fn sizes_that_allow_no_group_are_refused() {
    let several = ["--nnodes=2:8", "--rdzv-endpoint=other", "--rdzv-id=a"];
    for (given, words) in [
        (&["--sizes=2,16"][..], "--sizes \"2/16\": 16 is not within 2:8 nodes"),
        (&["--node-unit=9"], "--node-unit \"9\": no multiple of 9 is within 2:8 nodes"),
        (&["--planned=9"], "--planned \"9\": give a number that a group may have: from 2 to 8"),
        (
            &["--sizes=2,4", "--node-unit=2"],
            "--sizes 2/4 and --node-unit 2 contradict each other: give the one or the other",
        ),
        (
            &["--rdzv-conf=sizes=2/4"],
            "sizes \"2/4\": it is for torchrun; give rallypoint run --sizes instead",
        ),
    ] {
        let line: Vec<&str> = several.iter().chain(given).copied().chain(["true"]).collect();
        let error = refusal(&line, &[]);
        assert!(error.starts_with(words), "{given:?}: {error}");
    }
    let error = refusal(&["--standalone", "--planned=2", "true"], &[]);
    assert!(error.starts_with("--planned \"2\": give a number"), "{error}");
}

#[test]
fn an_unknown_option_is_an_error_of_usage() {
    for line in [
        &["--bogus", "true"][..],
        &["-x", "true"],
        &[],
        &["--nproc", "2"],
        &["--standalone=1", "true"],
    ] {
        let error = plan_on(&host(&[]), line).unwrap_err();
        assert!(
            matches!(&error, RunError::Usage(usage) if usage.use_stderr()),
            "{line:?}: {error}"
        );
    }
    let help = plan_on(&host(&[]), &["--help"]).unwrap_err();
    assert!(matches!(&help, RunError::Usage(usage) if !usage.use_stderr()), "{help}");
    let help = help.to_string();
    for words in ["Nodes and workers:", "Rendezvous:", "Security:", "Examples:", "Exit codes:"] {
        assert!(help.contains(words), "{help}");
    }
    let error = refusal(&[""], &[]);
    assert!(error.starts_with("PROGRAM is missing"), "{error}");
    let error = refusal(&["-m", "--no-python", "a"], &[]);
    assert!(error.starts_with("--module and --no-python contradict each other"), "{error}");
}
