//! A client's connection: its socket, its unexecuted requests, and its unsent replies.

use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;

use mio::event::Event;
use mio::net::TcpStream;
use rallypoint_core::c10d::Ticket;

use super::outgoing::Outgoing;
use super::owner::PeerNode;
use super::request::{ProtocolViolation, RequestScan};
use super::wire::{MAGIC, Opcode, STOP_WAITING, WAIT_CANCELED};

/// The number of bytes of unsent replies above which a client's requests are not executed. The replies to a
/// single request may be larger.
const MAX_UNSENT: usize = 256 << 10;

/// Whether a client waits for keys. After its release, its next request decides who gets the wake-up: see
/// `StoreState::pass_on`.
#[derive(Debug, Clone, Copy)]
pub(super) enum WaitState {
    No,
    Yes(Ticket),
    Released(Ticket),
}

/// A client's socket and the state of its protocol.
#[derive(Debug)]
pub(super) struct ClientConnection {
    stream: TcpStream,
    pub(super) outgoing: Outgoing,
    /// Received bytes of requests that were not executed yet. Empty while idle.
    pub(super) pending: Vec<u8>,
    /// How far the first pending request was scanned.
    pub(super) scan: RequestScan,
    pub(super) waiting: WaitState,
    /// The client has sent VALIDATE, which must be its first request.
    pub(super) validated: bool,
    /// The client has sent HELLO, which it may do once.
    pub(super) registered: bool,
    /// The node that the client named in HELLO, until its GOODBYE.
    pub(super) node: Option<Box<PeerNode>>,
    /// Pending requests may be complete: their execution waits until the client reads its replies.
    pub(super) held: bool,
    /// The socket may have bytes to read: the last read did not empty it.
    readable: bool,
    /// The client has closed its sending side, so the socket is read until end of file.
    ending: bool,
}

impl ClientConnection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            outgoing: Outgoing::default(),
            pending: Vec::new(),
            scan: RequestScan::default(),
            waiting: WaitState::No,
            validated: false,
            registered: false,
            node: None,
            held: false,
            readable: false,
            ending: false,
        }
    }

    /// Executes VALIDATE, the first request of a client.
    pub(super) fn validate(&mut self, magic: u32) -> Result<(), ProtocolViolation> {
        if self.validated {
            return Err(ProtocolViolation::ValidatedTwice);
        }
        self.validated = magic == MAGIC;
        self.validated.then_some(()).ok_or(ProtocolViolation::Magic(magic))
    }

    /// The client's address, as this host sees it.
    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// The address of this end of the connection.
    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Sends GOODBYE to a client that has sent HELLO, so that the end of the connection is not taken for a
    /// failure.
    pub(super) fn say_goodbye(&mut self) {
        if self.node.take().is_some() {
            self.outgoing.put(&[Opcode::Goodbye as u8]);
            // A client that does not receive it suspects this node, and the group forms again.
            let _ = self.write();
        }
    }

    /// Refuses a second wait: with two of them a reply could not be attributed.
    pub(super) fn may_wait(&self) -> Result<(), ProtocolViolation> {
        match self.waiting {
            WaitState::Yes(_) => Err(ProtocolViolation::AlreadyWaiting),
            _ => Ok(()),
        }
    }

    /// Begins a wait, or answers at once if all keys exist.
    pub(super) fn wait(&mut self, ticket: Option<Ticket>) {
        match ticket {
            Some(ticket) => self.waiting = WaitState::Yes(ticket),
            None => self.outgoing.put(&[STOP_WAITING]),
        }
    }

    /// Ends the client's wait, since its keys exist.
    pub(super) fn release(&mut self) {
        if let WaitState::Yes(ticket) = self.waiting {
            self.waiting = WaitState::Released(ticket);
            self.outgoing.put(&[STOP_WAITING]);
        }
    }

    /// Takes the ticket of a wait that has ended since the last request.
    pub(super) fn woken(&mut self) -> Option<Ticket> {
        let WaitState::Released(ticket) = self.waiting else { return None };
        self.waiting = WaitState::No;
        Some(ticket)
    }

    /// Cancels the client's wait. A client that does not wait gets the same reply.
    pub(super) fn give_up(&mut self) -> Option<Ticket> {
        self.outgoing.put(&[WAIT_CANCELED]);
        match std::mem::replace(&mut self.waiting, WaitState::No) {
            WaitState::Yes(ticket) | WaitState::Released(ticket) => Some(ticket),
            WaitState::No => None,
        }
    }

    /// Records an event of the poll.
    pub(super) fn notice(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.ending |= event.is_read_closed();
    }

    /// Whether the client reads its replies fast enough for more requests to be executed.
    pub(super) fn takes_replies(&self) -> bool {
        self.outgoing.len() <= MAX_UNSENT
    }

    /// Whether there is work for this client before the next event.
    pub(super) fn has_more(&self) -> bool {
        self.takes_replies() && (self.held || self.readable)
    }

    /// Reads available bytes, which may be none. End of file is an error.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                // A short read has emptied the socket; an event follows when more bytes arrive.
                self.readable = read == buffer.len() || self.ending;
                Ok(read)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(0)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    pub(super) fn write(&mut self) -> io::Result<()> {
        self.outgoing.write_to(&mut self.stream)
    }
}
