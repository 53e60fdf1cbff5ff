//! However a launcher was started, and however it ends, none of its workers is left.

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
        # The first failure ends the other.
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

/// Which signals a process ignores, as the kernel tells it.
fn ignores(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

/// Workers begin as programs do that nobody has told otherwise: their launcher tells them to go by a signal, and
/// how they end is known.
#[test]
fn signals_that_were_ignored_before_it_began_are_not_in_the_workers() {
    let job = Job::new(&["--standalone", "--nproc-per-node", "2"]);
    let ignored = ignoring("SIGCHLD,SIGTERM,SIGINT,SIGQUIT,SIGUSR1");
    let line = job.launcher().program(&["sh", "-c", "exit $RANK"]).by(&ignored);
    let said = line.start().ends_with(1).stderr;
    assert!(said.contains("exit code 1") || said.contains("exitcode"), "{said}");
    let told = "grep SigIgn: /proc/$$/status > $JOB/ignored.$RANK; exec sleep 1000";
    let line = job.launcher().program(&["sh", "-c", told]).by(&ignored);
    let mut node = line.with(&["--signals-to-handle", "SIGTERM"]).start();
    for rank in 0..2 {
        let path = job.path().join(format!("ignored.{rank}"));
        let text = until("a worker tells", || {
            std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        });
        for signal in [Signal::CHILD, Signal::TERM, Signal::INT, Signal::QUIT, Signal::USR1] {
            assert!(!ignores(&text, signal), "{signal:?} is ignored: {text}");
        }
    }
    node.signal(Signal::TERM);
    node.ends_with(128 + 15);
    job.nothing_is_left();
}

/// What `nohup`, a shell's `&` and `trap '' INT` are for.
#[test]
fn signals_that_were_ignored_before_it_began_stay_so() {
    let ignored =
        [Signal::HUP, Signal::INT, Signal::TERM, Signal::QUIT, Signal::USR1, Signal::USR2];
    let job = Job::new(&["--standalone"]);
    let names = "SIGHUP,SIGINT,SIGTERM,SIGQUIT,SIGUSR1,SIGUSR2";
    let order = "trap 'touch $JOB/passed' USR1 USR2";
    let line = job.launcher().program(&["sh", &job.file("worker.sh"), order]);
    let mut node = line.by(&ignoring(names)).start();
    let group = job.group(1);
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.id())).unwrap();
    for signal in ignored {
        assert!(ignores(&status, signal), "{signal:?} is heard");
        node.signal(signal);
    }
    group.workers[0].does("kill -HUP $$; :");
    assert!(group.lives() && !node.has_ended());
    group.tell("exit 0");
    let ended = node.ends_with(0);
    assert!(!ended.stderr.contains("SIG"), "{}", ended.stderr);
    assert!(!job.path().join("passed").exists());
}

/// Who types a signal means it.
#[test]
fn signals_that_were_ignored_are_heard_if_they_are_named() {
    for (signal, name, code) in [
        (Signal::HUP, "SIGHUP", 129),
        (Signal::INT, "SIGINT", 130),
        (Signal::TERM, "SIGTERM", 143),
        (Signal::USR1, "SIGUSR1", 138),
    ] {
        for by_variable in [false, true] {
            let job = Job::new(&["--standalone"]);
            let line = job.launcher().by(&ignoring(name));
            let line = match by_variable {
                true => line.env("PET_SIGNALS_TO_HANDLE", name),
                false => line.with(&["--signals-to-handle", name]),
            };
            let mut node = line.start();
            job.group(1);
            node.signal(signal);
            node.ends_with(code);
        }
    }
}

/// An image with this program, the libraries that it needs, and nothing else: no shell, for one.
#[test]
fn it_needs_no_shell() {
    let job = Job::new(&["--standalone", "--nproc-per-node", "2"]);
    let program = env!("CARGO_BIN_EXE_rallypoint");
    let libraries = std::process::Command::new("ldd").arg(program).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let image = job.path().join("image");
    let within = |path: &str| image.join(path.trim_start_matches('/'));
    for path in libraries.split_whitespace().filter(|word| word.starts_with('/')).chain([program]) {
        std::fs::create_dir_all(within(path).parent().unwrap()).unwrap();
        std::fs::copy(path, within(path)).unwrap();
    }
    for path in ["proc", "dev", &job.file("tmp")] {
        std::fs::create_dir_all(within(path)).unwrap();
    }
    let enter =
        r#"mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@""#;
    let by = ["unshare", "--mount", "sh", "-c", enter, image.to_str().unwrap()];
    let ended = job.launcher().program(&[program, "--version"]).by(&by).start().ends_with(0);
    let version = format!("rallypoint {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), [&version, &version], "{}", ended.stderr);
    assert!(!image.join("bin/sh").exists());
}
