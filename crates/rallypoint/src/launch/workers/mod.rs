//! The workers: the processes of one start, their output and their end.
//!
//! - `outfit`, `home`: what all starts have in common; where the files go.
//! - `search`, `worker`: whether the program is there; one process group with its environment.
//! - `notices`: what they are told before they are stopped.
//! - `numa`: which processors each is bound to.
//! - `streams`, `output`, `lines`: where output goes; who copies it; lines for the console.
//! - `trace`: what is known of a worker that is gone.

mod error;
mod home;
mod lines;
pub(super) mod notices;
mod numa;
mod outfit;
mod output;
mod search;
mod streams;
pub(super) mod trace;
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

pub(crate) use self::error::StartError;
pub(crate) use self::outfit::Outfit;
pub(crate) use self::output::Output;
pub(crate) use self::trace::Trace;
use self::worker::Worker;
use crate::cli::run::program::Program;
use crate::process::{Group, Offer};
use crate::util::blocking::blocking;

/// The workers of one start.
///
/// Dropping it kills every process that is left of them and waits until they are gone: some milliseconds, or
/// if the kernel cannot end them, seconds. Their output is with the [`Output`] of the outfit.
pub(crate) struct Crew {
    attempt: u64,
    workers: Vec<Worker>,
    exits: Mutex<mpsc::UnboundedReceiver<Exited>>,
    /// One for each worker, which sees its end.
    watchers: TaskTracker,
    _watching: Vec<AbortOnDropHandle<()>>,
}

impl Crew {
    /// Starts the workers. If one cannot be started, those before it may run, and are in the crew all the
    /// same. Dropping the future ends what was started.
    pub(crate) async fn start(outfit: &Outfit, start: &Start) -> (Self, Result<(), StartError>) {
        let (outfit, start) = (outfit.clone(), start.clone());
        let attempt = start.attempt;
        let (workers, started) = blocking(move || start_all(&outfit, &start)).await;
        (Self::of(attempt, workers), started)
    }

    fn of(attempt: u64, workers: Vec<Worker>) -> Self {
        let (sender, exits) = mpsc::unbounded_channel();
        let watchers = TaskTracker::new();
        let watch = |worker: &Worker| {
            let (local_rank, trace) = (worker.local_rank, worker.trace.clone());
            let (exited, sender) = (worker.group.exited(), sender.clone());
            let input = worker.input.clone();
            let watcher = async move {
                let exit = exit(exited.await);
                if let Some(input) = input {
                    input.take_back();
                }
                let message = trace.note_end().await.error.as_ref();
                let message = message.map(|error| error.said.message.clone());
                // Nobody may want to know any more.
                let _ = sender.send(Exited { attempt, local_rank, exit, message });
            };
            AbortOnDropHandle::new(watchers.spawn(watcher))
        };
        let watching = workers.iter().map(watch).collect();
        watchers.close();
        let exits = Mutex::new(exits);
        Self { attempt, workers, exits, watchers, _watching: watching }
    }

    /// Which start they are of.
    pub(crate) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// The next worker that is gone, with what its error file says. Each is told once; when all were told it
    /// waits for ever. Dropping the future loses nothing. For one caller at a time.
    pub(crate) async fn next_exit(&self) -> Exited {
        let next = |context: &mut std::task::Context<'_>| {
            self.exits.lock().unwrap_or_else(PoisonError::into_inner).poll_recv(context)
        };
        match poll_fn(next).await {
            Some(exited) => exited,
            None => pending().await,
        }
    }

    /// To every process of every worker that is left. What is no signal goes to nobody.
    pub(crate) fn signal(&self, signal: i32) {
        let Some(signal) = named(signal) else { return };
        for worker in &self.workers {
            worker.group.signal(signal);
        }
    }

    /// To those of the workers that do not die of it. Not to what they have started: it may not know the signal,
    /// and then the worker would lose what it relies on.
    pub(crate) fn notify(&self, signal: i32) -> Notified {
        let mut notified = Notified::default();
        let Some(signal) = named(signal) else { return notified };
        for worker in &self.workers {
            match worker.group.offer(signal) {
                Offer::Taken => notified.living += 1,
                Offer::Deadly => {
                    notified.living += 1;
                    notified.spared.push(worker.local_rank);
                }
                Offer::Nobody => {}
            }
        }
        notified
    }

    /// Waits until no process of any worker is left; not for their output, whose reader may be slow. Then all
    /// exits can be had at once from [`Crew::next_exit`]. Can be asked again, and dropping the future loses
    /// nothing.
    pub(crate) async fn gone(&self) {
        for worker in &self.workers {
            worker.group.gone().await;
        }
        self.watchers.wait().await;
    }

    /// The numbers of the process groups that are left, to be named if they do not go.
    pub(crate) fn left(&self) -> Vec<u32> {
        let groups = self.workers.iter().map(|worker| &worker.group);
        groups.filter(|group| group.is_left()).map(Group::id).collect()
    }

    /// Whether this worker has the terminal, so that what is typed there to end a program reaches it alone.
    pub(crate) fn has_terminal(&self, local_rank: u32) -> bool {
        let mut workers = self.workers.iter().filter(|worker| worker.local_rank == local_rank);
        workers.any(|worker| worker.input.as_ref().is_some_and(|input| input.is_terminal()))
    }

    /// The files in which workers are told that they will be stopped.
    pub(crate) fn notices(&self) -> Vec<PathBuf> {
        let files = self.workers.iter().filter_map(|worker| worker.files.as_ref());
        files.map(|files| files.notice.clone()).collect()
    }

    /// What is known of the workers, for a report, by local rank.
    pub(crate) fn traces(&self) -> Vec<Arc<Trace>> {
        self.workers.iter().map(|worker| worker.trace.clone()).collect()
    }
}

/// Who was sent a signal.
#[derive(Debug, Default)]
pub(crate) struct Notified {
    /// How many workers live.
    pub(crate) living: usize,
    /// The local ranks of those that would have died of it, and were not sent it.
    pub(crate) spared: Vec<u32>,
}

fn named(signal: i32) -> Option<Signal> {
    let named = Signal::from_named_raw(signal);
    if named.is_none() {
        tracing::warn!(signal, "there is no such signal");
    }
    named
}

impl Drop for Crew {
    fn drop(&mut self) {
        // All at once, and not one after the other.
        self.signal(SIGKILL);
    }
}

/// Whether the program can be found and executed. Blocks on the disk.
///
/// # Errors
/// [`StartError`] says where it was searched, or why it is no program.
pub(crate) fn check(program: &Program) -> Result<(), StartError> {
    search::check(&program.path, env::var_os("PATH").as_deref())
}

/// Up to the first that cannot be started.
fn start_all(outfit: &Outfit, start: &Start) -> (Vec<Worker>, Result<(), StartError>) {
    if let Err(error) = check(&outfit.program) {
        return (Vec::new(), Err(error));
    }
    let mut workers = Vec::new();
    for local_rank in 0..outfit.job.local_workers {
        match Worker::start(outfit, start, local_rank) {
            Ok(worker) => workers.push(worker),
            Err(error) => return (workers, Err(error)),
        }
    }
    if outfit.home.is_kept() {
        say_where(&workers);
    }
    (workers, Ok(()))
}

/// Says which files are whose, in one line.
fn say_where(workers: &[Worker]) {
    let directories = workers.iter().filter_map(|worker| Some(&worker.files.as_ref()?.directory));
    let names = directories.clone().filter_map(|directory| directory.file_name()?.to_str());
    let names: Vec<&str> = names.collect();
    if let Some(round) = directories.clone().next().and_then(|directory| directory.parent()) {
        tracing::info!(
            "files of local ranks 0 to {}: {}/{{{}}}",
            workers.len() - 1,
            round.display(),
            names.join(",")
        );
    }
}

fn exit(status: io::Result<ExitStatus>) -> Exit {
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
