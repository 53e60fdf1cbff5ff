//! Whether the server's host reaches this one at the address that this node would publish, which a host cannot tell by
//! itself.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tonic::Code;

use super::finding::Finding;
use super::server::Answer;
use crate::client::{Client, ClientError, DialBackOutcome};
use crate::config::PortRange;
use crate::rendezvous::address::address;
use crate::rendezvous::reserve_port;
use crate::server::dial_back_greeting;
use crate::util::random;

const CHECK: &str = "dial_back";

/// Connections that may wait for the greeting.
const BACKLOG: u32 = 16;

/// An attempt of the server to connect to this host.
#[derive(Debug)]
pub(super) struct DialBack {
    /// The address as other nodes would be told, and the port.
    pub(super) address: String,
    pub(super) port: u16,
    pub(super) outcome: DialBackOutcome,
}

/// Why the server was not asked to connect, or did not answer, in a sentence.
pub(super) type NotTried = String;

/// The finding while no server answers.
pub(super) fn not_yet() -> Finding {
    Finding::skip(CHECK, "Not tried: no server answers yet that could connect to this host.")
}

/// Why a server that gives this answer cannot connect to this host.
pub(super) fn refusal(answer: &Answer) -> Option<NotTried> {
    matches!(answer, Answer::Etcd { .. })
        .then(|| "an etcd connects to no node, as Rallypoint's server does.".to_owned())
}

/// Opens a listener as the launcher would, at one of `ports` if they are given, and asks the server to connect to it.
///
/// # Errors
/// If it could not be tried.
pub(super) async fn measure(
    client: &Client,
    given: Option<&str>,
    servers: &[(String, u16)],
    ports: Option<PortRange>,
) -> Result<DialBack, NotTried> {
    let address = address(given, servers, false).await;
    let address = address.map_err(|_| "it is not known which address that is.".to_owned())?;
    let (listener, port) = listen(&address, ports).map_err(|error| {
        let which = ports.map(|ports| format!(" of {ports} (store_ports)")).unwrap_or_default();
        format!("no port{which} can be listened on at {address}: {error}.")
    })?;
    let nonce = random::name().to_ne_bytes();
    let greeting = dial_back_greeting(&nonce);
    let answer = tokio::select! {
        answer = client.dial_back(&address, port, &nonce) => answer,
        failed = greet(&listener, &greeting) => match failed {
            Err(error) => return Err(format!("no connection can be accepted: {error}.")),
            Ok(never) => match never {},
        }
    };
    match answer {
        Ok(outcome) => Ok(DialBack { address, port, outcome }),
        Err(ClientError::Refused { source, .. }) if source.code() == Code::Unimplemented => {
            Err("the server is of an earlier version, which connects to no node.".to_owned())
        }
        Err(error) => Err(format!("{error}.")),
    }
}

/// Listens where the launcher would let the workers' store listen.
fn listen(address: &str, ports: Option<PortRange>) -> io::Result<(TcpListener, u16)> {
    let at = |port| {
        let (socket, port) = reserve_port(address, port)?;
        Ok((socket.listen(BACKLOG)?, port))
    };
    match ports {
        None => at(0),
        Some(ports) => {
            let none = Err(io::ErrorKind::AddrNotAvailable.into());
            ports.ports().fold(none, |found, port| found.or_else(|_| at(port)))
        }
    }
}

/// Greets whoever connects, until the future is dropped.
async fn greet(listener: &TcpListener, greeting: &[u8]) -> io::Result<Infallible> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        // Another client may have gone.
        let _ = stream.write_all(greeting).await;
    }
}

/// Whether the other nodes can be expected to reach this one, as far as the server that gave this answer can tell.
pub(super) fn judge(
    tried: &Result<DialBack, NotTried>,
    server_is_here: bool,
    answer: &Answer,
) -> Finding {
    let DialBack { address, port, outcome } = match tried {
        Ok(tried) => tried,
        Err(why) => return Finding::skip(CHECK, format!("Not tried: {why}")),
    };
    let is_loopback =
        address.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    let at = format!("{address}:{port}, the address that this node would publish");
    let why = match outcome {
        DialBackOutcome::Reached if server_is_here => {
            return Finding::ok(
                CHECK,
                format!(
                    "The server reaches this node at {at}. It is on this host too, so that tells nothing of other hosts."
                ),
            );
        }
        DialBackOutcome::Reached => {
            return Finding::ok(CHECK, format!("The server's host reaches this host at {at}."));
        }
        DialBackOutcome::Refused if is_loopback => "that address means each host itself",
        DialBackOutcome::Refused => {
            "the connection was refused, or another program answered, so another host has that address, or a firewall \
             rejects"
        }
        DialBackOutcome::TimedOut => {
            "connection timed out, so a firewall, or an address of another network"
        }
        DialBackOutcome::NameUnknown => "the name does not resolve there",
        DialBackOutcome::Unreachable => "no route leads there, or no host has that address",
        DialBackOutcome::Failed => "the connection failed there",
    };
    let message = format!("The server's host cannot reach this host at {at}: {why}.");
    let remedy = "Give --local-addr with an address of this host that other hosts reach, or let its ports pass in the \
                  firewalls on the way (--rdzv-conf store_ports pins those of the workers' store)";
    match answer {
        // A node of the job runs it.
        Answer::Rallypoint { run: Some(_) } => Finding::fail(CHECK, message, remedy),
        _ => {
            let message = message + " It matters if that host has a node of the job.";
            Finding::warn(CHECK, message, remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn what_the_server_sees_of_this_host_is_said_with_the_address() {
        let embedded = || Answer::Rallypoint { run: Some("job".to_owned()) };
        let alone = || Answer::Rallypoint { run: None };
        let tried = |address: &str, outcome| {
            Ok(DialBack { address: address.to_owned(), port: 41235, outcome })
        };
        let at = "10.0.0.7:41235, the address that this node would publish";
        let cannot = |why: &str| format!("The server's host cannot reach this host at {at}: {why}");
        for (tried, is_here, answer, verdict, words) in [
            (
                tried("10.0.0.7", DialBackOutcome::Reached),
                false,
                embedded(),
                Verdict::Ok,
                format!("The server's host reaches this host at {at}."),
            ),
            (
                tried("10.0.0.7", DialBackOutcome::Reached),
                true,
                embedded(),
                Verdict::Ok,
                "tells nothing of other hosts".to_owned(),
            ),
            (
                tried("10.0.0.7", DialBackOutcome::TimedOut),
                false,
                embedded(),
                Verdict::Fail,
                cannot("connection timed out, so a firewall"),
            ),
            (
                tried("10.0.0.7", DialBackOutcome::Refused),
                false,
                embedded(),
                Verdict::Fail,
                cannot("the connection was refused"),
            ),
            (
                tried("10.0.0.7", DialBackOutcome::Unreachable),
                false,
                embedded(),
                Verdict::Fail,
                cannot("no route leads there"),
            ),
            (
                tried("10.0.0.7", DialBackOutcome::Failed),
                false,
                alone(),
                Verdict::Warn,
                "It matters if that host has a node".to_owned(),
            ),
            (
                tried("node7", DialBackOutcome::NameUnknown),
                false,
                embedded(),
                Verdict::Fail,
                "node7:41235, the address that this node would publish: the name does not resolve there."
                    .to_owned(),
            ),
            (
                tried("127.0.0.1", DialBackOutcome::Refused),
                false,
                embedded(),
                Verdict::Fail,
                "means each host itself".to_owned(),
            ),
            (
                Err("the server is of an earlier version.".to_owned()),
                false,
                embedded(),
                Verdict::Skip,
                "Not tried: the server is of an earlier version.".to_owned(),
            ),
        ] {
            let found = judge(&tried, is_here, &answer);
            assert_eq!(found.verdict, verdict, "{}", found.message);
            assert!(found.message.contains(&words), "{}", found.message);
            assert_eq!(found.remedy.is_some(), verdict > Verdict::Skip, "{}", found.message);
        }
    }

    #[tokio::test]
    async fn a_listener_takes_one_of_the_ports_of_the_job_and_greets() {
        // No other program gets the port before it is listened on.
        let (_reserved, port) = reserve_port("127.0.0.1", 0).unwrap();
        let ports = PortRange::parse(&port.to_string()).unwrap();
        let (listener, found) = listen("127.0.0.1", Some(ports)).unwrap();
        assert_eq!(found, port);
        let read = async {
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let mut text = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut text).await.unwrap();
            text
        };
        let greeting = dial_back_greeting(b"16 random bytes.");
        let read = tokio::time::timeout(Duration::from_secs(60), read);
        tokio::select! {
            text = read => assert_eq!(text.expect("the listener greets"), greeting),
            _ = greet(&listener, &greeting) => unreachable!(),
        }
    }
}
