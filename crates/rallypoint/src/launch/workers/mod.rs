//! The workers: the processes of one start, their output and their exits.
//!
//! - `spec`, `log_dir`: what all starts have in common; where the files go.
//! - `search`, `worker`: whether the program is there; one process group with its environment.
//! - `notices`: what they are told before they are stopped.
//! - `numa`: which processors each is bound to.
//! - `streams`, `output`, `lines`: where output goes; who copies it; lines for the console.
//! - `progress`: signs that they make progress.
//! - `record`: what is known of a worker that is gone.

mod copiers;
mod error;
pub(super) mod exit_record;
pub(super) mod lines;
mod log_dir;
pub(super) mod notices;
mod numa;
mod progress;
mod search;
mod spec;
mod streams;
mod worker;

use std::env;
use std::future::{pending, poll_fn};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};

use rallypoint_core::agent::{Exit, Exited, SIGKILL, Start};
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

pub(crate) use self::copiers::OutputCopiers;
pub(crate) use self::error::StartError;
pub(crate) use self::exit_record::ExitRecord;
pub(crate) use self::progress::{ProgressSigns, ProgressSpec};
pub(crate) use self::spec::WorkerSpec;
use self::worker::Worker;
use crate::launch::job::Program;
use crate::log_target::LAUNCH;
use crate::process::{ProcessGroup, SignalOffer};
use crate::util::blocking::blocking;

/// The workers of one start.
///
/// Dropping it kills every process that is left of them and waits until they are gone: some milliseconds, or
/// if the kernel cannot end them, seconds. Their output is with the [`OutputCopiers`] of the spec.
pub(crate) struct WorkerGroup {
    attempt: u64,
    workers: Vec<Worker>,
    signs: Option<Arc<Mutex<ProgressSigns>>>,
    exits: Mutex<mpsc::UnboundedReceiver<Exited>>,
    /// One task for each worker, which reports its exit.
    watchers: TaskTracker,
    _watching: Vec<AbortOnDropHandle<()>>,
}

impl WorkerGroup {
    /// Starts the workers. If one cannot be started, those before it may run, and are in the group. Dropping the future
    /// kills the started processes.
    pub(crate) async fn start(spec: &WorkerSpec, start: &Start) -> (Self, Result<(), StartError>) {
        let (spec, start) = (spec.clone(), start.clone());
        let attempt = start.attempt;
        let (workers, signs, started) = blocking(move || {
            // A file system that does not answer must not come between the workers and their owner.
            let signs = spec.progress.as_ref().map(|progress| progress.signs());
            let (mut workers, started) = start_all(&spec, &start);
            let each = workers.iter_mut().filter_map(|worker| worker.signs.take()).collect();
            (workers, signs.map(|signs| signs.of_workers(each)), started)
        })
        .await;
        (Self::of(attempt, workers, signs), started)
    }

    fn of(attempt: u64, workers: Vec<Worker>, signs: Option<ProgressSigns>) -> Self {
        let (sender, exits) = mpsc::unbounded_channel();
        let watchers = TaskTracker::new();
        let watch = |worker: &Worker| {
            let (local_rank, record) = (worker.local_rank, worker.record.clone());
            let (exited, sender) = (worker.group.exited(), sender.clone());
            let input = worker.input.clone();
            let watcher = async move {
                let exit = exit(exited.await);
                if let Some(input) = input {
                    input.take_back();
                }
                let message = record.note_end().await.error.as_ref();
                let message = message.map(|error| error.said.message.clone());
                // The receiver may be gone.
                let _ = sender.send(Exited { attempt, local_rank, exit, message });
            };
            AbortOnDropHandle::new(watchers.spawn(watcher))
        };
        let watching = workers.iter().map(watch).collect();
        watchers.close();
        let exits = Mutex::new(exits);
        let signs = signs.map(|signs| Arc::new(Mutex::new(signs)));
        Self { attempt, workers, signs, exits, watchers, _watching: watching }
    }

    /// The start that the workers belong to.
    pub(crate) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// The next exit of a worker, with the message in its error file. Each exit is reported once; after the last one
    /// this waits for ever. Cancel-safe. For one caller at a time.
    pub(crate) async fn next_exit(&self) -> Exited {
        let next = |context: &mut std::task::Context<'_>| {
            self.exits.lock().unwrap_or_else(PoisonError::into_inner).poll_recv(context)
        };
        match poll_fn(next).await {
            Some(exited) => exited,
            None => pending().await,
        }
    }

    /// Sends a signal to every remaining process of every worker. An unknown number is not sent.
    pub(crate) fn signal(&self, signal: i32) {
        let Some(signal) = named(signal) else { return };
        for worker in &self.workers {
            worker.group.signal(signal);
        }
    }

    /// Sends a signal to the workers that handle it. Their children do not get it: a child without a
    /// handler would die, and its worker may rely on it.
    pub(crate) fn notify(&self, signal: i32) -> Notified {
        let mut notified = Notified::default();
        let Some(signal) = named(signal) else { return notified };
        for worker in &self.workers {
            match worker.group.offer(signal) {
                SignalOffer::Sent => notified.living += 1,
                SignalOffer::WouldKill => {
                    notified.living += 1;
                    notified.spared.push(worker.local_rank);
                }
                SignalOffer::Ended => {}
            }
        }
        notified
    }

    /// Waits until no process of any worker is left; not for their output, whose reader may be slow. After that, all
    /// exits are available at once from [`WorkerGroup::next_exit`]. Can be called again.
    /// Cancel-safe.
    pub(crate) async fn gone(&self) {
        for worker in &self.workers {
            worker.group.gone().await;
        }
        self.watchers.wait().await;
    }

    /// The ids of the process groups that are left, for an error message.
    pub(crate) fn left(&self) -> Vec<u32> {
        let groups = self.workers.iter().map(|worker| &worker.group);
        groups.filter(|group| group.is_left()).map(ProcessGroup::id).collect()
    }

    /// Whether this worker has the terminal, so that Ctrl-C reaches it alone.
    pub(crate) fn has_terminal(&self, local_rank: u32) -> bool {
        let mut workers = self.workers.iter().filter(|worker| worker.local_rank == local_rank);
        workers.any(|worker| worker.input.as_ref().is_some_and(|input| input.is_terminal()))
    }

    /// The workers' notice files.
    pub(crate) fn notices(&self) -> Vec<PathBuf> {
        let files = self.workers.iter().filter_map(|worker| worker.files.as_ref());
        files.map(|files| files.notice.clone()).collect()
    }

    /// The signs of progress, if the launcher looks for them.
    pub(crate) fn signs(&self) -> Option<Arc<Mutex<ProgressSigns>>> {
        self.signs.clone()
    }

    /// The workers, by local rank: the id of the process group, or `None` if no process of it is left.
    pub(crate) fn groups(&self) -> Vec<Option<u32>> {
        let groups = self.workers.iter().map(|worker| &worker.group);
        groups.map(|group| group.is_left().then(|| group.id())).collect()
    }

    /// The workers' exit records, by local rank.
    pub(crate) fn exit_records(&self) -> Vec<Arc<ExitRecord>> {
        self.workers.iter().map(|worker| worker.record.clone()).collect()
    }
}

/// The effect of a signal to the workers.
#[derive(Debug, Default)]
pub(crate) struct Notified {
    /// The number of live workers.
    pub(crate) living: usize,
    /// The local ranks of workers without a handler, which did not get the signal.
    pub(crate) spared: Vec<u32>,
}

fn named(signal: i32) -> Option<Signal> {
    let named = Signal::from_named_raw(signal);
    if named.is_none() {
        tracing::warn!(target: LAUNCH, signal, "there is no such signal");
    }
    named
}

impl Drop for WorkerGroup {
    fn drop(&mut self) {
        // Before the groups are dropped one by one, which waits for each.
        self.signal(SIGKILL);
    }
}

/// Checks that the program can be found and executed. Blocks on the disk.
///
/// # Errors
/// [`StartError`] names the searched places, or why the file is no program.
pub(crate) fn check(program: &Program) -> Result<(), StartError> {
    search::check(&program.path, env::var_os("PATH").as_deref())
}

/// Starts the workers, up to the first that cannot be started.
fn start_all(spec: &WorkerSpec, start: &Start) -> (Vec<Worker>, Result<(), StartError>) {
    if let Err(error) = check(&spec.program) {
        return (Vec::new(), Err(error));
    }
    let mut workers = Vec::new();
    for local_rank in 0..spec.environment.local_workers {
        match Worker::start(spec, start, local_rank) {
            Ok(worker) => workers.push(worker),
            Err(error) => return (workers, Err(error)),
        }
    }
    if spec.log_dir.is_kept() {
        say_where(&workers);
    }
    (workers, Ok(()))
}

/// Logs the directories of the workers' files, in one line.
fn say_where(workers: &[Worker]) {
    let directories = workers.iter().filter_map(|worker| Some(&worker.files.as_ref()?.directory));
    let names = directories.clone().filter_map(|directory| directory.file_name()?.to_str());
    let names: Vec<&str> = names.collect();
    if let Some(round) = directories.clone().next().and_then(|directory| directory.parent()) {
        tracing::info!(
            target: LAUNCH,
            "files of local ranks 0 to {}: {}/{{{}}}",
            workers.len() - 1,
            round.display(),
            names.join(",")
        );
    }
}

/// How a process ended.
pub(super) fn exit(status: io::Result<ExitStatus>) -> Exit {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Unknown(status.to_string()),
        },
        Err(error) => Exit::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
