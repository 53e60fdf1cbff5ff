//! A lease that is kept alive, and the event of its loss.
//!
//! A node with a session may act as a member; a node that lost its session must stop its workers before another node
//! takes its place. So the session counts from when it *sent* the last acknowledged renewal: the server counts from
//! when it received the renewal, so the lease expires later there. The session is lost after seven eighths of the time
//! to live. The last eighth is for fencing: the workers are stopped, and killed in the middle of it
//! ([`Session::fence_at`]).

mod lease_clock;

use rallypoint_core::kv::{KvError, LeaseId, Time};
use rallypoint_core::rendezvous::succession::RENEWALS_PER_TTL;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::lease_clock::LeaseClock;
use crate::client::{Client, ClientError, KeepAliveStream, RenewalAnswer, StreamFailed, describe};
use crate::log_target::SESSION;
use crate::util::clock::boot_time;
use crate::util::reminder::Reminder;

/// A lease that a background task keeps alive.
///
/// Dropping a session stops the renewals without waiting; the lease then expires after its time to live, and its
/// keys are deleted. [`close`](Self::close) revokes the lease at once.
///
/// ```no_run
/// use std::time::Duration;
/// use rallypoint::client::{Client, ClientError};
/// use rallypoint::core::kv::Put;
/// use rallypoint::session::Session;
///
/// # async fn example(client: Client) -> Result<(), ClientError> {
/// let session = Session::open(&client, Duration::from_secs(10)).await?;
/// client.put(Put::new("members/me", "here").on_lease(session.lease())).await?;
/// tokio::select! {
///     loss = session.lost() => println!("stop everything: {loss}"),
///     () = work() => session.close().await?,
/// }
/// # Ok(())
/// # }
/// # async fn work() {}
/// ```
pub struct Session {
    client: Client,
    shared: Arc<SessionShared>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

/// Why a session was lost.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Loss {
    /// Seven eighths of the time to live passed without an acknowledged renewal: the servers could not be reached, or
    /// this process did not run.
    #[error("lease {lease:x} was not renewed for {silent:.1?}, its time to live is {ttl:?}{}{}",
        .slept.map(|slept| format!("; this process did not run for {slept:.1?}")).unwrap_or_default(),
        .last_error.as_ref().map(|error| format!("; the last attempt: {error}")).unwrap_or_default())]
    Expired {
        /// The lease.
        lease: LeaseId,
        /// The time to live of the lease.
        ttl: Duration,
        /// How long ago the last acknowledged renewal was sent.
        silent: Duration,
        /// For how long this process did not run when the lease expired, if it did not: the process was stopped, or
        /// the host was suspended or overloaded. No renewal was attempted then.
        slept: Option<Duration>,
        /// The error of the last attempt to renew the lease, if one failed.
        last_error: Option<String>,
    },
    /// The server has no such lease: it was revoked, or has expired there.
    #[error("lease {lease:x} is unknown to {endpoint}: it was revoked, or has expired there")]
    Gone {
        /// The lease.
        lease: LeaseId,
        /// The endpoint that answered so.
        endpoint: String,
    },
    /// The server has ended, and with it all leases.
    #[error("the server at {endpoint} has ended, and with it this node's lease")]
    ServerEnded {
        /// The endpoint of the server.
        endpoint: String,
        /// The remaining time of the lease, by this node's clock.
        left: Duration,
    },
    /// The server has lost its memory, and with it the lease and all other keys of the run.
    #[error("the server has lost its memory, and with it this node's lease")]
    Forgotten {
        /// The remaining time of the lease, by this node's clock.
        left: Duration,
    },
    /// The session was closed or dropped by its owner.
    #[error("the session was closed")]
    Closed,
}

/// The state of a session that its tasks share.
struct SessionShared {
    lease: LeaseId,
    /// The clock of the lease. Locked for a few instructions, never over an await.
    clock: Mutex<LeaseClock>,
    last_error: Mutex<Option<String>>,
    /// When the last answer of the server arrived.
    heard: Mutex<Time>,
    lost: watch::Sender<Option<Loss>>,
    fence_at: watch::Sender<Time>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("lease", &self.shared.lease).finish_non_exhaustive()
    }
}

impl Session {
    /// Grants a lease with a time to live of `ttl`, in whole seconds rounded up, and keeps it alive.
    ///
    /// A server may grant a longer time than requested: etcd's shortest is 2 s.
    ///
    /// # Errors
    /// [`ClientError::Config`] for a time to live of zero, and the errors of [`Client::lease_grant`].
    pub async fn open(client: &Client, ttl: Duration) -> Result<Self, ClientError> {
        if ttl.is_zero() {
            let fix =
                "give the time after which a node that does not renew its lease counts as dead";
            return Err(ClientError::invalid("time to live", format!("{ttl:?}"), fix));
        }
        let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
        let sent = boot_time();
        let granted = client.lease_grant(i64::try_from(seconds).unwrap_or(i64::MAX), None).await?;
        let clock = LeaseClock::new(boot_time(), sent, seconds_of(granted.ttl));
        let shared = Arc::new(SessionShared {
            lease: granted.id,
            fence_at: watch::Sender::new(clock.fence_at()),
            clock: Mutex::new(clock),
            last_error: Mutex::default(),
            heard: Mutex::new(boot_time()),
            lost: watch::Sender::new(None),
        });
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(client.clone(), shared.clone(), stop.clone()));
        let task = AbortOnDropHandle::new(task);
        Ok(Self { client: client.clone(), shared, stop, task })
    }

    /// The id of the lease, to which keys can be attached.
    pub fn lease(&self) -> LeaseId {
        self.shared.lease
    }

    /// The time to live that the server granted.
    pub fn ttl(&self) -> Duration {
        self.shared.clock().ttl()
    }

    /// The remaining time of the session if no further renewal succeeds; zero if it is lost.
    pub fn remaining(&self) -> Duration {
        if self.is_lost() { Duration::ZERO } else { self.shared.clock().left(boot_time()) }
    }

    /// The fence: the time by which the workers of this node must have ended, even if this process does not run. It is
    /// 15/16 of the time to live after the last acknowledged renewal was sent, moves with each acknowledged renewal,
    /// and stays unchanged when the session is lost.
    ///
    /// The clock is `CLOCK_BOOTTIME`, which other processes of this host can read as well.
    pub fn fence_at(&self) -> watch::Receiver<Time> {
        self.shared.fence_at.subscribe()
    }

    /// The time since the last answer of the server.
    pub fn silent(&self) -> Duration {
        let heard = *self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
        boot_time().saturating_sub(heard)
    }

    /// Ends the session before its lease has expired, for this reason.
    pub(crate) fn lose(&self, loss: Loss) {
        self.shared.lose(loss);
    }

    /// Waits until the session is lost, and returns the reason. Any number of tasks may wait; the future does not
    /// borrow the session.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static + use<> {
        let mut lost = self.shared.lost.subscribe();
        async move {
            match lost.wait_for(Option::is_some).await {
                Ok(loss) => loss.clone().unwrap_or(Loss::Closed),
                // The session and its task were dropped.
                Err(_) => Loss::Closed,
            }
        }
    }

    /// Whether the session is lost. Reads the clock, so the answer is right also in a process that has just been
    /// continued after a stop. Once true, it stays true.
    pub fn is_lost(&self) -> bool {
        self.shared.check()
    }

    /// Stops the renewals and revokes the lease, which deletes its keys. Does nothing for a lost session.
    ///
    /// # Errors
    /// The errors of [`Client::lease_revoke`]. The lease then expires after its time to live.
    pub async fn close(self) -> Result<(), ClientError> {
        let Self { client, shared, stop, task } = self;
        stop.cancel();
        // The task ends at once, and its result is in `shared` already.
        let _ = task.await;
        if shared.check() {
            return Ok(());
        }
        shared.lose(Loss::Closed);
        let revoked = match client.lease_revoke(shared.lease).await {
            // Only this session uses the lease, so revoking it twice is harmless.
            Err(ClientError::OutcomeUnknown { .. }) => client.lease_revoke(shared.lease).await,
            revoked => revoked,
        };
        match revoked {
            Err(ClientError::Kv(KvError::LeaseNotFound)) => Ok(()),
            revoked => revoked,
        }
    }
}

fn seconds_of(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

impl SessionShared {
    fn clock(&self) -> std::sync::MutexGuard<'_, LeaseClock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the clock; returns whether the session is lost.
    fn check(&self) -> bool {
        let now = boot_time();
        let (expired, slept, ttl, silent) = {
            let mut clock = self.clock();
            (clock.check(now), clock.slept(), clock.ttl(), clock.silent(now))
        };
        if expired && self.lost.borrow().is_none() {
            let last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
            self.lose(Loss::Expired { lease: self.lease, ttl, silent, slept, last_error });
        }
        self.lost.borrow().is_some()
    }

    /// The server has answered.
    fn heard(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = boot_time();
    }

    /// Records that a renewal sent at `sent` was acknowledged; returns false if the session was lost before.
    fn renewed(&self, sent: Time, ttl: Duration) -> bool {
        let fence_at = {
            let mut clock = self.clock();
            clock.renewed(boot_time(), sent, ttl).then(|| clock.fence_at())
        };
        if let Some(fence_at) = fence_at {
            self.fence_at.send_replace(fence_at);
            *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        !self.check()
    }

    /// Marks the session as lost. Only the first reason counts.
    fn lose(&self, loss: Loss) {
        self.clock().end();
        let first = self.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            if first {
                *lost = Some(loss.clone());
            }
            first
        });
        if first && loss != Loss::Closed {
            tracing::warn!(target: SESSION, lease = self.lease, %loss, "the session is lost");
        }
    }
}

/// Keeps the lease alive until it is lost or the session is closed.
async fn run(client: Client, shared: Arc<SessionShared>, stop: CancellationToken) {
    tokio::select! {
        // The clock comes first, so that after a long stop a late answer does not count.
        biased;
        () = stop.cancelled() => {}
        () = expiry(&shared) => {}
        () = renewals(&client, &shared) => {}
    }
}

/// Waits until the lease has expired by this node's clock.
async fn expiry(shared: &SessionShared) {
    while !shared.check() {
        let (left, often) = {
            let clock = shared.clock();
            (clock.left(boot_time()), clock.often())
        };
        // A renewal in the meantime moves the end. Timers do not advance while the host is suspended, and the clock
        // of the lease does, so it is checked at intervals too.
        sleep(left.min(often)).await;
    }
}

/// The log repeats that a lease was not renewed after this time, and then each time after twice as long.
const REPORTED_AGAIN: Duration = Duration::from_secs(1);

/// Renews the lease until it is lost, on one stream after another.
async fn renewals(client: &Client, shared: &SessionShared) {
    let interval = shared.clock().ttl() / RENEWALS_PER_TTL;
    // The grant counts as a renewal.
    let silent = shared.clock().silent(boot_time());
    sleep(interval.saturating_sub(silent)).await;
    let mut failures: u32 = 0;
    let mut reminder = Reminder::doubling(REPORTED_AGAIN).at_once();
    while !shared.check() {
        let patience = interval.min(client.stream_timeout(failures));
        let sent = boot_time();
        let opened = KeepAliveStream::open(client, shared.lease, Instant::now() + patience).await;
        let failed = match opened {
            Ok(stream) => match renew_on(stream, shared, sent, patience, &mut failures).await {
                Some(failed) => failed,
                None => return,
            },
            Err(failed) => failed,
        };
        if failures == 0 {
            reminder = Reminder::doubling(REPORTED_AGAIN).at_once();
        }
        failures = failures.saturating_add(1);
        let reason = describe(&failed.status);
        if reminder.is_due() {
            tracing::warn!(
                target: SESSION,
                lease = shared.lease, failures, reason, "a lease was not renewed"
            );
        }
        *shared.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
        sleep(client.stream_delay(failures, failed.failure).min(interval / 2)).await;
    }
}

/// The pause before the retry for a lease that a server does not know, or may not renew at present. It doubles with
/// each answer that the server may not renew: one confirmation at once may be what the server lacks, and the members of a
/// group that is cut off need not send a thousand renewals a second.
const SECOND_THOUGHTS: Duration = Duration::from_millis(100);

/// Renews the lease on one stream, whose first renewal was sent at `sent`. Returns how the stream ended, or `None` if
/// the session is lost.
async fn renew_on(
    mut stream: KeepAliveStream,
    shared: &SessionShared,
    mut sent: Time,
    patience: Duration,
    failures: &mut u32,
) -> Option<StreamFailed> {
    let mut doubtful = false;
    let mut withheld: u32 = 0;
    loop {
        let answer = match timeout_at(Instant::now() + patience, stream.answer()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(failed)) => return Some(failed),
            Err(_) => return Some(stream.abandon(patience)),
        };
        shared.heard();
        let wait = match answer {
            RenewalAnswer::Renewed { seconds } => {
                *failures = 0;
                doubtful = false;
                withheld = 0;
                let ttl = seconds_of(seconds);
                if !shared.renewed(sent, ttl) {
                    return None;
                }
                (ttl / RENEWALS_PER_TTL).saturating_sub(shared.clock().silent(boot_time()))
            }
            // The next renewal confirms that this was heard, which may be what the server lacks.
            RenewalAnswer::Withheld => {
                doubtful = false;
                let longest = shared.clock().ttl() / RENEWALS_PER_TTL / 4;
                let pause = SECOND_THOUGHTS.saturating_mul(1 << withheld.min(10)).min(longest);
                withheld = withheld.saturating_add(1);
                pause
            }
            RenewalAnswer::Unknown if doubtful => {
                let endpoint = stream.endpoint().to_owned();
                shared.lose(Loss::Gone { lease: shared.lease, endpoint });
                return None;
            }
            // A newly elected leader of etcd 3.4 or 3.5 may not have applied its whole log yet, and then does not
            // know a lease that exists.
            RenewalAnswer::Unknown => {
                doubtful = true;
                SECOND_THOUGHTS
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            // No request is under way, so the only possible event is the end of the stream.
            failed = stream.ended() => return Some(failed),
        }
        if shared.check() {
            return None;
        }
        sent = boot_time();
        stream.renew();
    }
}
