//! A program that answers at the endpoint and is no etcd: which one, by its first bytes.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long the program may take to greet, and then to answer.
const GREETING: Duration = Duration::from_millis(300);
const ANSWER: Duration = Duration::from_millis(500);

/// A question that most servers answer in a way that tells them apart.
const QUESTION: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

/// The most bytes that are quoted.
const QUOTED: usize = 40;

/// What a program says to a client that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FirstBytes {
    /// Before it was asked anything.
    greeting: Vec<u8>,
    /// The answer to a request of HTTP/1.
    answer: Vec<u8>,
    /// Whether the program closed the connection.
    closed: bool,
}

/// A program that is no etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Foreign {
    /// It speaks TLS, and may be a server after all.
    Tls,
    /// It accepts connections, and says nothing.
    Mute,
    /// This one.
    Program(String),
}

/// Listens to the program, and asks it. Takes less than a second.
pub(super) async fn listen(address: SocketAddr) -> FirstBytes {
    let mut found = FirstBytes::default();
    let Ok(Ok(mut stream)) = timeout(ANSWER, TcpStream::connect(address)).await else {
        return found;
    };
    (found.greeting, found.closed) = read(&mut stream, GREETING).await;
    if found.greeting.is_empty() && !found.closed && stream.write_all(QUESTION).await.is_ok() {
        (found.answer, found.closed) = read(&mut stream, ANSWER).await;
    }
    found
}

async fn read(stream: &mut TcpStream, patience: Duration) -> (Vec<u8>, bool) {
    let mut bytes = vec![0; 512];
    match timeout(patience, stream.read(&mut bytes)).await {
        Ok(Ok(length @ 1..)) => {
            bytes.truncate(length);
            (bytes, false)
        }
        Ok(_) => (Vec::new(), true),
        Err(_) => (Vec::new(), false),
    }
}

/// The program that says this.
pub(super) fn identify(found: &FirstBytes) -> Foreign {
    let FirstBytes { greeting, answer, closed } = found;
    let first_line = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let line = text.lines().next().unwrap_or_default().trim();
        line.chars().filter(|c| !c.is_control()).take(QUOTED).collect::<String>()
    };
    let header = |bytes: &[u8], name: &str| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().chars().take(QUOTED).collect())
        })
    };
    // A record of TLS: an alert, version 3.
    if answer.starts_with(&[0x15, 0x03]) {
        return Foreign::Tls;
    }
    Foreign::Program(match (&greeting[..], &answer[..]) {
        ([], []) if *closed => {
            "a program that closes the connection without an answer, as torchrun's c10d store does"
                .to_owned()
        }
        ([], []) => return Foreign::Mute,
        ([], answer) if answer.starts_with(b"HTTP/") => {
            let server: Option<String> = header(answer, "server");
            server.map_or_else(
                || "an HTTP server".to_owned(),
                |server| format!("an HTTP server ({server})"),
            )
        }
        ([], answer) if answer.starts_with(b"-ERR") => "a Redis server".to_owned(),
        ([], answer) => format!("a program that answers {:?}", first_line(answer)),
        (greeting, _) if greeting.starts_with(b"SSH-") => {
            format!("an SSH server ({})", first_line(greeting))
        }
        (greeting, _) if greeting.starts_with(b"rallypoint-guard") => {
            "the liveness socket of a Rallypoint node".to_owned()
        }
        (greeting, _) => format!("a program that greets with {:?}", first_line(greeting)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_their_first_bytes() {
        let program = |text: &str| Foreign::Program(text.to_owned());
        for (greeting, answer, closed, expected) in [
            (
                "SSH-2.0-OpenSSH_9.2p1\r\n",
                "",
                false,
                program("an SSH server (SSH-2.0-OpenSSH_9.2p1)"),
            ),
            (
                "220 mail ready\r\n",
                "",
                false,
                program("a program that greets with \"220 mail ready\""),
            ),
            (
                "rallypoint-guard 00\n",
                "",
                false,
                program("the liveness socket of a Rallypoint node"),
            ),
            (
                "",
                "HTTP/1.1 404 Not Found\r\nserver: nginx\r\n\r\n",
                true,
                program("an HTTP server (nginx)"),
            ),
            ("", "HTTP/1.0 400 Bad Request\r\n\r\n", false, program("an HTTP server")),
            ("", "-ERR unknown command\r\n", false, program("a Redis server")),
            ("", "what?\n", false, program("a program that answers \"what?\"")),
            ("", "\x15\x03\x01\x00\x02", true, Foreign::Tls),
            ("", "", false, Foreign::Mute),
        ] {
            let found = FirstBytes { greeting: greeting.into(), answer: answer.into(), closed };
            assert_eq!(identify(&found), expected, "{found:?}");
        }
        let closed = FirstBytes { closed: true, ..FirstBytes::default() };
        assert!(matches!(identify(&closed), Foreign::Program(text) if text.contains("c10d")));
    }
}
