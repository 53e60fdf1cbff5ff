//! The thread that serves a store: it waits for the system to tell what can be done, and does it.
//!
//! One thread is enough, and quicker than several: a request takes less time than it would to hand it to
//! another thread, or to take a lock.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mio::event::Event;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};

use super::super::keep_alive::keep_alive;
use super::connection::Connection;
use super::room::Room;

use crate::log_target::STORE;

/// The tokens that are not a client's.
const LISTENER: Token = Token(usize::MAX);
const STOP: Token = Token(usize::MAX - 1);

/// As much as is read at a time. All clients share one buffer.
const BUFFER: usize = 128 << 10;

/// How long to wait before another connection is accepted, if one could not be.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Reactor {
    poll: Poll,
    listener: TcpListener,
    room: Room,
    buffer: Vec<u8>,
    /// The clients that have more to do than was done in their last turn.
    busy: BTreeSet<usize>,
    /// Connections could not be accepted when it was last tried.
    short_of_descriptors: bool,
    connections: Arc<AtomicUsize>,
    /// Held here too: closed by its last owner, it would be forgotten before it was heard.
    stop: Arc<Waker>,
}

impl Reactor {
    pub(super) fn new(mut listener: TcpListener, room: Room) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let stop = Arc::new(Waker::new(poll.registry(), STOP)?);
        Ok(Self {
            poll,
            listener,
            room,
            buffer: vec![0; BUFFER],
            busy: BTreeSet::new(),
            short_of_descriptors: false,
            connections: Arc::default(),
            stop,
        })
    }

    /// Ends it, when it is woken.
    pub(super) fn stop(&self) -> Arc<Waker> {
        self.stop.clone()
    }

    /// How many clients there are, at any time.
    pub(super) fn connections(&self) -> Arc<AtomicUsize> {
        self.connections.clone()
    }

    /// Serves until it is told to stop. All connections end with it.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, self.patience()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!(target: STORE, %error, "the store cannot go on");
                    return;
                }
            }
            if events.iter().any(|event| event.token() == STOP) {
                return self.room.farewell();
            }
            let busy = std::mem::take(&mut self.busy);
            busy.into_iter().for_each(|id| self.turn(id));
            events.iter().for_each(|event| self.hear(event));
            if self.short_of_descriptors {
                self.accept();
            }
            self.connections.store(self.room.connections.len(), Ordering::Relaxed);
        }
    }

    /// How long to wait for the system.
    fn patience(&self) -> Option<Duration> {
        match (self.busy.is_empty(), self.short_of_descriptors) {
            (false, _) => Some(Duration::ZERO),
            (true, true) => Some(ACCEPT_AGAIN),
            (true, false) => None,
        }
    }

    fn hear(&mut self, event: &Event) {
        match event.token() {
            LISTENER => self.accept(),
            Token(id) => {
                if let Some(connection) = self.room.connections.get_mut(id) {
                    connection.notice(event);
                    self.turn(id);
                }
            }
        }
    }

    fn turn(&mut self, id: usize) {
        if self.room.turn(id, &mut self.buffer) {
            self.busy.insert(id);
        }
    }

    /// Accepts all pending connections.
    fn accept(&mut self) {
        loop {
            match self.accept_one() {
                Ok(()) => self.short_of_descriptors = false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.short_of_descriptors = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Most often no descriptor is left; a connection that ends frees one.
                    if !std::mem::replace(&mut self.short_of_descriptors, true) {
                        tracing::warn!(target: STORE, %error, "cannot accept a connection");
                    }
                    return;
                }
            }
        }
    }

    fn accept_one(&mut self) -> io::Result<()> {
        let (mut stream, _) = self.listener.accept()?;
        // Replies are small, and a client waits for each.
        let _ = stream.set_nodelay(true);
        let _ = keep_alive(&stream);
        let entry = self.room.connections.vacant_entry();
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, Token(entry.key()), both)?;
        entry.insert(Connection::new(stream));
        Ok(())
    }
}
