//! Workers that say that they are there, and then do what the test tells them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::processes::has_environment;
use super::until_true;
use crate::etcd_server::lives;

/// What such a worker runs. Each start has a file, which is there as soon as the worker takes orders, and a
/// pipe for the orders. The first argument is an order that comes before all others.
pub const SCRIPT: &str = r#"
here=$JOB/workers
mine=$here/$RALLYPOINT_ROUND.$RANK.$RALLYPOINT_ATTEMPT.$$
mkfifo "$mine.orders"
exec 3<>"$mine.orders"
eval "$1"
env -0 > "$mine.new"
mv "$mine.new" "$mine.start"
while :; do
    read -r order <&3 || continue
    eval "$order"
done
"#;

/// A worker that was started.
#[derive(Debug, Clone)]
pub struct Worker {
    pub round: u64,
    pub rank: usize,
    pub attempt: u64,
    pub pid: u32,
    pub environment: BTreeMap<String, String>,
    orders: PathBuf,
    job: PathBuf,
}

impl Worker {
    /// Reads what one said at its start.
    pub(super) fn read(job: &Path, path: &Path) -> Self {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let numbers: Vec<u64> = name.split('.').map(|number| number.parse().unwrap()).collect();
        let [round, rank, attempt, pid] = numbers[..] else { panic!("{}", path.display()) };
        let text = String::from_utf8(std::fs::read(path).unwrap()).unwrap();
        let pairs = text.split_terminator('\0').map(|line| line.split_once('=').unwrap());
        Self {
            round,
            rank: rank.try_into().unwrap(),
            attempt,
            pid: pid.try_into().unwrap(),
            environment: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            orders: path.with_extension("orders"),
            job: job.to_owned(),
        }
    }

    /// A variable of its environment.
    pub fn get(&self, name: &str) -> &str {
        self.environment.get(name).unwrap_or_else(|| panic!("rank {} has no {name}", self.rank))
    }

    /// The same, as a number.
    pub fn number(&self, name: &str) -> usize {
        let value = self.get(name);
        value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}"))
    }

    /// Which launcher started it.
    pub fn launcher(&self) -> usize {
        self.number("LAUNCHER")
    }

    /// Where the workers meet.
    pub fn master(&self) -> String {
        format!("{}:{}", self.get("MASTER_ADDR"), self.get("MASTER_PORT"))
    }

    /// Tells it to run some shell, if it still lives. Not while a signal is on its way to it that it has a
    /// trap for: a shell that is interrupted forgets what it has read of a line.
    pub fn tell(&self, order: &str) {
        // Without this, opening the pipe would wait for a reader.
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits().try_into().unwrap();
        let pipe = File::options().write(true).custom_flags(nonblock).open(&self.orders);
        if let Ok(mut pipe) = pipe {
            let _ = writeln!(pipe, "{order}");
        }
    }

    /// Tells it to run some shell, and waits until it has.
    pub fn does(&self, order: &str) {
        let done = self.orders.with_extension("done");
        self.tell(&format!("{order}; : > '{}'", done.display()));
        until_true(&format!("rank {} has done {order:?}", self.rank), || done.exists());
        std::fs::remove_file(done).unwrap();
    }

    pub fn lives(&self) -> bool {
        has_environment(self.pid, &self.job) && lives(self.pid)
    }

    /// Waits until it is gone.
    pub fn is_gone(&self) {
        until_true(&format!("{} of rank {} is gone", self.pid, self.rank), || !self.lives());
    }
}
