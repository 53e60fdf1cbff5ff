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
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rallypoint_core::agent::{AgentInput, AgentOutput, AgentSettings};
use rallypoint_core::events::{Detail, Journal, Moment, Observation};
use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::documents::NodeDocument;
use rallypoint_core::rendezvous::{Node, NodeConfig, NodeInput, NodeOutput};
use rustix::process::setpriority_process;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::log_target::LAUNCH;
use crate::util::clock::display_time;

/// Bytes of lines that wait to be written. Beyond that, lines are dropped.
const QUEUE: usize = 16 << 20;

/// The memory that is kept for lines to come.
const KEPT: usize = 1 << 20;

/// The priority of the thread that writes, as `nice` has it.
const PRIORITY: i32 = 10;

/// The time for which the first of some lines waits for the others: a round forms in many steps, and to write each by
/// itself costs more than to make it.
const PAUSE: Duration = Duration::from_millis(10);

/// The time limit for writing the last lines.
const GOODBYE: Duration = Duration::from_secs(5);

/// Takes each event of a node as it happens, with its time, and must not wait.
pub(crate) type EventListener = Box<dyn Fn(Time, &Observation) + Send>;

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
    detail: Detail,
    /// None without a file.
    queue: Option<Arc<LineQueue>>,
    /// The lines of the step that is recorded.
    text: Vec<u8>,
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
        Self::new(Path::new(""), Detail::Nothing, None)
    }

    fn new(path: &Path, detail: Detail, queue: Option<Arc<LineQueue>>) -> Self {
        let text = Vec::new();
        let state =
            RecorderState { journal: None, detail, queue, text, observer: None, said: false };
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
        let began = |journal: &mut Journal, text: &mut Vec<u8>| {
            journal.node_began(at, config, document, entropy, text);
            ((), Vec::new())
        };
        self.record(at, Some((run_id, &document.id)), began);
    }

    /// Gives the node an input, and records it with what follows. Returns what the node decided.
    pub(crate) fn node_step(
        &self,
        now: Time,
        input: NodeInput,
        node: &mut Node,
    ) -> Vec<NodeOutput> {
        let at = self.moment(now);
        self.record(at, None, |journal, text| journal.node_step(at, input, node, text))
    }

    /// Records an agent before its first input. Its times have the same origin as the recorder.
    pub fn agent_began(&self, run_id: &str, node_id: &str, settings: &AgentSettings) {
        let at = self.moment(self.0.origin.elapsed());
        let began = |journal: &mut Journal, text: &mut Vec<u8>| {
            journal.agent_began(at, settings, text);
            ((), Vec::new())
        };
        self.record(at, Some((run_id, node_id)), began);
    }

    /// Records an input of the agent, and the outputs that followed.
    pub fn agent_step(&self, now: Time, input: &AgentInput, outputs: &[AgentOutput]) {
        let at = self.moment(now);
        self.record(at, None, |journal, text| ((), journal.agent_step(at, input, outputs, text)));
    }

    fn moment(&self, now: Time) -> Moment {
        Moment { now, wall: display_time().unix_millis() }
    }

    /// Passes lines on to the writer, and events to the observer. The journal begins with the ids of the run and of the
    /// node.
    fn record<T>(
        &self,
        at: Moment,
        ids: Option<(&str, &str)>,
        record: impl FnOnce(&mut Journal, &mut Vec<u8>) -> (T, Vec<Observation>),
    ) -> T {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let RecorderState { journal, detail, queue, text, observer, said } = &mut *state;
        let (run_id, node_id) = ids.unwrap_or_default();
        let journal = journal.get_or_insert_with(|| Journal::new(run_id, node_id, *detail));
        text.clear();
        let (result, events) = record(journal, text);
        if let Some(queue) = queue
            && !queue.append(text)
            && !std::mem::replace(said, true)
        {
            let path = &self.0.path;
            tracing::warn!(
                target: LAUNCH,
                "events come faster than {path:?} takes them, and some are dropped; the job goes on"
            );
        }
        if let Some(observe) = observer {
            events.iter().for_each(|event| observe(at.now, event));
        }
        result
    }
}

/// Lines on their way to the thread that writes them.
#[derive(Default)]
struct LineQueue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    text: Vec<u8>,
    /// There will be no more lines.
    is_closed: bool,
}

impl fmt::Debug for LineQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineQueue").finish_non_exhaustive()
    }
}

impl LineQueue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends lines, or none of them if too much waits: then the result is false.
    fn append(&self, lines: &[u8]) -> bool {
        // Most steps have no event. They must not wake the writer.
        if lines.is_empty() {
            return true;
        }
        let mut waiting = self.waiting();
        let Waiting { text, is_closed } = &mut *waiting;
        if *is_closed {
            return true;
        }
        let (is_first, has_room) = (text.is_empty(), text.len() + lines.len() <= QUEUE);
        if has_room {
            text.extend_from_slice(lines);
        }
        drop(waiting);
        // The writer sleeps only if there is nothing to write.
        if is_first {
            self.changed.notify_one();
        }
        has_room
    }

    /// Waits for lines, and takes those that come within [`PAUSE`]. False at the end. `lines` is empty.
    fn take(&self, lines: &mut Vec<u8>) -> bool {
        let is_idle = |waiting: &mut Waiting| waiting.text.is_empty() && !waiting.is_closed;
        let waiting = self.changed.wait_while(self.waiting(), is_idle);
        let waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let is_open = |waiting: &mut Waiting| !waiting.is_closed;
        let paused = self.changed.wait_timeout_while(waiting, PAUSE, is_open);
        let (mut waiting, _) = paused.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.text, lines);
        !lines.is_empty()
    }
}

/// Closes the queue when it is dropped: lines that come later are not written.
#[derive(Debug)]
struct OpenQueue(Arc<LineQueue>);

impl Drop for OpenQueue {
    fn drop(&mut self) {
        self.0.waiting().is_closed = true;
        self.0.changed.notify_one();
    }
}

/// The file of the events of a node, or of several nodes of this process, and the thread that writes it.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    detail: Detail,
    queue: OpenQueue,
    writer: JoinHandle<()>,
    done: oneshot::Receiver<()>,
}

impl EventFile {
    /// Opens a file to append events to, and creates it if there is none, readable by its owner alone. With `records`, it
    /// also has what the machines were told, for a replay.
    ///
    /// # Errors
    /// If the file cannot be opened, or no thread started.
    pub fn append(path: &Path, records: bool) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let cut_off = is_cut_off(&mut file)?;
        let queue = Arc::new(LineQueue::default());
        let (finished, done) = oneshot::channel();
        let writer = Writer { file, path: path.to_owned(), cut_off, said: false };
        let lines = queue.clone();
        let writer = std::thread::Builder::new().name("events".to_owned()).spawn(move || {
            writer.run(&lines);
            let _ = finished.send(());
        })?;
        let detail = if records { Detail::Records } else { Detail::Events };
        Ok(Self { path: path.to_owned(), detail, queue: OpenQueue(queue), writer, done })
    }

    /// A recorder for one more node, which writes to this file.
    pub fn recorder(&self) -> EventRecorder {
        EventRecorder::new(&self.path, self.detail, Some(self.queue.0.clone()))
    }

    /// Waits until all lines are written, at most a few seconds. Later events are not recorded.
    pub async fn close(self) {
        let Self { path, queue, writer, done, .. } = self;
        drop(queue);
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
    fn run(mut self, queue: &LineQueue) {
        // Workers, and what the launcher does for them, come first.
        let _ = setpriority_process(None, PRIORITY);
        let mut lines = Vec::new();
        while queue.take(&mut lines) {
            self.write(&lines);
            lines.clear();
            lines.shrink_to(KEPT);
        }
    }

    /// Writes lines, in one piece. An error does not stop the job: the next lines are tried again.
    fn write(&mut self, lines: &[u8]) {
        let end: &[u8] = if self.cut_off { b"\n" } else { b"" };
        let written = self.file.write_all(end).and_then(|()| self.file.write_all(lines));
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
