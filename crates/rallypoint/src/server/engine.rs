//! The engine: the store with its lock, clock, write-ahead log and the watch streams to wake.
//!
//! Requests run on the caller's task under one short lock; there is no queue in front of the store.
//! With a log, a write is applied at once, joins the batch that the log's thread takes next, and is
//! published and answered when that batch is on disk. Writes that arrive meanwhile form the next batch
//! (group commit), so that the speed of the disk sets the size of a batch.

mod leases;

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use rallypoint_core::kv::{Revision, Time};
use rallypoint_core::mvcc::{Mvcc, Record, StreamId};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tonic::Status;

pub(super) use self::leases::Renewal;
use super::metrics::Counters;
use super::right::EngineRight;
use super::wal::{Wal, WalError};
use crate::util::blocking::blocking;
use crate::util::random;

/// Limit of requests that wait for the disk at one time; one more is refused as too many requests.
const MOST_WAITING: usize = 20_000;

pub(super) struct Engine {
    state: Mutex<EngineState>,
    /// Wakes the log's thread when it has work.
    work: Condvar,
    /// Signals that a lease may expire earlier than the one that is waited for.
    sooner: Notify,
    /// Signals that a lease was granted or renewed.
    renewed: Notify,
    /// The origin of the store's clock.
    origin: Instant,
    /// Cancelled when the disk has failed, so that nothing can be made durable any more.
    failed: CancellationToken,
    cluster_id: u64,
    counters: Counters,
}

struct EngineState {
    store: Mvcc,
    streams: HashMap<StreamId, Arc<Notify>>,
    /// `None` without a log, or once it is closed or has failed.
    batch: Option<Batch>,
    /// The log's thread is writing a batch that is not published yet.
    writing: bool,
    open: bool,
    log_bytes: u64,
    /// The right to grant and renew leases, where hosts succeed each other as servers.
    right: Option<EngineRight>,
}

/// The records that are written next, and the requests that wait for them.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    waiters: Vec<oneshot::Sender<()>>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.waiters.is_empty()
    }
}

/// What the metrics tell of one moment.
pub(super) struct Sizes {
    pub(super) open: bool,
    pub(super) watches: usize,
    pub(super) streams: usize,
    pub(super) leases: usize,
    pub(super) revision: Revision,
    pub(super) compacted: Revision,
    pub(super) bytes: u64,
    pub(super) in_use: u64,
    pub(super) quota: usize,
}

/// The status of every request once the server stops.
pub(super) fn stopped() -> Status {
    Status::unavailable("etcdserver: server stopped")
}

impl Engine {
    /// An engine for this store. With a log, [`Engine::start_log`] must follow.
    pub(super) fn new(store: Mvcc, log: Option<&Wal>) -> Self {
        let state = EngineState {
            store,
            streams: HashMap::new(),
            batch: log.map(|_| Batch::default()),
            writing: false,
            open: true,
            log_bytes: log.map_or(0, Wal::len),
            right: None,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            sooner: Notify::new(),
            renewed: Notify::new(),
            origin: Instant::now(),
            failed: CancellationToken::new(),
            cluster_id: log.map_or_else(|| random::number().max(1), Wal::cluster_id),
            counters: Counters::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(|_| {
            self.failed.cancel();
            panic!("a panic has left the store half changed")
        })
    }

    /// Whether a panic has left the store half changed.
    pub(super) fn is_broken(&self) -> bool {
        self.state.is_poisoned()
    }

    fn now(&self) -> Time {
        self.origin.elapsed()
    }

    /// Reads the published state.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Mvcc) -> T) -> T {
        look(&self.lock().store)
    }

    /// Changes the store, and returns when the change, and all state that it may have read, is on disk
    /// and published.
    ///
    /// If the future is dropped while it waits, the change takes effect nevertheless.
    pub(super) async fn write<T>(
        &self,
        change: impl FnOnce(&mut Mvcc, Time) -> T,
    ) -> Result<T, Status> {
        self.commit(change, MOST_WAITING).await
    }

    /// [`Engine::write`], refused if `most_waiting` requests wait already.
    async fn commit<T>(
        &self,
        change: impl FnOnce(&mut Mvcc, Time) -> T,
        most_waiting: usize,
    ) -> Result<T, Status> {
        let (answer, receipt, woken) = {
            let mut state = self.lock();
            if !state.open {
                return Err(stopped());
            }
            if state.batch.as_ref().is_some_and(|batch| batch.waiters.len() >= most_waiting) {
                return Err(Status::resource_exhausted("etcdserver: too many requests"));
            }
            let answer = change(&mut state.store, self.now());
            let (receipt, woken) = state.settle();
            (answer, receipt, woken)
        };
        wake(woken);
        if let Some(receipt) = receipt {
            self.work.notify_one();
            receipt.await.map_err(|_| stopped())?;
        }
        Ok(answer)
    }

    /// The id of the cluster whose history this is.
    pub(super) fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// The size of the log in bytes, or of the store where there is no log.
    pub(super) fn bytes(&self) -> u64 {
        let state = self.lock();
        state.log_bytes.max(state.store.bytes() as u64)
    }

    // ---- Metrics

    /// What is counted.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether writes are accepted.
    pub(super) fn is_open(&self) -> bool {
        self.state.lock().is_ok_and(|state| state.open)
    }

    /// What the metrics tell of this moment.
    pub(super) fn sizes(&self) -> Sizes {
        // A page of metrics must not be what reports a panic.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (store, in_use) = (&state.store, state.store.bytes() as u64);
        Sizes {
            open: state.open,
            watches: store.watch_count(),
            streams: state.streams.len(),
            leases: store.lease_count(),
            revision: store.revision(),
            compacted: store.compacted(),
            bytes: state.log_bytes.max(in_use),
            in_use,
            quota: store.options().max_bytes,
        }
    }

    // ---- Watch streams

    /// Opens a stream. Returns its id and what wakes it. There may be as many streams as watches.
    pub(super) fn open_stream(&self) -> Result<(StreamId, Arc<Notify>), Status> {
        let mut state = self.lock();
        if state.streams.len() >= state.store.options().max_watches {
            return Err(Status::resource_exhausted("etcdserver: too many requests"));
        }
        let stream = state.store.open_stream();
        let notify = Arc::new(Notify::new());
        state.streams.insert(stream, notify.clone());
        Ok((stream, notify))
    }

    pub(super) fn close_stream(&self, stream: StreamId) {
        // Called when a stream is dropped, possibly because of the panic that poisoned the lock.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.store.close_stream(stream);
        state.streams.remove(&stream);
    }

    /// Changes watches, which belong to one stream each and never reach the disk.
    pub(super) fn watches<T>(&self, change: impl FnOnce(&mut Mvcc) -> T) -> T {
        change(&mut self.lock().store)
    }

    // ---- The log

    /// Starts the thread that owns the log.
    pub(super) fn start_log(self: &Arc<Self>, log: Wal) -> std::io::Result<LogThread> {
        let engine = self.clone();
        let (sender, settled) = mpsc::unbounded_channel();
        let run = move || engine.run_log(log, &sender);
        let thread = thread::Builder::new().name("rallypoint-log".to_owned()).spawn(run)?;
        Ok(LogThread { thread, settled })
    }

    fn run_log(
        &self,
        mut log: Wal,
        settled: &mpsc::UnboundedSender<Settled>,
    ) -> Result<(), WalError> {
        // This also covers a panic of this thread: no request may wait for a log that has no writer.
        let _ended = LogEnded(self);
        while let Some((batch, head, dump)) = self.next_batch(&log) {
            let written = match dump.map(|records| log.rewrite(records)) {
                // The dump includes the batch.
                Some(Ok(true)) => Ok(()),
                Some(Err(error)) => Err(error),
                _ if batch.records.is_empty() => Ok(()),
                _ => {
                    let _timer = self.counters.wal_fsync.start_timer();
                    log.append(batch.records)
                }
            };
            let mut state = self.lock();
            state.writing = false;
            if let Err(error) = written {
                // The state of the file is unknown, so nothing may be acknowledged from here on. Waiting
                // requests fail when the other end of their receipt is dropped.
                drop(state);
                return Err(error);
            }
            state.log_bytes = log.len();
            let woken = state.publish(head);
            drop(state);
            let _ = settled.send(Settled { woken, waiters: batch.waiters });
        }
        Ok(())
    }

    /// Waits for the next batch. `None` when there will be no more.
    fn next_batch(&self, log: &Wal) -> Option<(Batch, Revision, Option<Vec<Record>>)> {
        let mut state = self.lock();
        loop {
            let batch = state.batch.as_mut()?;
            if !batch.is_empty() {
                let batch = std::mem::take(batch);
                state.writing = true;
                let dump = log.is_due().then(|| state.store.dump());
                return Some((batch, state.store.head(), dump));
            }
            if !state.open {
                return None;
            }
            state = self.work.wait(state).ok()?;
        }
    }

    /// Refuses writes from now on. Accepted ones still go to the disk.
    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).open = false;
        self.work.notify_one();
    }

    /// Returns when the disk has failed, or a panic has left the store half changed.
    pub(super) async fn failed(&self) {
        self.failed.cancelled().await;
    }
}

impl EngineState {
    /// Completes a change: passes its records to the log, with a receipt to wait for if anything is not on
    /// disk yet; or, without a log, publishes it at once and returns the streams to wake.
    fn settle(&mut self) -> (Option<oneshot::Receiver<()>>, Vec<Arc<Notify>>) {
        let Some(batch) = &mut self.batch else {
            return (None, self.publish(self.store.head()));
        };
        batch.records.append(&mut self.store.take_journal());
        if batch.is_empty() && !self.writing {
            return (None, Vec::new());
        }
        let (sender, receipt) = oneshot::channel();
        batch.waiters.push(sender);
        (Some(receipt), Vec::new())
    }

    /// Refuses writes from now on if the nodes can go on at another host. The change that lets them is the last one, so
    /// no further group forms here, whose workers would lose the server at once.
    fn end_if_succeeded(&mut self) {
        if self.right.as_ref().is_some_and(EngineRight::is_succeeded) {
            self.open = false;
        }
    }

    fn publish(&mut self, revision: Revision) -> Vec<Arc<Notify>> {
        let woken = self.store.publish(revision);
        if let Some(right) = &mut self.right {
            right.follow(&mut self.store);
        }
        self.end_if_succeeded();
        woken.iter().filter_map(|stream| self.streams.get(stream).cloned()).collect()
    }
}

/// Closes the engine when the log's thread ends. If it was not closed before, that is a failure.
struct LogEnded<'a>(&'a Engine);

impl Drop for LogEnded<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.batch = None;
        if std::mem::replace(&mut state.open, false) {
            self.0.failed.cancel();
        }
    }
}

/// Wakes streams, outside the lock: there may be thousands.
fn wake(streams: Vec<Arc<Notify>>) {
    for stream in streams {
        stream.notify_one();
    }
}

/// The streams to wake and the requests to answer for a batch that is on disk and published.
struct Settled {
    woken: Vec<Arc<Notify>>,
    waiters: Vec<oneshot::Sender<()>>,
}

/// The thread that owns the log.
pub(super) struct LogThread {
    thread: thread::JoinHandle<Result<(), WalError>>,
    settled: mpsc::UnboundedReceiver<Settled>,
}

impl LogThread {
    /// Answers the requests whose batch is on disk, until the log's thread ends.
    ///
    /// The thread could do it itself, but to wake a task from outside the runtime costs several times
    /// as much as from inside, and a batch may have a thousand waiters.
    pub(super) async fn answer(&mut self) {
        while let Some(Settled { woken, waiters }) = self.settled.recv().await {
            wake(woken);
            for waiter in waiters {
                let _ = waiter.send(());
            }
        }
    }

    /// Waits until every accepted write is on disk. The engine must be closed.
    pub(super) async fn join(self) -> Result<(), WalError> {
        let joined = blocking(move || self.thread.join()).await;
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
