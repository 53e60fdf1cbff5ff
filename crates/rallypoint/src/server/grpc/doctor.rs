//! The Doctor service: whether this host reaches a node at the address that the node would publish.
//!
//! The node opens a listener that greets with a nonce, and this server connects to it and reads. The answer tells a
//! client nothing about other programs: they do not greet so, an open port is not told from a closed one, and each
//! failure is told after the same time. Nothing is sent to the address.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::proto::doctor::{self as pb, Outcome};
use crate::util::blocking::blocking;

/// How long an attempt takes at most, and a failed one at least: a segment that is lost is sent again after a second, and
/// the client waits for the answer for 2.3 s at most.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Limit of attempts of one server at a time.
const MOST_DIALS: usize = 16;

/// The length of a nonce, in bytes.
const NONCE: usize = 16;

/// How a listener greets that waits for this nonce. No other program begins so, whatever nonce a client gives.
pub(crate) fn greeting(nonce: &[u8]) -> Vec<u8> {
    [b"rallypoint-doctor ", nonce, b"\n"].concat()
}

pub(super) struct DoctorService {
    dials: Arc<Semaphore>,
    stopping: CancellationToken,
}

impl DoctorService {
    pub(super) fn new(stopping: &CancellationToken) -> Self {
        Self { dials: Arc::new(Semaphore::new(MOST_DIALS)), stopping: stopping.clone() }
    }
}

#[tonic::async_trait]
impl pb::doctor_server::Doctor for DoctorService {
    async fn dial_back(
        &self,
        request: Request<pb::DialBackRequest>,
    ) -> Result<Response<pb::DialBackResponse>, Status> {
        let pb::DialBackRequest { host, port, nonce } = request.into_inner();
        let port = u16::try_from(port).ok().filter(|port| *port > 0);
        let (Some(port), NONCE) = (port, nonce.len()) else {
            let text =
                format!("rallypoint: give a port from 1 to 65535 and a nonce of {NONCE} bytes");
            return Err(Status::invalid_argument(text));
        };
        // In the words of etcd, so that clients try again.
        let permit = self.dials.clone().try_acquire_owned();
        let permit =
            permit.map_err(|_| Status::resource_exhausted("etcdserver: too many requests"))?;
        let greeting = greeting(&nonce);
        tokio::select! {
            outcome = dial(host, port, &greeting, Arc::new(permit)) => {
                Ok(Response::new(pb::DialBackResponse { outcome: outcome.into() }))
            }
            () = self.stopping.cancelled() => Err(Status::unavailable("rallypoint: the server stops")),
        }
    }
}

/// Connects to a listener, and reads its greeting.
async fn dial(
    host: String,
    port: u16,
    greeting: &[u8],
    permit: Arc<OwnedSemaphorePermit>,
) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    // A lookup cannot be cancelled, and counts as an attempt until it has ended.
    let looked_up = permit.clone();
    let lookup = blocking(move || {
        let host = host.trim_matches(['[', ']']);
        let found = (host, port).to_socket_addrs().map(Vec::from_iter);
        drop(looked_up);
        found
    });
    let outcome = match timeout_at(deadline, lookup).await {
        Ok(Ok(found)) if !found.is_empty() => read(&found, greeting, deadline).await,
        _ => Outcome::NameUnknown,
    };
    if outcome != Outcome::Reached {
        sleep_until(deadline).await;
    }
    drop(permit);
    outcome
}

async fn read(addresses: &[SocketAddr], greeting: &[u8], deadline: Instant) -> Outcome {
    let mut stream = match timeout_at(deadline, TcpStream::connect(addresses)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return match error.kind() {
                io::ErrorKind::ConnectionRefused => Outcome::Refused,
                io::ErrorKind::TimedOut => Outcome::TimedOut,
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    Outcome::Unreachable
                }
                _ => Outcome::Failed,
            };
        }
        Err(_) => return Outcome::TimedOut,
    };
    let mut found = vec![0; greeting.len()];
    match timeout_at(deadline, stream.read_exact(&mut found)).await {
        Ok(Ok(_)) if found == greeting => Outcome::Reached,
        // As if the port were closed.
        _ => Outcome::Refused,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tonic::Code;

    use super::pb::doctor_server::Doctor;
    use super::*;

    const GIVEN: [u8; NONCE] = *b"SSH-2.0-OpenSSH_";

    fn service() -> DoctorService {
        DoctorService::new(&CancellationToken::new())
    }

    async fn asked(service: &DoctorService, host: &str, port: u16) -> Result<Outcome, Status> {
        let (host, nonce) = (host.to_owned(), GIVEN.to_vec().into());
        let request = pb::DialBackRequest { host, port: port.into(), nonce };
        Ok(service.dial_back(Request::new(request)).await?.into_inner().outcome())
    }

    /// The port of a program that greets every client so, and then waits.
    async fn program(greets: Vec<u8>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // It ends with the test's runtime.
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(&greets).await.unwrap();
                let _ = stream.read(&mut [0; 1]).await;
            }
        });
        port
    }

    #[tokio::test]
    async fn a_listener_with_the_nonce_is_reached_at_once() {
        let port = program(greeting(&GIVEN)).await;
        let begun = Instant::now();
        assert_eq!(asked(&service(), "127.0.0.1", port).await.unwrap(), Outcome::Reached);
        assert!(begun.elapsed() < PATIENCE);
        for host in ["localhost", "[127.0.0.1]"] {
            assert_eq!(asked(&service(), host, port).await.unwrap(), Outcome::Reached, "{host}");
        }
    }

    /// It is no port scanner.
    #[tokio::test]
    async fn other_programs_and_closed_ports_get_one_answer_after_one_time() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let another = greeting(b"another nonce...");
        let ports = [
            closed,
            program(GIVEN.to_vec()).await,
            program(another).await,
            program(b"220 mail ready\r\n".repeat(4)).await,
            program(Vec::new()).await,
        ];
        let service = service();
        let asked = ports.map(|port| {
            let service = &service;
            async move {
                let begun = Instant::now();
                let outcome = asked(service, "127.0.0.1", port).await.unwrap();
                (outcome, begun.elapsed())
            }
        });
        for (outcome, took) in join_all(asked).await {
            assert_eq!(outcome, Outcome::Refused);
            assert!(took >= PATIENCE, "{took:?}");
        }
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_here_is_said_to_be_unknown() {
        let outcome = asked(&service(), "no such name", 80).await.unwrap();
        assert_eq!(outcome, Outcome::NameUnknown);
    }

    #[tokio::test]
    async fn attempts_are_limited_and_requests_checked() {
        let port = program(Vec::new()).await;
        let service = service();
        let dials = join_all((0..MOST_DIALS).map(|_| asked(&service, "127.0.0.1", port)));
        let one_more = async {
            while service.dials.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            asked(&service, "127.0.0.1", port).await.unwrap_err()
        };
        let (_, refused) = tokio::join!(dials, one_more);
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert_eq!(refused.message(), "etcdserver: too many requests");
        assert_eq!(service.dials.available_permits(), MOST_DIALS, "all are given back");

        for (port, nonce) in [(0, NONCE), (1 << 16, NONCE), (80, 0), (80, NONCE + 1)] {
            let (host, nonce) = ("127.0.0.1".to_owned(), vec![0; nonce].into());
            let request = pb::DialBackRequest { host, port, nonce };
            let refused = service.dial_back(Request::new(request)).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{port}");
        }
    }

    #[tokio::test]
    async fn a_server_that_stops_waits_for_no_attempt() {
        let port = program(Vec::new()).await;
        let service = service();
        service.stopping.cancel();
        let begun = Instant::now();
        assert_eq!(asked(&service, "127.0.0.1", port).await.unwrap_err().code(), Code::Unavailable);
        assert!(begun.elapsed() < PATIENCE);
    }
}
