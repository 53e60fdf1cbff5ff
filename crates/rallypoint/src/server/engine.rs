//! The store with everything it needs from outside: a lock, a clock, a disk, someone to wake.
//!
//! Requests run on the caller's task under one short lock; there is no queue in front of the store.
//! With a log, a write is applied at once, joins the batch that the log's thread takes next, and is
//! published and answered when that batch is on the disk. Writes that come meanwhile make the next
//! batch, so the disk's pace sets the size of a batch and not the number of writers.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rallypoint_core::kv::{KvError, LeaseId, LeaseStatus, Revision, Time};
use rallypoint_core::mvcc::{Mvcc, Record, StreamId};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::wal::{Wal, WalError};
use crate::util::blocking::blocking;
use crate::util::random;

/// So many requests may wait for the disk at one time; the next is told to come back later.
const MOST_WAITING: usize = 20_000;

pub(super) struct Engine {
    state: Mutex<EngineState>,
    /// There is something for the log's thread to do.
    work: Condvar,
    /// A lease may now end earlier than the one that is waited for.
    sooner: Notify,
    /// A lease was granted or renewed.
    renewed: Notify,
    /// What the store's moments are counted from.
    origin: Instant,
    /// The disk failed, and nothing more can be promised.
    failed: CancellationToken,
    cluster_id: u64,
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
}

/// What goes to the disk next, and who waits for it.
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

/// The answer to everything once the server is on its way out.
pub(super) fn stopped() -> Status {
    Status::unavailable("etcdserver: server stopped")
}

impl Engine {
    /// With a log, this is followed by [`Engine::start_log`].
    pub(super) fn new(store: Mvcc, log: Option<&Wal>) -> Self {
        let state = EngineState {
            store,
            streams: HashMap::new(),
            batch: log.map(|_| Batch::default()),
            writing: false,
            open: true,
            log_bytes: log.map_or(0, Wal::len),
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            sooner: Notify::new(),
            renewed: Notify::new(),
            origin: Instant::now(),
            failed: CancellationToken::new(),
            cluster_id: log.map_or_else(|| random::number().max(1), Wal::cluster_id),
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

    /// Looks at what is published.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Mvcc) -> T) -> T {
        look(&self.lock().store)
    }

    /// Changes the store, and returns when the change, and all that it may have seen, is on disk
    /// and published.
    ///
    /// If the caller goes away while waiting, the change happens all the same.
    pub(super) async fn write<T>(
        &self,
        change: impl FnOnce(&mut Mvcc, Time) -> T,
    ) -> Result<T, Status> {
        self.commit(change, MOST_WAITING).await
    }

    /// [`Engine::write`], refused if so many wait already.
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

    /// Whose history this is.
    pub(super) fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// How many bytes the log has, or the store where there is none.
    pub(super) fn bytes(&self) -> u64 {
        let state = self.lock();
        state.log_bytes.max(state.store.bytes() as u64)
    }

    // ---- Leases

    /// Renews a lease and tells its time to live, 0 if there is none, and the revision before.
    pub(super) fn keep_alive(&self, id: LeaseId) -> (Revision, i64) {
        self.renewed.notify_one();
        let mut state = self.lock();
        let revision = state.store.revision();
        (revision, state.store.lease_keep_alive(self.now(), id).unwrap_or(0))
    }

    /// Waits until a lease is granted or renewed, or was since this was last asked.
    pub(super) async fn renewed(&self) {
        self.renewed.notified().await;
    }

    /// Whether there is a lease whose time to live is at most this, and on which something lives.
    pub(super) fn has_lease_in_use(&self, longest: Duration) -> bool {
        let now = self.now();
        let is_short = |ttl: i64| u64::try_from(ttl).is_ok_and(|ttl| ttl <= longest.as_secs());
        let in_use = |lease: LeaseStatus| is_short(lease.granted_ttl) && !lease.keys.is_empty();
        self.read(|store| store.leases().filter_map(|id| store.lease_status(now, id)).any(in_use))
    }

    /// Grants a lease, with an id of our choice if none is asked for, and tells its id and its time
    /// to live.
    pub(super) async fn grant(
        &self,
        wanted: Option<LeaseId>,
        ttl: i64,
    ) -> Result<Result<(LeaseId, i64), KvError>, Status> {
        loop {
            let id = wanted.unwrap_or_else(random::lease_id);
            let granted = self.write(|store, now| {
                // It may be the next to end. Said here, since the caller may not wait for the disk.
                self.sooner.notify_one();
                self.renewed.notify_one();
                store.lease_grant(now, id, ttl)
            });
            match granted.await? {
                Err(KvError::LeaseExists) if wanted.is_none() => {}
                granted => return Ok(granted.map(|ttl| (id, ttl))),
            }
        }
    }

    /// Ends leases when their time is up, until the server stops.
    pub(super) async fn expire_leases(&self) {
        loop {
            let Some(next) = self.read(Mvcc::next_expiry) else {
                self.sooner.notified().await;
                continue;
            };
            tokio::select! {
                () = self.sooner.notified() => continue,
                () = tokio::time::sleep_until((self.origin + next).into()) => {}
            }
            // Leases end however many wait.
            match self.commit(|store, now| store.expire(now), usize::MAX).await {
                Ok(0) => {}
                Ok(count) => tracing::debug!(count, "leases ran out"),
                Err(_) => return,
            }
        }
    }

    // ---- Watch streams

    /// Opens a stream and tells how it will be woken. There may be as many streams as watches.
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
        // Called when a stream is dropped, which may be because of the very panic.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.store.close_stream(stream);
        state.streams.remove(&stream);
    }

    /// Changes watches, which are nobody's business but their stream's and never reach the disk.
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
        // Also if this thread panics: nobody may wait for a log that nobody writes.
        let _ended = LogEnded(self);
        while let Some((batch, head, dump)) = self.next_batch(&log) {
            let written = match dump.map(|records| log.rewrite(records)) {
                // The dump holds the batch too.
                Some(Ok(true)) => Ok(()),
                Some(Err(error)) => Err(error),
                _ if batch.records.is_empty() => Ok(()),
                _ => log.append(batch.records),
            };
            let mut state = self.lock();
            state.writing = false;
            if let Err(error) = written {
                // Nothing is known of what is on the disk, so nothing may be promised from here on.
                // Those who wait learn it when their end of the receipt is dropped.
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

    /// Waits for something to write. `None` when there will be nothing more.
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

    /// Refuses writes from now on. What was accepted still goes to the disk.
    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).open = false;
        self.work.notify_one();
    }

    /// Returns when the disk has failed, or the store is broken.
    pub(super) async fn failed(&self) {
        self.failed.cancelled().await;
    }
}

impl EngineState {
    /// Sends what a change left behind on its way: to the log, with a receipt to wait for if
    /// anything is not on disk yet, or at once to those who watch.
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

    fn publish(&mut self, revision: Revision) -> Vec<Arc<Notify>> {
        let woken = self.store.publish(revision);
        woken.iter().filter_map(|stream| self.streams.get(stream).cloned()).collect()
    }
}

/// Ends everything that needs the log when its thread ends. If it was asked to end, that is nothing.
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

/// Who has something to hear of a batch that is on disk and published.
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
    /// Tells those who wait that their batch is on disk, until there is no more log.
    ///
    /// The thread could do it itself, but waking a task from outside the runtime costs several times
    /// as much as from inside, and a batch may have a thousand.
    pub(super) async fn answer(&mut self) {
        while let Some(Settled { woken, waiters }) = self.settled.recv().await {
            wake(woken);
            for waiter in waiters {
                let _ = waiter.send(());
            }
        }
    }

    /// Waits until everything accepted is on disk. The engine must have been closed.
    pub(super) async fn join(self) -> Result<(), WalError> {
        let joined = blocking(move || self.thread.join()).await;
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
