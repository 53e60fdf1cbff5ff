//! The proof that a node is dead: the host of its liveness socket refuses connections.
//!
//! A liveness socket is a listening socket that the launcher of a node, its guard and all of its workers have
//! inherited. A client that connects is greeted by one line with the socket's token. When the last of these processes is
//! gone, the kernel of the host closes the socket, and refuses connections from then on.
//!
//! A firewall that rejects connections looks the same: it answers in the name of the host. It is told from a death by
//! three conditions, all of which must hold:
//!
//! - Only an address that has greeted *this very process*, with the right token, can be refused in a way that counts
//!   ([`Probe::verify`]). So a port that was never reachable from here proves nothing.
//! - A proof is begun only when a connection to the node has ended by an orderly close: its peer liveness connection,
//!   without a goodbye ([`ConnectionEnd::Closed`](crate::store::ConnectionEnd::Closed)), or one to the liveness socket
//!   itself ([`Probe::dead_after_close`]). The kernel of the host sends that when a process dies. A
//!   firewall that drops or rejects a connection can only go silent or send a reset, and a reset never begins a
//!   proof. A proxy, which ends connections in good order when it dies itself, is known by the addresses that the
//!   two ends of the connection have for it: over a proxy, or where addresses are translated, they differ, and no
//!   proof is begun.
//! - Two connections in a row are refused, [`APART`] apart. Any other failure (a time-out, an unreachable network,
//!   a reset of a connection that was accepted) proves nothing, and is retried.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rallypoint_core::rendezvous::documents::LivenessAddress;
use subtle::ConstantTimeEq;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep, timeout};

use crate::store::keep_alive;
use crate::util::backoff::Backoff;
use crate::util::retry::retry_forever;

/// How long a liveness socket may take to greet, and to accept or refuse a connection.
const GREETING: Duration = Duration::from_secs(2);

/// The beginning of a greeting; the token and a line feed follow.
const WORD: &str = "rallypoint-guard ";

/// The time between the two refusals that prove a death.
const APART: Duration = Duration::from_millis(20);

/// The longest delay between attempts.
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// The backoff between attempts.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), LONGEST_DELAY).without_jitter();

/// A connection that receives more bytes than this is closed.
const TALKATIVE: usize = 4 << 10;

/// The most addresses that are remembered. Beyond that the memory is cleared, which only costs proofs.
const REMEMBERED: usize = 1 << 16;

/// A change of another node, as its liveness connection shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PeerEvent {
    /// The node's connection ended without a goodbye, which proves nothing.
    Suspect { node: String },
    /// Rank 0 has said goodbye: it has left the group, or stops its workers for the next one.
    Parted,
    /// The node is proved dead: none of its processes is left.
    Dead { node: String, round: u64 },
    /// This node has no connection to rank 0 of the group of this round, and why; or has one after all.
    Unreached { round: u64, reason: Option<String> },
}

/// The liveness sockets that have greeted this process. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Probe(Arc<Mutex<BTreeMap<LivenessAddress, SocketAddr>>>);

impl Probe {
    fn verified(&self) -> MutexGuard<'_, BTreeMap<LivenessAddress, SocketAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of sockets that have greeted.
    pub(super) fn count(&self) -> usize {
        self.verified().len()
    }

    /// Connects once, and remembers the socket if it greets.
    ///
    /// # Errors
    /// The cause, if the socket did not greet.
    pub(super) async fn verify(&self, address: &LivenessAddress) -> io::Result<()> {
        if self.verified().contains_key(address) {
            return Ok(());
        }
        let greeted = timeout(GREETING, greeted_by(address)).await;
        let socket = greeted.unwrap_or_else(|_| Err(late()))?;
        let mut verified = self.verified();
        if verified.len() >= REMEMBERED {
            verified.clear();
        }
        verified.insert(address.clone(), socket);
        Ok(())
    }

    /// [`dead`](Self::dead) for a node of which nothing has ended yet: waits first until a connection to its socket ends by
    /// an orderly close. Dropping the future ends the proof.
    pub(super) async fn dead_after_close(&self, address: &LivenessAddress) {
        retry_forever(BACKOFF, || self.verify(address), |_: io::Error| {}).await;
        let Some(socket) = self.verified().get(address).copied() else {
            return std::future::pending().await;
        };
        let mut backoff = BACKOFF;
        loop {
            let connecting = timeout(GREETING, TcpStream::connect(socket));
            if let Ok(Ok(stream)) = connecting.await
                && outlast(stream).await == Outlasted::Closed
            {
                return self.dead(address).await;
            }
            backoff.wait().await;
        }
    }

    /// Returns when it is proved that the last process which held the socket is dead. A socket that has not greeted before
    /// is asked to, and proves nothing until it has. Dropping the future ends the proof.
    ///
    /// While the socket accepts connections, one of them is held: its end is the time for the next attempt.
    pub(super) async fn dead(&self, address: &LivenessAddress) {
        retry_forever(BACKOFF, || self.verify(address), |_: io::Error| {}).await;
        // The address that answered before: a name may have several, and a refusal at one proves nothing about another.
        let socket = self.verified().get(address).copied();
        let Some(socket) = socket else { return std::future::pending().await };
        let (mut backoff, mut refused) = (BACKOFF, false);
        loop {
            let begun = Instant::now();
            match timeout(GREETING, TcpStream::connect(socket)).await {
                Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                    if refused {
                        self.verified().remove(address);
                        return;
                    }
                    refused = true;
                    sleep(APART).await;
                    continue;
                }
                Ok(Ok(stream)) => {
                    outlast(stream).await;
                    if begun.elapsed() >= LONGEST_DELAY {
                        backoff.reset();
                    }
                }
                Ok(Err(_)) | Err(_) => {}
            }
            refused = false;
            backoff.wait().await;
        }
    }
}

/// The address that greets with the right token.
async fn greeted_by(address: &LivenessAddress) -> io::Result<SocketAddr> {
    let LivenessAddress { host, port, token } = address;
    let mut failed = io::Error::new(ErrorKind::NotFound, format!("{host} has no address"));
    for socket in lookup_host((host.trim_matches(['[', ']']), *port)).await? {
        match greeting(socket, token).await {
            Ok(()) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn greeting(socket: SocketAddr, token: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(socket).await?;
    let expected = format!("{WORD}{token}\n");
    let mut greeting = vec![0; expected.len()];
    stream.read_exact(&mut greeting).await?;
    if !bool::from(greeting.ct_eq(expected.as_bytes())) {
        return Err(io::Error::new(ErrorKind::InvalidData, "another program listens there"));
    }
    Ok(())
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outlasted {
    /// By an orderly close.
    Closed,
    /// By a failure, or it was given up.
    Failed,
}

/// Waits until a connection ends, in any way.
async fn outlast(mut stream: TcpStream) -> Outlasted {
    // A host that vanishes must not be waited for without end, although that proves nothing.
    let _ = keep_alive(&stream);
    let (mut heard, mut buffer) = (0, [0; 512]);
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) => return Outlasted::Closed,
            Ok(read) => heard += read,
            Err(_) => return Outlasted::Failed,
        }
        if heard > TALKATIVE {
            return Outlasted::Failed;
        }
    }
}

fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("no greeting within {GREETING:?}"))
}

#[cfg(test)]
pub(super) mod tests;
