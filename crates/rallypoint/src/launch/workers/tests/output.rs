//! Where the output of real processes ends up.

use std::collections::BTreeMap;

use super::*;
use crate::launch::console::OutputStream;

const SPEAK: &str = "echo out; echo err >&2; printf 'no end'";

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn redirected_output_is_in_files_alone() {
    let mut ground = ground(2, SPEAK);
    ground.spec.logs.redirects = "3".parse().unwrap();
    let workers = ground.start(0).await;
    ground.end(&workers).await;
    for local_rank in 0..2 {
        assert_eq!(ground.file(0, local_rank, "stdout.log"), "out\nno end");
        assert_eq!(ground.file(0, local_rank, "stderr.log"), "err\n");
    }
    assert_eq!(ground.output.text() + &ground.error.text(), "");
    let record = workers.exit_records()[1].clone();
    assert_eq!(record.stderr, Some(ground.files(0, 1).stderr));
}

#[tokio::test]
async fn copied_output_is_in_files_and_on_the_console_with_a_prefix() {
    let mut ground = ground(2, SPEAK);
    ground.spec.logs.tee = "0:3,1:2".parse().unwrap();
    ground.spec.logs.redirects = "1:1".parse().unwrap();
    ground.run().await;
    assert_eq!(ground.file(0, 0, "stdout.log"), "out\nno end");
    assert_eq!(ground.output.text(), "[default0]:out\n[default0]:no end\n");
    assert_eq!(ground.file(0, 1, "stderr.log"), "err\n");
    assert_eq!(sorted(&ground.error.text()), ["[default0]:err", "[default1]:err"]);
    assert_eq!(ground.file(0, 1, "stdout.log"), "out\nno end");
}

#[tokio::test]
async fn the_prefix_is_what_the_user_would_like() {
    let mut ground = ground(1, "echo x");
    ground.spec.logs.tee = "1".parse().unwrap();
    ground.spec.logs.prefix = "${hostname}/${rank} ".parse().unwrap();
    ground.run().await;
    assert_eq!(ground.output.text(), "node7/1 x\n");
}

#[test]
fn the_prefix_is_coloured_on_a_terminal_only() {
    let mut ground = ground(1, "");
    assert_eq!(ground.spec.prefix(OutputStream::Stderr, 1, 1), "[default1]:");
    ground.spec.console = Arc::new(Console::shown(true).0);
    assert_eq!(ground.spec.prefix(OutputStream::Stderr, 1, 1), "\x1b[35m[default1]:\x1b[0m");
    ground.spec.logs.prefix = "".parse().unwrap();
    assert_eq!(ground.spec.prefix(OutputStream::Stdout, 1, 1), "");
}

#[tokio::test]
async fn who_is_not_selected_is_not_on_the_console() {
    let mut ground = ground(3, "echo $LOCAL_RANK");
    ground.spec.logs.tee = "1".parse().unwrap();
    ground.spec.logs.console = "1".parse().unwrap();
    ground.run().await;
    assert_eq!(ground.output.text(), "[default1]:1\n");
    assert_eq!(ground.file(0, 2, "stdout.log"), "2\n");
}

#[tokio::test]
async fn without_files_there_is_only_the_console() {
    let mut ground = ground(2, "echo \"${TORCHELASTIC_ERROR_FILE-unset}|\"; echo lost >&2");
    ground.spec.logs.tee = "1".parse().unwrap();
    ground.spec.logs.redirects = "2".parse().unwrap();
    ground.spec.log_dir = Arc::new(LogDir::Nowhere);
    let workers = ground.start(0).await;
    ground.end(&workers).await;
    assert_eq!(sorted(&ground.output.text()), ["[default0]:|", "[default1]:|"]);
    assert_eq!(ground.error.text(), "");
    let record = workers.exit_records()[0].clone();
    assert_eq!((&record.stdout, &record.stderr, &record.error_file), (&None, &None, &None));
}

#[tokio::test]
async fn bytes_that_are_no_text_are_kept_in_the_file() {
    let mut ground = ground(1, r"printf '\377\n'");
    ground.spec.logs.tee = "1".parse().unwrap();
    ground.run().await;
    let file = ground.files(0, 0).stdout;
    assert_eq!(fs::read(file).unwrap(), b"\xff\n");
    assert_eq!(ground.output.text(), "[default0]:\u{fffd}\n");
}

#[tokio::test]
async fn lines_of_fast_writers_are_never_mixed() {
    let mut ground = ground(2, "yes $LOCAL_RANK-abcdefghijklmnopqrstuvwxyz | head -n 50000");
    ground.spec.logs.tee = "1".parse().unwrap();
    ground.run().await;
    let mut counts = BTreeMap::new();
    for line in ground.output.text().lines() {
        *counts.entry(line.to_owned()).or_insert(0) += 1;
    }
    let line = |rank: u32| (format!("[default{rank}]:{rank}-abcdefghijklmnopqrstuvwxyz"), 50_000);
    assert_eq!(counts, BTreeMap::from([line(0), line(1)]));
}

/// It is not waited for: it may hold the pipe for ever.
#[tokio::test]
async fn a_process_that_left_its_group_does_not_hold_up_the_end() {
    let script =
        "setsid sh -c 'echo $$ >\"$0\"; exec sleep 100' \"${TORCHELASTIC_ERROR_FILE%/*}/stray\" &
until [ -s \"${TORCHELASTIC_ERROR_FILE%/*}/stray\" ]; do sleep 0.01; done; echo said";
    let mut ground = ground(1, script);
    ground.spec.logs.tee = "1".parse().unwrap();
    let workers = ground.start(0).await;
    let exits = ground.end(&workers).await;
    drop(workers);
    let stray: i32 = ground.file(0, 0, "stray").trim().parse().unwrap();
    let stray = rustix::process::Pid::from_raw(stray).unwrap();
    rustix::process::kill_process(stray, Signal::KILL).unwrap();
    assert_eq!(exits[0].exit, Exit::Code(0));
    assert_eq!(ground.output.text(), "[default0]:said\n");
}

/// A console that takes nothing until it is told to.
struct SlowConsole(std::sync::mpsc::Receiver<()>, Shown);

impl io::Write for SlowConsole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Their pipes have room for what they say, so that they can end.
#[tokio::test]
async fn workers_are_gone_and_others_started_before_a_slow_console_has_taken_their_output() {
    let mut ground = ground(1, "seq -f $RALLYPOINT_ATTEMPT-%05g 5000");
    ground.spec.logs.tee = "1".parse().unwrap();
    let (reader, stuck) = std::sync::mpsc::channel();
    ground.spec.console =
        Arc::new(Console::of(false, SlowConsole(stuck, ground.output.clone()), Shown::default()));
    for attempt in 0..2 {
        let workers = ground.start(attempt).await;
        assert_eq!(all_exits(&workers).await[0].exit, Exit::Code(0));
    }
    // Longer than a silent pipe is given.
    let finish = ground.spec.output.finish();
    assert!(timeout(Duration::from_millis(1500), finish).await.is_err());
    drop(reader);
    timeout(LONG, ground.spec.output.finish()).await.unwrap();
    let text = |attempt: u64, prefix: &str| -> String {
        (1..=5_000).map(|number| format!("{prefix}{attempt}-{number:05}\n")).collect()
    };
    for attempt in 0..2 {
        assert!(ground.file(attempt, 0, "stdout.log") == text(attempt, ""), "{attempt}");
    }
    let expected = text(0, "[default0]:") + &text(1, "[default0]:");
    assert!(sorted(&ground.output.text()) == sorted(&expected), "{}", ground.output.text());
}
