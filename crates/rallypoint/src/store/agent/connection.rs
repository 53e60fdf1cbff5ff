//! A client's connection: its socket, its unexecuted requests, and its unsent replies.

use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;

use mio::event::Event;
use mio::net::TcpStream;
use rallypoint_core::c10d::Ticket;

use super::outgoing::Outgoing;
use super::owner::Guest;
use super::request::{Frame, Refused};
use super::wire::{MAGIC, Opcode, STOP_WAITING, WAIT_CANCELED};

/// The number of bytes of unsent replies above which a client's requests are not executed. The replies to a
/// single request may be larger.
const MAX_UNSENT: usize = 256 << 10;

/// Whether a client waits. A released client is expected to show what it does next: see
/// `StoreState::pass_on`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waiting {
    No,
    Yes(Ticket),
    Released(Ticket),
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    pub(super) outgoing: Outgoing,
    /// Requests, or a piece of one, that have come and were not executed. Nothing while idle.
    pub(super) pending: Vec<u8>,
    /// How far the first of them was looked through.
    pub(super) frame: Frame,
    pub(super) waiting: Waiting,
    /// It has said what a client says first.
    pub(super) greeted: bool,
    /// It has said hello, which it may do once.
    pub(super) introduced: bool,
    /// The node that it said it is, until it says goodbye.
    pub(super) node: Option<Box<Guest>>,
    /// Some of what is pending may be whole: it had to wait until replies were taken.
    pub(super) held: bool,
    /// There may be something to read: the last read did not show that there is nothing.
    readable: bool,
    /// The client sends no more, so reading goes on until the end shows.
    ending: bool,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            outgoing: Outgoing::default(),
            pending: Vec::new(),
            frame: Frame::default(),
            waiting: Waiting::No,
            greeted: false,
            introduced: false,
            node: None,
            held: false,
            readable: false,
            ending: false,
        }
    }

    /// Hears what a client says first.
    pub(super) fn greet(&mut self, magic: u32) -> Result<(), Refused> {
        if self.greeted {
            return Err(Refused::Greeted);
        }
        self.greeted = magic == MAGIC;
        self.greeted.then_some(()).ok_or(Refused::Magic(magic))
    }

    /// The address of the other end, as it is seen from here.
    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// The address of this end.
    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Tells a client who said which node it is that the end is meant.
    pub(super) fn farewell(&mut self) {
        if self.node.take().is_some() {
            self.outgoing.put(&[Opcode::Goodbye as u8]);
            // If the client does not receive it, it takes this node for dead, and the group forms again.
            let _ = self.write();
        }
    }

    /// Refuses a second wait: with two of them a reply could not be attributed.
    pub(super) fn may_wait(&self) -> Result<(), Refused> {
        match self.waiting {
            Waiting::Yes(_) => Err(Refused::Waits),
            _ => Ok(()),
        }
    }

    /// The client waits, unless there is nothing to wait for.
    pub(super) fn wait(&mut self, ticket: Option<Ticket>) {
        match ticket {
            Some(ticket) => self.waiting = Waiting::Yes(ticket),
            None => self.outgoing.put(&[STOP_WAITING]),
        }
    }

    /// Ends the client's wait, since its keys exist.
    pub(super) fn release(&mut self) {
        if let Waiting::Yes(ticket) = self.waiting {
            self.waiting = Waiting::Released(ticket);
            self.outgoing.put(&[STOP_WAITING]);
        }
    }

    /// The ticket of the wait that has just ended, once.
    pub(super) fn woken(&mut self) -> Option<Ticket> {
        let Waiting::Released(ticket) = self.waiting else { return None };
        self.waiting = Waiting::No;
        Some(ticket)
    }

    /// The client does not want to wait any longer. There is one reply to that, also if it does not wait.
    pub(super) fn give_up(&mut self) -> Option<Ticket> {
        self.outgoing.put(&[WAIT_CANCELED]);
        match std::mem::replace(&mut self.waiting, Waiting::No) {
            Waiting::Yes(ticket) | Waiting::Released(ticket) => Some(ticket),
            Waiting::No => None,
        }
    }

    /// Hears from the system that something can be done.
    pub(super) fn notice(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.ending |= event.is_read_closed();
    }

    /// Whether the client takes its replies, so that more can be made.
    pub(super) fn takes_replies(&self) -> bool {
        self.outgoing.len() <= MAX_UNSENT
    }

    /// Whether there is more to do before the system has anything new to tell.
    pub(super) fn has_more(&self) -> bool {
        self.takes_replies() && (self.held || self.readable)
    }

    /// Reads what has come, which may be nothing. The end is an error.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                // A short read has emptied the socket, and the system tells when more comes.
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
