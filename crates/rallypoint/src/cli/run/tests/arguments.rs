//! Where the options end and the program begins, and how it is run.

use super::*;

fn program(arguments: &[&str]) -> Vec<String> {
    let program = plan(arguments).program;
    let words = std::iter::once(program.path).chain(program.arguments);
    words.map(|word| word.into_string().unwrap()).collect()
}

#[test]
fn everything_behind_the_program_is_the_programs() {
    for (line, expected) in [
        (&["true"][..], &["true"][..]),
        (&["--", "true"], &["true"]),
        (&["--nproc=2", "./a", "--nproc", "3", "-r", "x"], &["./a", "--nproc", "3", "-r", "x"]),
        (&["--", "./a", "--", "b", "--help"], &["./a", "--", "b", "--help"]),
        (&["./a", "--", "b"], &["./a", "--", "b"]),
        (&["./a", "", "-"], &["./a", "", "-"]),
        (&["--", "--odd-name"], &["--odd-name"]),
        // D13: nothing is put in place of a dollar sign.
        (
            &["sh", "-c", "kill -9 $$; echo $local_rank ${local_rank}"],
            &["sh", "-c", "kill -9 $$; echo $local_rank ${local_rank}"],
        ),
        (&["train.py", "--lr=1"], &["python3", "-u", "train.py", "--lr=1"]),
        (&["-m", "pkg.train", "-m"], &["python3", "-u", "-m", "pkg.train", "-m"]),
        (&["--no-python", "train.py"], &["train.py"]),
        (&["train.pyc"], &["train.pyc"]),
        (&["-r3", "-t", "1", "true"], &["true"]),
    ] {
        assert_eq!(program(line), expected, "{line:?}");
    }
    let other = host(&[("PYTHON_EXEC", "/opt/python")]);
    assert_eq!(plan_on(&other, &["train.py"]).unwrap().program.path, "/opt/python");
    assert_eq!(plan_on(&other, &["true"]).unwrap().program.path, "true");
}

#[test]
fn bytes_that_are_no_text_are_passed_on() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(vec![b'a', 0xff]);
    let line = ["run".into(), "true".into(), odd.clone()];
    let matches = command(&Environment::new()).try_get_matches_from(line).unwrap();
    let RunAction::Launch(plan) = prepare(&matches, &host(&[])).unwrap() else { panic!() };
    assert_eq!(plan.program.arguments, [odd]);
}

#[test]
fn the_last_of_two_values_counts() {
    assert_eq!(plan(&["--max-restarts", "1", "--max_restarts", "2", "true"]).max_restarts, 2);
    assert!(
        plan(&["--standalone", "--standalone", "true"]).rendezvous.parameters.endpoint.is_empty()
    );
}

#[test]
fn variables_of_torchs_own_are_read_too() {
    let variables = [
        ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"),
        ("TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT", "60"),
        ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "${hostname} "),
    ];
    let found = plan_on(&host(&variables), &["true"]).unwrap();
    let seconds = std::time::Duration::from_secs;
    assert_eq!(found.agent.shutdown_timeout, seconds(7));
    assert_eq!(found.agent.exit_barrier, Some(seconds(60)));
    assert_eq!(found.logs.prefix.to_string(), "${hostname} ");
    let said: Vec<String> = found.provenance.iter().map(ToString::to_string).collect();
    assert!(
        said.contains(&"--shutdown-timeout 7 from TORCH_ELASTIC_SHUTDOWN_TIMEOUT".to_owned()),
        "{said:?}"
    );
    let line = ["--shutdown-timeout=1", "--exit-barrier-timeout=none", "true"];
    let found = plan_on(&host(&variables), &line).unwrap();
    assert_eq!((found.agent.shutdown_timeout, found.agent.exit_barrier), (seconds(1), None));
    let error = refusal(&["true"], &[("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon")]);
    assert!(error.starts_with("TORCH_ELASTIC_SHUTDOWN_TIMEOUT \"soon\": give seconds"), "{error}");
}

#[test]
fn workers_are_counted_by_processors_or_devices() {
    for (nproc, devices, variable, expected) in [
        ("auto", 0, None, Ok(4)),
        ("auto", 8, None, Ok(8)),
        ("auto", 8, Some("0,1"), Ok(2)),
        ("auto", 8, Some(""), Ok(4)),
        ("cpu", 8, None, Ok(4)),
        ("gpu", 8, None, Ok(8)),
        ("gpu", 0, Some("0,1,2"), Ok(3)),
        ("gpu", 0, None, Err("--nproc-per-node \"gpu\": /dev/nvidia* shows no GPU; give a number")),
        ("gpu", 8, Some("-1"), Err("--nproc-per-node \"gpu\": CUDA_VISIBLE_DEVICES shows no GPU")),
        ("xpu", 8, None, Err("error: invalid value 'xpu'")),
    ] {
        let variables: Vec<(&str, &str)> =
            variable.map(|value| ("CUDA_VISIBLE_DEVICES", value)).into_iter().collect();
        let mut host = host(&variables);
        host.devices.devices = devices;
        let found = plan_on(&host, &["--nproc-per-node", nproc, "true"]);
        match (found, expected) {
            (Ok(plan), Ok(count)) => assert_eq!(plan.agent.local_workers, count, "{nproc}"),
            (Err(error), Err(words)) => assert!(error.to_string().starts_with(words), "{error}"),
            (found, _) => panic!("{nproc} {variable:?}: {found:?}"),
        }
    }
}

#[test]
fn threads_are_shared_out_unless_the_user_has_done_so() {
    let said = |plan: JobSpec| plan.provenance.iter().any(|taken| taken.what == "OMP_NUM_THREADS");
    assert!(said(plan(&["--nproc=2", "true"])));
    assert!(!said(plan(&["true"])));
    let set = host(&[("OMP_NUM_THREADS", "8")]);
    assert!(!said(plan_on(&set, &["--nproc=2", "true"]).unwrap()));
}

#[test]
fn a_dry_run_shows_and_does_not_launch() {
    let show = |line: &[&str]| match errand_on(&host(&[]), line) {
        Ok(RunAction::Show(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(show(&["--dry-run", "true"]).starts_with("command "));
    assert!(show(&["--dry-run", "--json", "true"]).starts_with("{\n"));
    let error = refusal(&["--json", "true"], &[]);
    assert!(error.starts_with("--dry-run is missing: --json is how"), "{error}");
}

#[test]
fn this_very_host_can_be_planned_for() {
    assert!(host::environment().contains_key("PATH"));
    let this = HostFacts::look(Environment::new());
    let plan = plan_on(&this, &["--nproc-per-node=cpu", "true"]).unwrap();
    assert_eq!(plan.agent.local_workers, this.processors);
    assert_eq!(plan.agent.host, this.here.name);
}
