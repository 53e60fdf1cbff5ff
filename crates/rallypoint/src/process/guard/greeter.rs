//! Answers at liveness sockets: whoever connects is told the token, and is held until the end.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};

/// How many connections are kept. Those that come when there are so many are told, and let go.
const KEPT: usize = 256;

/// How many are taken at a time, so that nobody keeps the guard from its work.
const AT_ONCE: usize = 64;

/// Sockets with their tokens, and who has come.
#[derive(Debug, Default)]
pub(in crate::process) struct Greeter {
    sockets: Vec<(String, TcpListener)>,
    kept: VecDeque<TcpStream>,
}

impl Greeter {
    pub(in crate::process) fn add(&mut self, token: String, socket: OwnedFd) {
        let socket = TcpListener::from(socket);
        // It is so already, unless somebody has changed it for all who hold it.
        let _ = socket.set_nonblocking(true);
        self.sockets.push((token, socket));
    }

    pub(in crate::process) fn close(&mut self, token: &str) {
        self.sockets.retain(|(known, _)| known != token);
    }

    /// What there may be something to do with.
    pub(in crate::process) fn watched(&self) -> impl Iterator<Item = PollFd<'_>> {
        let sockets = self.sockets.iter().map(|(_, socket)| socket.as_fd());
        let all = sockets.chain(self.kept.iter().map(|kept| kept.as_fd()));
        all.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
    }

    /// Does what there is to do. Never waits.
    pub(in crate::process) fn answer(&mut self) {
        self.kept.retain_mut(|kept| match kept.read(&mut [0; 64]) {
            // What somebody has to say is of no interest.
            Ok(read) => read > 0,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
        for (token, socket) in &self.sockets {
            for _ in 0..AT_ONCE {
                let mut stream = match socket.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => {
                        // Out of descriptors, perhaps: those who come are more than those who are here.
                        self.kept.pop_front();
                        break;
                    }
                };
                let greeting = format!("rallypoint-guard {token}\n");
                let told = stream
                    .set_nonblocking(true)
                    .and_then(|()| stream.write_all(greeting.as_bytes()));
                if told.is_ok() && self.kept.len() < KEPT {
                    self.kept.push_back(stream);
                }
            }
        }
    }
}
