//! The events of a node, in a file: what the machines of [`rallypoint_core::events`] record.
//!
//! The recorder is called from async code and never waits: a thread of its own writes the lines.

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rallypoint_core::agent::{AgentInput, AgentOutput, AgentSettings};
use rallypoint_core::events::{Journal, Moment, RunEvent};
use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::documents::NodeDocument;
use rallypoint_core::rendezvous::{Node, NodeConfig, NodeInput, NodeOutput};
use rustix::process::setpriority_process;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::log_target::LAUNCH;
use crate::util::clock::display_time;

/// Lines that wait to be written. Beyond that, lines are dropped.
const QUEUE: usize = 8192;

/// The priority of the thread that writes, as `nice` has it.
const PRIORITY: i32 = 10;

/// The largest number of waiting lines that are written in one piece.
const AT_ONCE: usize = 64;

/// The time limit for writing the last lines.
const GOODBYE: Duration = Duration::from_secs(5);

/// Takes each event of a node as it happens, and must not wait.
pub(crate) type EventListener = Box<dyn Fn(&RunEvent) + Send>;

/// Records what a node is told and what it decides. Its clones share the file.
#[derive(Clone)]
pub struct EventRecorder(Arc<Recording>);

struct Recording {
    path: PathBuf,
    origin: Instant,
    state: Mutex<RecorderState>,
}

struct RecorderState {
    /// Once the node has an id.
    journal: Option<Journal>,
    /// Until the file is closed.
    lines: Option<SyncSender<Box<RunEvent>>>,
    observer: Option<EventListener>,
    /// The log has said that lines were dropped.
    said: bool,
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventRecorder").field(&self.0.path).finish()
    }
}

impl PartialEq for EventRecorder {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for EventRecorder {}

impl EventRecorder {
    /// A recorder without a file, for an observer.
    #[cfg(feature = "cli")]
    pub(crate) fn without_file() -> Self {
        Self::new(Path::new(""), None)
    }

    fn new(path: &Path, lines: Option<SyncSender<Box<RunEvent>>>) -> Self {
        let state = RecorderState { journal: None, lines, observer: None, said: false };
        let (path, origin, state) = (path.to_owned(), Instant::now(), Mutex::new(state));
        Self(Arc::new(Recording { path, origin, state }))
    }

    /// Passes all events from now on to the observer as well.
    #[cfg(feature = "cli")]
    pub(crate) fn observe(&self, observer: EventListener) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).observer = Some(observer);
    }

    /// The origin of the times of all events, and of the machines that are recorded.
    pub fn origin(&self) -> Instant {
        self.0.origin
    }

    pub(crate) fn node_began(
        &self,
        run_id: &str,
        config: &NodeConfig,
        document: &NodeDocument,
        entropy: u64,
    ) {
        let at = self.moment(self.0.origin.elapsed());
        let began = |journal: &mut Journal| journal.node_began(at, config, document, entropy);
        self.record(|| Some(Journal::new(run_id, &document.id)), began);
    }

    pub(crate) fn node_step(
        &self,
        now: Time,
        input: NodeInput,
        outputs: &[NodeOutput],
        node: &Node,
    ) {
        let at = self.moment(now);
        self.record(|| None, |journal| journal.node_step(at, input, outputs, node));
    }

    /// Records an agent before its first input. Its times have the same origin as the recorder.
    pub fn agent_began(&self, run_id: &str, node_id: &str, settings: &AgentSettings) {
        let at = self.moment(self.0.origin.elapsed());
        let began = |journal: &mut Journal| journal.agent_began(at, settings);
        self.record(|| Some(Journal::new(run_id, node_id)), began);
    }

    /// Records an input of the agent, and the outputs that followed.
    pub fn agent_step(&self, now: Time, input: &AgentInput, outputs: &[AgentOutput]) {
        let at = self.moment(now);
        self.record(|| None, |journal| journal.agent_step(at, input, outputs));
    }

    fn moment(&self, now: Time) -> Moment {
        Moment { now, wall: display_time().unix_millis() }
    }

    /// Passes lines on to the writer. `begin` makes the journal, if there is none.
    fn record(
        &self,
        begin: impl FnOnce() -> Option<Journal>,
        lines: impl FnOnce(&mut Journal) -> Vec<RunEvent>,
    ) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let RecorderState { journal, lines: queue, observer, said } = &mut *state;
        if journal.is_none() {
            // Records are for a file; an observer takes events alone.
            let has_file = queue.is_some();
            let of = |journal: Journal| if has_file { journal } else { journal.without_records() };
            *journal = begin().map(of);
        }
        let wanted = queue.is_some() || observer.is_some();
        let Some(journal) = journal.as_mut().filter(|_| wanted) else { return };
        for event in lines(journal) {
            if let Some(observe) = observer {
                observe(&event);
            }
            let Some(queue) = queue else { continue };
            let sent = queue.try_send(Box::new(event));
            if matches!(sent, Err(TrySendError::Full(_))) && !std::mem::replace(said, true) {
                let path = &self.0.path;
                tracing::warn!(
                    target: LAUNCH,
                    "events come faster than {path:?} takes them, and some are dropped; the job goes on"
                );
            }
        }
    }
}

/// The file of the events of a node, or of several nodes of this process, and the thread that writes it.
#[derive(Debug)]
pub struct EventFile {
    /// The recorder of each node.
    recorders: Vec<EventRecorder>,
    path: PathBuf,
    lines: SyncSender<Box<RunEvent>>,
    writer: JoinHandle<()>,
    done: oneshot::Receiver<()>,
}

impl EventFile {
    /// Opens a file to append events to, and creates it if there is none, readable by its owner alone.
    ///
    /// # Errors
    /// If the file cannot be opened, or no thread started.
    pub fn append(path: &Path) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let cut_off = is_cut_off(&mut file)?;
        let (sender, lines) = sync_channel(QUEUE);
        let (finished, done) = oneshot::channel();
        let writer = Writer { file, path: path.to_owned(), cut_off, said: false };
        let writer = std::thread::Builder::new().name("events".to_owned()).spawn(move || {
            writer.run(&lines);
            let _ = finished.send(());
        })?;
        Ok(Self { recorders: Vec::new(), path: path.to_owned(), lines: sender, writer, done })
    }

    /// A recorder for one more node, which writes to this file.
    pub fn recorder(&mut self) -> EventRecorder {
        let recorder = EventRecorder::new(&self.path, Some(self.lines.clone()));
        self.recorders.push(recorder.clone());
        recorder
    }

    /// Waits until all lines are written, at most a few seconds. Later events are not recorded.
    pub async fn close(self) {
        let Self { recorders, path, lines, writer, done } = self;
        drop(lines);
        for recorder in recorders {
            recorder.0.state.lock().unwrap_or_else(PoisonError::into_inner).lines = None;
        }
        if timeout(GOODBYE, done).await.is_ok() {
            let _ = writer.join();
        } else {
            tracing::warn!(target: LAUNCH, "the last events were not written to {path:?} in time");
        }
    }
}

/// Whether the last line of the file has no end.
fn is_cut_off(file: &mut File) -> io::Result<bool> {
    let about = file.metadata()?;
    if !about.is_file() || about.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// The thread that writes the lines.
struct Writer {
    file: File,
    path: PathBuf,
    /// The last line has no end.
    cut_off: bool,
    /// The log has said that the file cannot be written.
    said: bool,
}

impl Writer {
    fn run(mut self, events: &Receiver<Box<RunEvent>>) {
        // Workers, and what the launcher does for them, come first.
        let _ = setpriority_process(None, PRIORITY);
        while let Ok(event) = events.recv() {
            let mut lines = if self.cut_off { "\n".to_owned() } else { String::new() };
            for event in std::iter::once(event).chain(events.try_iter().take(AT_ONCE)) {
                lines += &event.to_line();
                lines.push('\n');
            }
            self.write(&lines);
        }
    }

    /// Writes lines, in one piece. An error does not stop the job: the next lines are tried again.
    fn write(&mut self, lines: &str) {
        let written = self.file.write_all(lines.as_bytes());
        self.cut_off = written.is_err();
        if let Err(error) = written
            && !std::mem::replace(&mut self.said, true)
        {
            let path = &self.path;
            tracing::warn!(
                target: LAUNCH,
                "events cannot be written to {path:?}: {error}; the job goes on without them"
            );
        }
    }
}
