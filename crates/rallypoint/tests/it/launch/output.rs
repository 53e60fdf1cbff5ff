//! Where the workers' output goes.

use std::path::PathBuf;

use rustix::process::Signal;

use super::{Ended, Job, free_endpoint, host};
use crate::support::process::Directory;

/// What each worker says here: a line on each stream.
const WORDS: &str = r#"echo "spoken $RANK"; echo "shouted $RANK" >&2"#;

/// Runs two workers with these options.
fn run(job: &Job, options: &[&str]) -> Ended {
    job.launcher().with(options).program(&["sh", "-c", WORDS]).start().ends_with(0)
}

fn two() -> Job {
    Job::new(&["--nproc-per-node", "2", "--rdzv-id", "job"])
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// The lines of the workers among those of the launcher.
fn of_workers(text: &str) -> Vec<&str> {
    sorted(text)
        .into_iter()
        .filter(|line| line.contains("spoken ") || line.contains("shouted "))
        .collect()
}

/// The log files of a run of one round, by rank and stream, with what is in them.
fn files(job: &Job, directory: &str) -> Vec<(String, String)> {
    let run = only(&PathBuf::from(directory));
    let of_host = run.join(host());
    let round = if of_host.exists() { only(&of_host) } else { only(&run) };
    let mut found = Vec::new();
    for rank in std::fs::read_dir(round).unwrap() {
        let rank = rank.unwrap();
        for file in std::fs::read_dir(rank.path()).unwrap() {
            let file = file.unwrap();
            let rank = rank.file_name().to_str().unwrap().strip_prefix("rank_").unwrap().to_owned();
            let name = format!("{rank}/{}", file.file_name().to_str().unwrap());
            found.push((name, std::fs::read_to_string(file.path()).unwrap()));
        }
    }
    found.sort();
    assert!(run.starts_with(job.path()));
    found
}

fn only(directory: &std::path::Path) -> PathBuf {
    let entries: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries[0].clone()
}

fn file(name: &str, text: &str) -> (String, String) {
    (name.to_owned(), text.to_owned())
}

#[test]
fn by_itself_it_goes_where_the_launchers_goes() {
    let job = two();
    let ended = run(&job, &[]);
    assert_eq!(sorted(&ended.stdout), ["spoken 0", "spoken 1"]);
    assert_eq!(of_workers(&ended.stderr), ["shouted 0", "shouted 1"]);
    job.nothing_is_left();
}

#[test]
fn redirected_it_goes_to_files_alone() {
    let job = two();
    let logs = job.file("logs");
    let ended = run(&job, &["--redirects", "3", "--log-dir", &logs]);
    assert_eq!(ended.stdout, "");
    assert_eq!(of_workers(&ended.stderr), [""; 0]);
    let expected = [
        file("0/stderr.log", "shouted 0\n"),
        file("0/stdout.log", "spoken 0\n"),
        file("1/stderr.log", "shouted 1\n"),
        file("1/stdout.log", "spoken 1\n"),
    ];
    assert_eq!(files(&job, &logs), expected);
    assert!(
        ended.stderr.contains(&format!("{logs}/job/{}/round_1/{{rank_0,rank_1}}", host())),
        "{}",
        ended.stderr
    );
}

#[test]
fn redirected_by_local_rank_the_rest_stays() {
    let job = two();
    let logs = job.file("logs");
    let ended = run(&job, &["-r", "0:1,1:2", "--log-dir", &logs]);
    assert_eq!(ended.stdout, "spoken 1\n");
    assert_eq!(of_workers(&ended.stderr), ["shouted 0"]);
    assert_eq!(
        files(&job, &logs),
        [file("0/stdout.log", "spoken 0\n"), file("1/stderr.log", "shouted 1\n")]
    );
}

#[test]
fn teed_it_goes_to_both_and_says_whose_it_is() {
    let job = two();
    let logs = job.file("logs");
    let ended = run(&job, &["--tee", "3", "--role", "trainer", "--log-dir", &logs]);
    assert_eq!(sorted(&ended.stdout), ["[trainer0]:spoken 0", "[trainer1]:spoken 1"]);
    assert_eq!(of_workers(&ended.stderr), ["[trainer0]:shouted 0", "[trainer1]:shouted 1"]);
    assert_eq!(files(&job, &logs).len(), 4);
}

#[test]
fn the_prefix_can_be_another() {
    let job = two();
    let template = "${hostname}/${role_name}/${rank}/${local_rank} ";
    let expected = [0, 1].map(|rank| format!("{}/default/{rank}/{rank} spoken {rank}", host()));
    let ended = run(&job, &["-t", "1", "--log-line-prefix-template", template]);
    assert_eq!(sorted(&ended.stdout), expected);
    let line = job.launcher().with(&["-t", "1"]).program(&["sh", "-c", WORDS]);
    let line = line.env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", template);
    assert_eq!(sorted(&line.start().ends_with(0).stdout), expected);
}

/// Files are unaffected.
#[test]
fn the_console_can_be_kept_to_some_workers() {
    for options in [&["--tee", "3"][..], &[]] {
        let job = two();
        let logs = job.file("logs");
        let ended =
            run(&job, &[options, &["--local-ranks-filter", "1", "--log-dir", &logs]].concat());
        assert!(
            ended.stdout.contains("spoken 1") && !ended.stdout.contains("spoken 0"),
            "{ended:?}"
        );
        assert_eq!(of_workers(&ended.stderr).len(), 1, "{ended:?}");
        assert!(ended.stderr.contains("shouted 1"));
        if !options.is_empty() {
            assert_eq!(files(&job, &logs).len(), 4);
        }
    }
}

#[test]
fn without_files_a_redirect_goes_nowhere_and_a_tee_to_the_console() {
    let job = two();
    let ended = run(&job, &["--redirects", "0:3", "--tee", "1:3", "--log-dir", "/dev/null"]);
    assert_eq!(ended.stdout, "[default1]:spoken 1\n");
    assert_eq!(of_workers(&ended.stderr), ["[default1]:shouted 1"]);
    job.nothing_is_left();
}

/// The directory stays, since somebody asked for what is in it, and the log says where.
#[test]
fn without_a_directory_the_files_are_in_a_temporary_one() {
    let job = two();
    let ended = run(&job, &["--redirects", "3"]);
    let directory = only(&job.path().join("tmp"));
    assert!(ended.stderr.contains(directory.to_str().unwrap()), "{}", ended.stderr);
    let mut texts = Vec::new();
    let mut next = vec![directory];
    while let Some(path) = next.pop() {
        if path.is_dir() {
            next.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            texts.push(std::fs::read_to_string(path).unwrap());
        }
    }
    texts.sort();
    assert_eq!(texts, ["shouted 0\n", "shouted 1\n", "spoken 0\n", "spoken 1\n"]);
}

/// Whole lines, in the order of each worker, whatever the bytes.
#[test]
fn lines_of_several_workers_do_not_mix() {
    let job = Job::new(&["--nproc-per-node", "4", "--tee", "1"]);
    let script = r#"
        n=0; while [ $n -lt 500 ]; do echo "$RANK $n abcdefghijklmnopqrstuvwxyz"; n=$((n + 1)); done
        printf 'bad \377 byte\nno end of line'"#;
    let ended = job.launcher().program(&["sh", "-c", script]).start().ends_with(0);
    let mut next = [0; 4];
    let mut others = 0;
    for line in ended.stdout.lines() {
        let (prefix, text) = line.split_once(":").unwrap_or_else(|| panic!("{line}"));
        let rank: usize =
            prefix.strip_prefix("[default").unwrap().strip_suffix(']').unwrap().parse().unwrap();
        if next[rank] < 500 {
            assert_eq!(text, format!("{rank} {} abcdefghijklmnopqrstuvwxyz", next[rank]));
            next[rank] += 1;
        } else {
            assert!(
                text == "no end of line" || text.contains("bad") && text.contains("byte"),
                "{text}"
            );
            others += 1;
        }
    }
    assert_eq!((next, others), ([500; 4], 8));
}

/// What a worker says on its way out is not lost, and the launcher does not wait for a stranger who holds
/// its output.
#[test]
fn the_last_words_are_shown() {
    let job = Job::new(&["--nproc-per-node", "1", "--tee", "3"]);
    let script = "echo first; exec 1>&2; echo last; exit 1";
    let ended = job.launcher().program(&["sh", "-c", script]).start().ends_with(1);
    assert_eq!(ended.stdout, "[default0]:first\n");
    assert!(ended.stderr.contains("[default0]:last\n"), "{}", ended.stderr);
}

#[test]
fn as_json_every_line_of_ours_is_an_object() {
    let job = Job::new(&["--nproc-per-node", "2", "--redirects", "3", "--max-restarts", "1"]);
    // The option is the command's, and may stand on either side of `run`.
    for position in 0..2 {
        let script = "exit $((1 - TORCHELASTIC_RESTART_COUNT))";
        let line = job.launcher().program(&["sh", "-c", script]);
        let line = match position {
            0 => line.with(&["--log-format", "json"]),
            _ => line.with(&["--log-format=json"]),
        };
        let ended = line.start().ends_with(0);
        assert_eq!(ended.stdout, "");
        let lines: Vec<serde_json::Value> = ended
            .stderr
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
            .collect();
        assert!(lines.len() > 1 && lines.iter().all(serde_json::Value::is_object));
    }
    // A failure, too, is told in objects.
    let line = job.launcher().with(&["--log-format", "json"]).program(&["sh", "-c", "exit 7"]);
    let ended = line.start().ends_with(1);
    let mut told = false;
    for line in ended.stderr.lines() {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(object.is_object(), "{line}");
        told |= line.contains("exit code 7");
    }
    assert!(told, "{}", ended.stderr);
}

/// In a file there is no live line and no colour.
#[test]
fn in_a_file_there_is_nothing_for_terminals() {
    let job = Job::new(&["--nproc-per-node", "2", "--tee", "3"]);
    let ended = run(&job, &[]);
    for text in [&ended.stdout, &ended.stderr] {
        assert!(!text.contains('\x1b') && !text.contains('\r'), "{text:?}");
    }
}

/// Becomes a launcher whose standard output, or error, is a pipe that nobody reads. It never breaks either: the
/// launcher has both of its ends.
const NOBODY_READS: &str = r#"
    mkfifo "$JOB/unread" && exec 3<>"$JOB/unread"
    if [ "$0" = stderr ]; then head -c 65536 /dev/zero >&3; exec "$@" 2>&3 3>&-; fi
    exec "$@" >&3 3>&-"#;

/// Some 39 kB, for which a worker's pipe has room: it can end. With prefixes it is 127, for which a console's
/// pipe has none.
const MUCH: &str = "seq 1 8000";

#[test]
fn who_reads_late_gets_all_of_it_and_so_does_the_file() {
    let job = Job::new(&["--standalone", "--tee", "3"]);
    let logs = job.file("logs");
    let late = r#"{ "$@"; echo $? >"$JOB/code"; } | { sleep 3; cat >"$JOB/read"; }"#;
    let line = job.launcher().by(&["sh", "-c", late, "sh"]).with(&["--log-dir", &logs]);
    line.program(&["sh", "-c", MUCH]).start().ends_with(0);
    assert_eq!(std::fs::read_to_string(job.path().join("code")).unwrap(), "0\n");
    let lines = |prefix: &str| -> String {
        (1..=8_000).map(|number| format!("{prefix}{number}\n")).collect()
    };
    let read = std::fs::read_to_string(job.path().join("read")).unwrap();
    assert!(read == lines("[default0]:"), "{} lines", read.lines().count());
    let found = files(&job, &logs);
    let (name, text) = &found[1];
    assert_eq!(name, "0/stdout.log");
    assert!(*text == lines(""), "{} lines", text.lines().count());
}

#[test]
fn a_signal_ends_the_wait_for_a_reader() {
    let job = Job::new(&["--standalone", "--tee", "3"]);
    let line = job.launcher().by(&["sh", "-c", NOBODY_READS, "stdout"]);
    let mut node = line.program(&["sh", "-c", MUCH]).start();
    node.says("a signal ends the wait");
    node.signal(Signal::TERM);
    let ended = node.ends_with(0);
    assert!(ended.stderr.contains("is lost"), "{}", ended.stderr);
}

/// Its log is of no use to anybody, and nothing waits for it.
#[test]
fn a_launcher_whose_log_is_not_read_works_and_stops() {
    let job = Job::new(&[
        "--standalone",
        "--shutdown-timeout",
        "2",
        "--redirects",
        "3",
        "--log-dir",
        "/dev/null",
    ]);
    let mut node = job.launcher().by(&["sh", "-c", NOBODY_READS, "stderr"]).start();
    job.group(1);
    node.signal(Signal::TERM);
    node.ends_with(143);
    job.nothing_is_left();
}

/// Nodes of many hosts have one directory on a file system of the network; two of one host are in no other case. Nor is
/// a job that is started again under its name, and counts its rounds from 1.
#[test]
fn nodes_share_a_directory_and_no_file() {
    let directory = Directory::new();
    let shared = directory.path().to_str().unwrap();
    for (run, directories) in
        [["rank_0", "rank_1"], ["rank_0.1", "rank_1.1"]].into_iter().enumerate()
    {
        let job = Job::at(&free_endpoint(), "2");
        let program = ["sh", "-c", "echo $RANK in $TORCHELASTIC_ERROR_FILE"];
        let start = |_| {
            let line = job.launcher().with(&["--redirects", "1", "--log-dir", shared]);
            line.program(&program).start()
        };
        let mut nodes: Vec<_> = (0..2).map(start).collect();
        let said: String = nodes.iter_mut().map(|node| node.ends_with(0).stderr).collect();
        for (rank, directory) in directories.into_iter().enumerate() {
            let place = format!("{shared}/job/{}/round_1/{directory}", host());
            let text = std::fs::read_to_string(format!("{place}/stdout.log")).unwrap();
            assert_eq!(text, format!("{rank} in {place}/error.json\n"), "run {run}");
            let line = format!("{shared}/job/{}/round_1/{{{directory}}}", host());
            assert!(said.contains(&line), "{said}");
        }
    }
}
