//! Signs of progress of the workers: output, beats, changes of a file. They are looked at when the agent asks, and cost
//! nothing before. Workers that another launcher has started have the same signs.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::launch::job::ProgressSign;
use crate::process::TemporaryDirectory;

/// What the signs of all starts share: the directory of the workers' beats, which is on this host.
#[derive(Debug)]
pub(crate) struct ProgressSpec {
    sign: ProgressSign,
    beats: TemporaryDirectory,
}

impl ProgressSpec {
    /// Creates the directory. Blocks on the disk.
    pub(crate) fn new(sign: ProgressSign) -> io::Result<Self> {
        Ok(Self { sign, beats: TemporaryDirectory::new("rallypoint-beats-")? })
    }

    /// The sign that is looked for.
    pub(crate) fn sign(&self) -> &ProgressSign {
        &self.sign
    }

    /// Whether output may be the sign, so that the launcher must see it.
    pub(super) fn is_output(&self) -> bool {
        matches!(self.sign, ProgressSign::Auto | ProgressSign::Output)
    }

    /// The file of a worker's beats. The worker creates it.
    pub(super) fn beat_file(&self, attempt: u64, local_rank: u32) -> PathBuf {
        self.beats.path().join(format!("{attempt}.{local_rank}"))
    }

    /// The signs of the workers of one start, which have not begun. Blocks on the disk.
    pub(crate) fn signs(&self) -> ProgressSigns {
        let file = match &self.sign {
            ProgressSign::File(path) => Some(FileSign::new(path)),
            _ => None,
        };
        ProgressSigns { sign: self.sign.clone(), file, hides_output: false, workers: Vec::new() }
    }

    /// A new directory for the beats of workers that another launcher starts. Each worker creates a file there, whose
    /// name is its rank. Blocks on the disk.
    pub(crate) fn beat_directory(&self, attempt: u64) -> io::Result<PathBuf> {
        let directory = self.beats.path().join(attempt.to_string());
        fs::create_dir(&directory)?;
        Ok(directory)
    }
}

/// The time of the last output of a worker that the launcher copies.
#[derive(Debug)]
pub(super) struct LastOutput {
    origin: Instant,
    /// Milliseconds since the origin, and 0 before the first output.
    millis: AtomicU64,
}

impl LastOutput {
    pub(super) fn new() -> Self {
        Self { origin: Instant::now(), millis: AtomicU64::new(0) }
    }

    /// There is output now.
    pub(super) fn note(&self) {
        let millis = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.millis.store(millis.max(1), Ordering::Relaxed);
    }

    fn at(&self) -> Option<Instant> {
        let millis = Some(self.millis.load(Ordering::Relaxed)).filter(|millis| *millis > 0)?;
        let at = self.origin.checked_add(Duration::from_millis(millis))?;
        Some(at.min(Instant::now()))
    }
}

/// A file whose changes are signs. Its times may be of another host's clock, so a change counts at the latest when it is
/// seen, and at the earliest after the look before.
#[derive(Debug, Clone)]
struct FileSign {
    path: PathBuf,
    known: Option<SystemTime>,
    looked: Instant,
    changed: Option<Instant>,
}

impl FileSign {
    /// What the file is like now is no sign.
    fn new(path: &Path) -> Self {
        let (path, known) = (path.to_owned(), modified(path));
        Self { path, known, looked: Instant::now(), changed: None }
    }

    /// A file of a new directory: if it is there, that is a sign.
    fn of_new(path: PathBuf) -> Self {
        Self { path, known: None, looked: Instant::now(), changed: None }
    }

    /// The last change.
    fn look(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let modified = modified(&self.path);
        if let Some(modified) = modified.filter(|_| modified != self.known) {
            // The change was not there at the look before. An age that says so is of another clock.
            let age = modified.elapsed().ok().and_then(|age| now.checked_sub(age));
            self.changed = Some(age.filter(|at| *at >= self.looked).unwrap_or(now));
            self.known = Some(modified);
        }
        self.looked = now;
        self.changed
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// The signs of one worker.
#[derive(Debug, Clone)]
pub(super) struct WorkerSigns {
    output: std::sync::Arc<LastOutput>,
    logs: Vec<FileSign>,
    beat: FileSign,
}

impl WorkerSigns {
    /// The signs of a worker that is about to begin: what copiers see, its log files, and its beats.
    pub(super) fn new(
        output: std::sync::Arc<LastOutput>,
        logs: impl IntoIterator<Item = PathBuf>,
        beat: &Path,
    ) -> Self {
        let logs = logs.into_iter().map(|path| FileSign::new(&path)).collect();
        Self { output, logs, beat: FileSign::new(beat) }
    }

    fn output(&mut self) -> Option<Instant> {
        let written = self.logs.iter_mut().filter_map(FileSign::look).max();
        self.output.at().max(written)
    }

    /// The step of the last beat, if it said one.
    fn step(&self) -> Option<u64> {
        let mut text = String::new();
        File::open(&self.beat.path).ok()?.take(32).read_to_string(&mut text).ok()?;
        text.split_ascii_whitespace().next()?.parse().ok()
    }
}

/// The signs of the workers of one start.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgressSigns {
    sign: ProgressSign,
    file: Option<FileSign>,
    /// The output of the workers cannot be seen, so it is not expected.
    hides_output: bool,
    workers: Vec<WorkerSigns>,
}

impl ProgressSigns {
    /// With the signs of each worker.
    pub(super) fn of_workers(self, workers: Vec<WorkerSigns>) -> Self {
        Self { workers, ..self }
    }

    /// With the signs of workers that another launcher has started: their beats are in this directory, and their output
    /// is seen as far as it is in log files. Blocks on the disk.
    pub(crate) fn of_foreign(self, beats: &Path, ranks: Range<u32>, logs: &[PathBuf]) -> Self {
        let hides_output = logs.is_empty();
        let mut logs = logs.iter().map(|path| FileSign::new(path)).collect();
        let each = ranks.map(|rank| WorkerSigns {
            output: std::sync::Arc::new(LastOutput::new()),
            // The signs of all workers count, so it does not matter whose log it is.
            logs: std::mem::take(&mut logs),
            beat: FileSign::of_new(beats.join(rank.to_string())),
        });
        Self { workers: each.collect(), hides_output, ..self }
    }

    /// The last sign of any worker. `is_first`: whether the node has rank 0. Blocks on the disk.
    pub(crate) fn latest(&mut self, is_first: bool) -> Option<Instant> {
        // Only what is the sign is looked at: log files may be on a file system that does not answer.
        match self.sign {
            ProgressSign::Beat => self.beat(),
            ProgressSign::Output if self.hides_output => Some(Instant::now()),
            ProgressSign::Output => self.output(),
            ProgressSign::File(_) => self.file.as_mut().and_then(FileSign::look),
            ProgressSign::Auto => match self.beat() {
                Some(beat) => Some(beat),
                None if is_first && !self.hides_output => self.output(),
                // Nothing is expected of these workers.
                None => Some(Instant::now()),
            },
        }
    }

    fn beat(&mut self) -> Option<Instant> {
        self.workers.iter_mut().filter_map(|worker| worker.beat.look()).max()
    }

    fn output(&mut self) -> Option<Instant> {
        self.workers.iter_mut().filter_map(WorkerSigns::output).max()
    }

    /// The step of each worker, by local rank. Blocks on the disk.
    pub(crate) fn steps(&self) -> Vec<Option<u64>> {
        self.workers.iter().map(WorkerSigns::step).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Ground {
        directory: tempfile::TempDir,
        output: Arc<LastOutput>,
        signs: ProgressSigns,
    }

    fn ground(sign: ProgressSign) -> Ground {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("log"), "").unwrap();
        fs::write(path("old"), "").unwrap();
        let file = FileSign::new(&path("old"));
        let output = Arc::new(LastOutput::new());
        let workers = vec![WorkerSigns::new(output.clone(), [path("log")], &path("beat"))];
        let signs = ProgressSigns { sign, file: Some(file), hides_output: false, workers };
        Ground { directory, output, signs }
    }

    impl Ground {
        fn touch(&self, name: &str, text: &str) {
            std::thread::sleep(Duration::from_millis(20));
            fs::write(self.directory.path().join(name), text).unwrap();
        }

        /// Whether there is a sign that was not there before `since`.
        fn has_sign(&mut self, is_first: bool, since: Instant) -> bool {
            self.signs.latest(is_first).is_some_and(|at| at >= since && at <= Instant::now())
        }
    }

    #[test]
    fn each_sign_is_seen_by_its_own_kind_alone() {
        let kinds = [
            ProgressSign::Output,
            ProgressSign::Beat,
            ProgressSign::File("old".into()),
            ProgressSign::Auto,
        ];
        for (sign, expected) in kinds.into_iter().zip([
            // Output that is copied, a log, a beat, another file.
            [true, true, false, false],
            [false, false, true, false],
            [false, false, false, true],
            [true, true, true, false],
        ]) {
            for (number, expected) in expected.into_iter().enumerate() {
                let mut ground = ground(sign.clone());
                let since = Instant::now();
                assert_eq!(ground.signs.latest(true), None, "what is there is no sign");
                match number {
                    0 => ground.output.note(),
                    1 => ground.touch("log", "a"),
                    2 => ground.touch("beat", "7"),
                    _ => ground.touch("old", "a"),
                }
                // Milliseconds are cut.
                let since = since.checked_sub(Duration::from_millis(1)).unwrap();
                assert_eq!(ground.has_sign(true, since), expected, "{sign} {number}");
            }
        }
    }

    #[test]
    fn a_beat_replaces_output_and_output_is_expected_of_rank_0_alone() {
        let mut other = ground(ProgressSign::Auto);
        let now = Instant::now();
        assert!(other.has_sign(false, now), "nothing is expected of it");
        let mut first = ground(ProgressSign::Auto);
        first.touch("beat", "7\n");
        let beaten = first.signs.latest(true);
        first.touch("log", "a");
        assert_eq!(first.signs.latest(true), beaten);
        assert_eq!(first.signs.latest(false), beaten);
    }

    #[test]
    fn output_of_foreign_workers_is_expected_only_where_it_is_seen() {
        for (sign, logs, expected) in [
            (ProgressSign::Auto, vec![], true),
            (ProgressSign::Output, vec![], true),
            (ProgressSign::Beat, vec![], false),
            (ProgressSign::Auto, vec!["log"], false),
            (ProgressSign::Output, vec!["log"], false),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let logs: Vec<PathBuf> = logs.iter().map(|log| directory.path().join(log)).collect();
            let spec = ProgressSpec::new(sign.clone()).unwrap();
            let beats = spec.beat_directory(1).unwrap();
            let mut signs = spec.signs().of_foreign(&beats, 4..6, &logs);
            assert_eq!(signs.latest(true).is_some(), expected, "{sign} {logs:?}");
            fs::write(beats.join("5"), "7\n").unwrap();
            let beat = signs.latest(true).filter(|_| sign != ProgressSign::Output);
            assert_eq!(beat.is_some(), sign != ProgressSign::Output, "{sign} {logs:?}");
            assert_eq!(signs.steps(), [None, Some(7)]);
        }
    }

    #[test]
    fn a_beat_may_say_its_step() {
        let ground = ground(ProgressSign::Beat);
        assert_eq!(ground.signs.steps(), [None]);
        for (text, step) in [("", None), ("12\n", Some(12)), ("7 of 9", Some(7)), ("x", None)] {
            fs::write(ground.directory.path().join("beat"), text).unwrap();
            assert_eq!(ground.signs.steps(), [step], "{text:?}");
        }
    }

    /// The clock of a file server may be ahead, or behind.
    #[test]
    fn a_time_of_another_clock_is_between_two_looks() {
        for other in [Duration::from_secs(0), Duration::from_secs(4_000_000_000)] {
            let mut ground = ground(ProgressSign::File("old".into()));
            let begun = Instant::now();
            assert_eq!(ground.signs.latest(true), None);
            let file = File::options().write(true).open(ground.directory.path().join("old"));
            file.unwrap().set_modified(SystemTime::UNIX_EPOCH + other).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let seen = Instant::now();
            assert!(ground.has_sign(true, begun), "{other:?}");
            assert!(
                ground.signs.latest(true) >= Some(seen),
                "an impossible age is none: {other:?}"
            );
        }
    }
}
