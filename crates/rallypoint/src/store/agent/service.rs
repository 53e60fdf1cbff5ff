//! The state and its clients: executes requests, and writes the replies.
//!
//! The request that releases waiters also writes to their sockets. So a wait costs no task switch, and a
//! barrier of a thousand clients is a thousand small writes.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use rallypoint_core::c10d::StoreState;
use slab::Slab;
use thiserror::Error;

use super::connection::{ClientConnection, WaitState};
use super::owner::{ConnectionEnd, PeerRegistry};
use super::request::{ProtocolViolation, Request, RequestScan};
use super::wire::{NOT_READY, Opcode, READY};

use crate::log_target::STORE;

/// The reply for a key that does not exist.
static EMPTY_VALUE: Bytes = Bytes::new();

/// Why a client was disconnected.
#[derive(Debug, Error)]
enum DisconnectReason {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Refused(#[from] ProtocolViolation),
}

/// The state of a store, its clients, and its owner's registry of peers.
#[derive(Debug, Default)]
pub(super) struct StoreService {
    pub(super) connections: Slab<ClientConnection>,
    registry: Option<PeerRegistry>,
    state: StoreState<usize>,
    /// The clients with replies to write.
    replied: Vec<usize>,
}

impl StoreService {
    pub(super) fn of(registry: Option<PeerRegistry>) -> Self {
        Self { registry, ..Self::default() }
    }

    /// Sends GOODBYE to all peer nodes.
    pub(super) fn say_goodbye(&mut self) {
        self.connections.iter_mut().for_each(|(_, connection)| connection.say_goodbye());
    }

    /// Writes to a client, reads once, and executes its complete requests. Returns whether there is more to do;
    /// the caller serves other clients first.
    pub(super) fn turn(&mut self, id: usize, buffer: &mut [u8]) -> bool {
        if !self.connections.contains(id) {
            return false;
        }
        if let Err(gone) = self.serve(id, buffer) {
            self.close(id, &gone);
        }
        self.write_replies();
        self.connections.get(id).is_some_and(ClientConnection::has_more)
    }

    fn serve(&mut self, id: usize, buffer: &mut [u8]) -> Result<(), DisconnectReason> {
        let connection = &mut self.connections[id];
        connection.write()?;
        if !connection.has_more() {
            return Ok(());
        }
        self.replied.push(id);
        let read = if connection.held { 0 } else { connection.read(buffer)? };
        let mut pending = std::mem::take(&mut connection.pending);
        // Most requests arrive complete, and are executed in the read buffer without a copy.
        let apart = pending.is_empty();
        if !apart {
            pending.extend_from_slice(&buffer[..read]);
        }
        let bytes = if apart { &buffer[..read] } else { &pending };
        let done = self.execute_all(id, bytes)?;
        if apart || done > 0 {
            pending = bytes[done..].to_vec();
        }
        self.connections[id].pending = pending;
        Ok(())
    }

    /// Executes complete requests while the client reads its replies. Returns the number of bytes of the
    /// executed requests.
    fn execute_all(&mut self, id: usize, bytes: &[u8]) -> Result<usize, ProtocolViolation> {
        let mut done = 0;
        loop {
            let connection = &mut self.connections[id];
            let rest = &bytes[done..];
            if let (false, Some(opcode)) = (connection.validated, rest.first())
                && *opcode != Opcode::Validate as u8
            {
                return Err(ProtocolViolation::NotTcpStoreClient(*opcode));
            }
            connection.held = !connection.takes_replies();
            if connection.held {
                return Ok(done);
            }
            let Some(length) = connection.scan.end(rest)? else { return Ok(done) };
            connection.scan = RequestScan::default();
            let executed = Request::read(&rest[..length]).and_then(|it| self.execute(id, it));
            // After a refused request too: it may have passed on a wake-up.
            self.release();
            executed?;
            done += length;
        }
    }

    /// Queues the replies to the waiters that the last request released, before any other reply to them.
    fn release(&mut self) {
        for id in self.state.take_released() {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.release();
                self.replied.push(id);
            }
        }
    }

    /// Writes replies in the order in which they were made, so that the longest waiter reads first.
    fn write_replies(&mut self) {
        let mut next = 0;
        while let Some(&id) = self.replied.get(next) {
            next += 1;
            if let Some(connection) = self.connections.get_mut(id)
                && let Err(error) = connection.write()
            {
                self.close(id, &error.into());
            }
        }
        self.replied.clear();
    }

    /// Disconnects a client and cancels its wait.
    fn close(&mut self, id: usize, why: &DisconnectReason) {
        let mut connection = self.connections.remove(id);
        match why {
            DisconnectReason::Refused(why) if connection.validated => {
                tracing::warn!(target: STORE, %why, "disconnected a client of the store");
            }
            why => tracing::debug!(target: STORE, %why, "a client of the store has disconnected"),
        }
        // The client may still read the replies to its earlier requests.
        let _ = connection.write();
        if let (Some(peer_node), Some(registry)) = (connection.node.take(), &mut self.registry) {
            let how = match why {
                DisconnectReason::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    Some(ConnectionEnd::Closed)
                }
                DisconnectReason::Io(_) => Some(ConnectionEnd::Reset),
                // The store itself has ended the connection, so no node is lost.
                DisconnectReason::Refused(_) => None,
            };
            registry.gone(id, *peer_node, how);
        }
        if let WaitState::Yes(ticket) | WaitState::Released(ticket) = connection.waiting {
            self.state.cancel(ticket);
            self.release();
        }
    }

    fn execute(&mut self, id: usize, request: Request<'_>) -> Result<(), ProtocolViolation> {
        let (state, connection) = (&mut self.state, &mut self.connections[id]);
        let woken = connection.woken();
        if let (Some(ticket), false) = (woken, matches!(request, Request::QueuePop { .. })) {
            state.pass_on(ticket);
        }
        let reply = &mut connection.outgoing;
        match request {
            Request::Validate { magic } => return connection.validate(magic),
            Request::Ping { nonce } => reply.put(&nonce.to_le_bytes()),
            Request::Set { key, value } => state.set(key, copy(value)),
            Request::Append { key, value } => state.append(key, value),
            Request::MultiSet { mut pairs } => {
                while let (Some(key), Some(value)) = (pairs.next(), pairs.next()) {
                    state.set(key, copy(value));
                }
            }
            Request::CompareSet { key, expected, desired } => {
                match state.compare_set(key, expected, copy(desired)) {
                    Some(now) => reply.put_string(now),
                    None => reply.put_string(&copy(expected)),
                }
            }
            Request::Add { key, amount } => reply.put_number(state.add(key, amount)?),
            Request::Get { key } => reply.put_string(state.get(key).unwrap_or(&EMPTY_VALUE)),
            Request::MultiGet { keys } => {
                keys.for_each(|key| reply.put_string(state.get(key).unwrap_or(&EMPTY_VALUE)));
            }
            Request::DeleteKey { key } => reply.put_number(state.delete(key).into()),
            Request::NumKeys => reply.put_number(state.keys().len() as i64),
            Request::ListKeys => {
                reply.put_number(state.keys().len() as i64);
                state.keys().for_each(|key| reply.put_string(key));
            }
            Request::Check { mut keys } => {
                reply.put(&[if keys.all(|key| state.exists(key)) { READY } else { NOT_READY }]);
            }
            Request::QueuePush { key, value } => state.queue_push(key, copy(value)),
            Request::QueuePop { key } => {
                reply.put_number(state.queue_len(key) as i64);
                if let Some(first) = state.queue_pop(key, woken) {
                    reply.put_string(&first);
                }
            }
            Request::QueueLen { key } => reply.put_number(state.queue_len(key) as i64),
            Request::Wait { keys } => {
                connection.may_wait()?;
                connection.wait(state.wait(keys, id));
            }
            Request::Barrier { key, world_size } => {
                connection.may_wait()?;
                connection.wait(state.barrier(key, world_size, id)?);
            }
            Request::Hello(hello) => {
                let registry = self.registry.as_mut().ok_or(ProtocolViolation::NoOwner)?;
                if std::mem::replace(&mut connection.registered, true) {
                    return Err(ProtocolViolation::HelloTwice);
                }
                let (peer_node, before) = registry.register(id, &hello, connection.peer().ok())?;
                connection.node = Some(Box::new(peer_node));
                let local = connection.local().ok();
                registry.reply(&mut connection.outgoing, local);
                // The node has connected again, so the end of its older connection is not a failure.
                if let Some(before) = before.and_then(|id| self.connections.get_mut(id)) {
                    before.node = None;
                }
            }
            Request::Goodbye => {
                if let (Some(peer_node), Some(registry)) =
                    (connection.node.take(), &mut self.registry)
                {
                    registry.gone(id, *peer_node, None);
                }
            }
            Request::CancelWait => {
                if let Some(ticket) = connection.give_up() {
                    state.cancel(ticket);
                }
            }
        }
        Ok(())
    }
}

fn copy(value: &[u8]) -> Bytes {
    Bytes::copy_from_slice(value)
}
