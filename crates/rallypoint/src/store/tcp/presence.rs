//! A connection that two nodes hold so that each sees the other die.

use std::io::{self, ErrorKind};

use tokio::net::ToSocketAddrs;

use super::super::agent::wire::Opcode;
use super::connection::Connection;
use super::message::Message;

/// A connection to the [`AgentStore`](super::super::AgentStore) of another node, by which both are known to live.
///
/// Dropping it says goodbye, at any time. So the other end is alarmed only by a process that dies.
#[derive(Debug)]
pub(crate) struct Presence {
    connection: Connection,
    host: String,
}

impl Presence {
    /// Connects as the node `name`. A server that knows nothing of this, or whose owner does not care, ends the
    /// connection.
    pub(crate) async fn open(address: impl ToSocketAddrs, name: &str) -> io::Result<Self> {
        let connection = Connection::open(address).await?;
        // From here on the server may know who we are, so giving up must say goodbye.
        let mut presence = Self { connection, host: String::new() };
        let hello = Message::new(Opcode::Hello).text(name);
        presence.connection.send(&hello).await?;
        let host = presence.connection.string().await?;
        presence.host = String::from_utf8(host.into())
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        Ok(presence)
    }

    /// The node at the other end.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Waits for the end. Returns whether the other side said goodbye. It may be given up and called again.
    pub(crate) async fn ended(&mut self) -> bool {
        matches!(self.connection.byte().await, Ok(byte) if byte == Opcode::Goodbye as u8)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.connection.try_send(&Message::new(Opcode::Goodbye));
    }
}
