//! The state and its clients: executes requests, and writes the replies.
//!
//! Whoever releases a waiter also writes to its socket. So a wait costs no switch between tasks, and a
//! barrier of a thousand is a thousand small writes.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use rallypoint_core::c10d::StoreState;
use slab::Slab;
use thiserror::Error;

use super::connection::{Connection, Waiting};
use super::owner::{Ended, Host};
use super::request::{Frame, Refused, Request};
use super::wire::{NOT_READY, Opcode, READY};

use crate::log_target::STORE;

/// What is said of a value that does not exist.
static NOTHING: Bytes = Bytes::new();

/// Why a client is gone.
#[derive(Debug, Error)]
enum Gone {
    #[error(transparent)]
    Left(#[from] io::Error),
    #[error(transparent)]
    Refused(#[from] Refused),
}

#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) connections: Slab<Connection>,
    host: Option<Host>,
    state: StoreState<usize>,
    /// The clients that have new replies to be written.
    replied: Vec<usize>,
}

impl Room {
    pub(super) fn of(host: Option<Host>) -> Self {
        Self { host, ..Self::default() }
    }

    /// Tells those who said which node they are that the end is meant.
    pub(super) fn farewell(&mut self) {
        self.connections.iter_mut().for_each(|(_, connection)| connection.farewell());
    }

    /// Does what there is to do for a client: writes, reads once, executes what has come whole. Returns
    /// whether there is more, and lets others have their turn first.
    pub(super) fn turn(&mut self, id: usize, buffer: &mut [u8]) -> bool {
        if !self.connections.contains(id) {
            return false;
        }
        if let Err(gone) = self.serve(id, buffer) {
            self.close(id, &gone);
        }
        self.write_replies();
        self.connections.get(id).is_some_and(Connection::has_more)
    }

    fn serve(&mut self, id: usize, buffer: &mut [u8]) -> Result<(), Gone> {
        let connection = &mut self.connections[id];
        connection.write()?;
        if !connection.has_more() {
            return Ok(());
        }
        self.replied.push(id);
        let read = if connection.held { 0 } else { connection.read(buffer)? };
        let mut pending = std::mem::take(&mut connection.pending);
        // Most often requests come whole, and are executed where they were received.
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

    /// Executes the requests that have come whole, while their client takes the replies. Returns how many
    /// bytes they were.
    fn execute_all(&mut self, id: usize, bytes: &[u8]) -> Result<usize, Refused> {
        let mut done = 0;
        loop {
            let connection = &mut self.connections[id];
            let rest = &bytes[done..];
            if let (false, Some(opcode)) = (connection.greeted, rest.first())
                && *opcode != Opcode::Validate as u8
            {
                return Err(Refused::Stranger(*opcode));
            }
            connection.held = !connection.takes_replies();
            if connection.held {
                return Ok(done);
            }
            let Some(length) = connection.frame.end(rest)? else { return Ok(done) };
            connection.frame = Frame::default();
            let executed = Request::read(&rest[..length]).and_then(|it| self.execute(id, it));
            // Also if it was refused: a wake-up may have been passed on before.
            self.release();
            executed?;
            done += length;
        }
    }

    /// Writes down who was released by the last request, before anything else is said to them.
    fn release(&mut self) {
        for id in self.state.take_released() {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.release();
                self.replied.push(id);
            }
        }
    }

    /// In the order in which they were made, so that who has waited longest reads while we write on.
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

    /// Forgets a client and its wait.
    fn close(&mut self, id: usize, why: &Gone) {
        let mut connection = self.connections.remove(id);
        match why {
            Gone::Refused(why) if connection.greeted => {
                tracing::warn!(target: STORE, %why, "a client of the store was cut off");
            }
            why => tracing::debug!(target: STORE, %why, "a client of the store is gone"),
        }
        // What it was owed, if it can still take it.
        let _ = connection.write();
        if let (Some(guest), Some(host)) = (connection.node.take(), &mut self.host) {
            let how = match why {
                Gone::Left(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    Some(Ended::Closed)
                }
                Gone::Left(_) => Some(Ended::Reset),
                // Nobody has died: the store itself has ended the connection.
                Gone::Refused(_) => None,
            };
            host.gone(id, *guest, how);
        }
        if let Waiting::Yes(ticket) | Waiting::Released(ticket) = connection.waiting {
            self.state.cancel(ticket);
            self.release();
        }
    }

    fn execute(&mut self, id: usize, request: Request<'_>) -> Result<(), Refused> {
        let (state, connection) = (&mut self.state, &mut self.connections[id]);
        let woken = connection.woken();
        if let (Some(ticket), false) = (woken, matches!(request, Request::QueuePop { .. })) {
            state.pass_on(ticket);
        }
        let reply = &mut connection.outgoing;
        match request {
            Request::Validate { magic } => return connection.greet(magic),
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
            Request::Get { key } => reply.put_string(state.get(key).unwrap_or(&NOTHING)),
            Request::MultiGet { keys } => {
                keys.for_each(|key| reply.put_string(state.get(key).unwrap_or(&NOTHING)));
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
                let host = self.host.as_mut().ok_or(Refused::Unasked)?;
                if std::mem::replace(&mut connection.introduced, true) {
                    return Err(Refused::Twice);
                }
                let (guest, before) = host.introduce(id, &hello, connection.peer().ok())?;
                connection.node = Some(Box::new(guest));
                let local = connection.local().ok();
                host.reply(&mut connection.outgoing, local);
                // It has come back, so the end of its first connection tells nothing any more.
                if let Some(before) = before.and_then(|id| self.connections.get_mut(id)) {
                    before.node = None;
                }
            }
            Request::Goodbye => {
                if let (Some(guest), Some(host)) = (connection.node.take(), &mut self.host) {
                    host.gone(id, *guest, None);
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
