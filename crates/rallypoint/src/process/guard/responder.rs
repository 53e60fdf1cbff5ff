//! Answers at liveness sockets: a client receives the token, and its connection stays open until the node ends.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};

/// The limit on open connections. Further clients get the token, and are disconnected.
const MAX_CONNECTIONS: usize = 256;

/// The limit on connections accepted at a time, so that clients cannot keep the guard busy.
const MAX_ACCEPTS: usize = 64;

/// Sockets with their tokens, and open connections.
#[derive(Debug, Default)]
pub(in crate::process) struct LivenessResponder {
    sockets: Vec<(String, TcpListener)>,
    kept: VecDeque<TcpStream>,
}

impl LivenessResponder {
    pub(in crate::process) fn add(&mut self, token: String, socket: OwnedFd) {
        let socket = TcpListener::from(socket);
        // The socket is non-blocking already, unless another process that holds it has changed that.
        let _ = socket.set_nonblocking(true);
        self.sockets.push((token, socket));
    }

    pub(in crate::process) fn close(&mut self, token: &str) {
        self.sockets.retain(|(known, _)| known != token);
    }

    /// The descriptors to poll.
    pub(in crate::process) fn watched(&self) -> impl Iterator<Item = PollFd<'_>> {
        let sockets = self.sockets.iter().map(|(_, socket)| socket.as_fd());
        let all = sockets.chain(self.kept.iter().map(|kept| kept.as_fd()));
        all.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
    }

    /// Accepts and answers clients. Never blocks.
    pub(in crate::process) fn answer(&mut self) {
        self.kept.retain_mut(|kept| match kept.read(&mut [0; 64]) {
            // Input of clients is ignored.
            Ok(read) => read > 0,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
        for (token, socket) in &self.sockets {
            for _ in 0..MAX_ACCEPTS {
                let mut stream = match socket.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => {
                        // Probably out of descriptors: new clients are preferred to old ones.
                        self.kept.pop_front();
                        break;
                    }
                };
                let greeting = format!("rallypoint-guard {token}\n");
                let told = stream
                    .set_nonblocking(true)
                    .and_then(|()| stream.write_all(greeting.as_bytes()));
                if told.is_ok() && self.kept.len() < MAX_CONNECTIONS {
                    self.kept.push_back(stream);
                }
            }
        }
    }
}
