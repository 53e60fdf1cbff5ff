//! The thread that serves a store: it polls the sockets and handles their events.
//!
//! One thread is faster than several: executing a request takes less time than handing it to another thread,
//! or taking a lock.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mio::event::Event;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};

use super::super::keep_alive::keep_alive;
use super::connection::ClientConnection;
use super::service::StoreService;

use crate::log_target::STORE;

/// The poll token of the listener. Clients have the tokens of their slab entries.
const LISTENER: Token = Token(usize::MAX);
/// The poll token of the waker that stops the thread.
const STOP: Token = Token(usize::MAX - 1);

/// The size of the read buffer, which all clients share.
const BUFFER: usize = 128 << 10;

/// The pause before accepting is retried after a failure.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The event loop of a store.
#[derive(Debug)]
pub(super) struct Reactor {
    poll: Poll,
    listener: TcpListener,
    service: StoreService,
    buffer: Vec<u8>,
    /// The clients with work left after their last turn.
    busy: BTreeSet<usize>,
    /// Whether the last attempt to accept a connection failed.
    accept_failed: bool,
    connections: Arc<AtomicUsize>,
    /// Held here too: if its last owner dropped it, the wake-up would be lost before the poll reports it.
    stop: Arc<Waker>,
}

impl Reactor {
    pub(super) fn new(mut listener: TcpListener, service: StoreService) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let stop = Arc::new(Waker::new(poll.registry(), STOP)?);
        Ok(Self {
            poll,
            listener,
            service,
            buffer: vec![0; BUFFER],
            busy: BTreeSet::new(),
            accept_failed: false,
            connections: Arc::default(),
            stop,
        })
    }

    /// The waker that stops the event loop.
    pub(super) fn stop(&self) -> Arc<Waker> {
        self.stop.clone()
    }

    /// The current number of clients.
    pub(super) fn connections(&self) -> Arc<AtomicUsize> {
        self.connections.clone()
    }

    /// Serves until it is told to stop, and then closes all connections.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, self.poll_timeout()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!(target: STORE, %error, "the store cannot poll its sockets and ends");
                    return;
                }
            }
            if events.iter().any(|event| event.token() == STOP) {
                return self.service.say_goodbye();
            }
            let busy = std::mem::take(&mut self.busy);
            busy.into_iter().for_each(|id| self.turn(id));
            events.iter().for_each(|event| self.handle_event(event));
            if self.accept_failed {
                self.accept();
            }
            self.connections.store(self.service.connections.len(), Ordering::Relaxed);
        }
    }

    /// How long the poll may wait for an event.
    fn poll_timeout(&self) -> Option<Duration> {
        match (self.busy.is_empty(), self.accept_failed) {
            (false, _) => Some(Duration::ZERO),
            (true, true) => Some(ACCEPT_AGAIN),
            (true, false) => None,
        }
    }

    fn handle_event(&mut self, event: &Event) {
        match event.token() {
            LISTENER => self.accept(),
            Token(id) => {
                if let Some(connection) = self.service.connections.get_mut(id) {
                    connection.notice(event);
                    self.turn(id);
                }
            }
        }
    }

    fn turn(&mut self, id: usize) {
        if self.service.turn(id, &mut self.buffer) {
            self.busy.insert(id);
        }
    }

    /// Accepts all pending connections.
    fn accept(&mut self) {
        loop {
            match self.accept_one() {
                Ok(()) => self.accept_failed = false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.accept_failed = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Usually the process has no descriptor left; a connection that ends frees one.
                    if !std::mem::replace(&mut self.accept_failed, true) {
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
        let entry = self.service.connections.vacant_entry();
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, Token(entry.key()), both)?;
        entry.insert(ClientConnection::new(stream));
        Ok(())
    }
}
