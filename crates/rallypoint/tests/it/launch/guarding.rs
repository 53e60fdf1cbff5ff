//! Whatever a launcher was started as, and whoever ends it, nothing is left of its workers.

use rustix::process::{Pid, Signal, kill_process};

use super::{Job, until, until_true};

/// Becomes a program that ignores these signals, as some schedulers, `nohup` or a shell's `&` have it.
const IGNORING: &str = "import os, signal, sys
for name in sys.argv[1].split(','):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
os.execvp(sys.argv[2], sys.argv[2:])";

fn ignoring(signals: &str) -> [&str; 4] {
    ["python3", "-c", IGNORING, signals]
}

/// What `pkill -9 rallypoint` ends.
#[test]
fn killed_by_its_name_it_leaves_no_worker() {
    let job = Job::new(&["--nproc-per-node", "2"]);
    let mut node = job.launch();
    let group = job.group(2);
    for pid in job.processes() {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.contains("rallypoint") {
            kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
        }
    }
    assert_eq!(node.ended().signal, Some(9));
    for worker in &group.workers {
        worker.is_gone();
    }
    until_true("nothing is left", || job.processes().is_empty());
}

/// Without its guard it has another, and goes on; and that one does what the first would have done.
#[test]
fn a_guard_that_is_killed_is_replaced_while_the_workers_run() {
    let job = Job::new(&["--nproc-per-node", "2"]);
    let mut node = job.launch();
    let group = job.group(2);
    let guard = || {
        let is_guard = |pid: &u32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name == "rp-guard\n"
        };
        job.processes().into_iter().find(is_guard)
    };
    let first = until("there is a guard", guard);
    kill_process(Pid::from_raw(first.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    until("there is another", || guard().filter(|pid| *pid != first));
    node.says("the guard was killed");
    assert!(group.lives() && !node.has_ended());
    node.kill();
    for worker in &group.workers {
        worker.is_gone();
    }
    until_true("nothing is left", || job.processes().is_empty());
}

/// As in a container that has no other: those whose parent is gone become its children, and nobody else would ask
/// how they ended. How its own workers end it learns all the same.
#[test]
fn as_the_first_process_it_reaps_what_is_left_to_it_and_nothing_else() {
    let job = Job::new(&["--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]);
    let script = r#"
        for i in 1 2 3; do (sleep 0.1 &); done
        sleep 1
        for i in $(seq 150); do
            left=$(cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z 1 ')
            [ "$left" = 0 ] && break
            sleep 0.1
        done
        told=$JOB/told.$TORCHELASTIC_RESTART_COUNT
        # Whoever fails first ends the other.
        if [ "$RANK" = 0 ]; then echo "left $left"; touch "$told"; fi
        until [ -e "$told" ]; do sleep 0.1; done
        exit $((1 - TORCHELASTIC_RESTART_COUNT))
    "#;
    let by = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut node = job.launcher().program(&["sh", "-c", script]).by(&by).start();
    let ended = node.ends_with(0);
    assert_eq!(ended.stdout, "left 0\nleft 0\n", "{}", ended.stderr);
    job.nothing_is_left();
}

#[test]
fn signals_that_were_ignored_before_it_began_do_what_they_should() {
    let job = Job::new(&["--standalone", "--nproc-per-node", "2"]);
    let ignored = ignoring("SIGCHLD,SIGTERM,SIGINT,SIGQUIT,SIGUSR1");
    // How workers end is known.
    let line = job.launcher().program(&["sh", "-c", "exit $RANK"]).by(&ignored);
    let said = line.start().ends_with(1).stderr;
    assert!(said.contains("exit code 1") || said.contains("exitcode"), "{said}");
    // They begin as programs do that nobody has told otherwise, and the launcher can be stopped.
    let told = "grep SigIgn: /proc/$$/status > $JOB/ignored.$RANK; exec sleep 1000";
    let mut node = job.launcher().program(&["sh", "-c", told]).by(&ignored).start();
    for rank in 0..2 {
        let path = job.path().join(format!("ignored.{rank}"));
        let text = until("a worker tells", || {
            std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        });
        let mask = u64::from_str_radix(text.trim_start_matches("SigIgn:").trim(), 16).unwrap();
        for signal in [Signal::CHILD, Signal::TERM, Signal::INT, Signal::QUIT, Signal::USR1] {
            assert_eq!(mask >> (signal.as_raw() - 1) & 1, 0, "{signal:?} is ignored: {text}");
        }
    }
    node.signal(Signal::TERM);
    node.ends_with(128 + 15);
    job.nothing_is_left();
}

/// What `nohup` is for.
#[test]
fn the_end_of_a_terminal_that_was_to_be_ignored_is() {
    let job = Job::new(&["--standalone"]);
    let mut node = job.launcher().by(&ignoring("SIGHUP")).start();
    let group = job.group(1);
    node.signal(Signal::HUP);
    group.workers[0].does("kill -HUP $$; :");
    assert!(group.lives() && !node.has_ended());
    group.tell("exit 0");
    let ended = node.ends_with(0);
    assert!(!ended.stderr.contains("SIGHUP"), "{}", ended.stderr);
}
