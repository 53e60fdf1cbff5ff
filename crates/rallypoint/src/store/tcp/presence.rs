//! A connection that two nodes hold so that each sees the other die.

use std::io::{self, ErrorKind};

use rallypoint_core::rendezvous::documents::LivenessAddress;
use tokio::net::ToSocketAddrs;

use super::super::agent::canonical;
use super::super::agent::wire::{MAX_WORD, Opcode};
use super::connection::StoreConnection;
use super::message::Message;

/// A connection to the [`AgentStore`](super::super::AgentStore) of another node, by which both are known to live.
///
/// Dropping it says goodbye, at any time. So the other end is alarmed only by a process that dies.
#[derive(Debug)]
pub(crate) struct Presence {
    connection: StoreConnection,
    host: String,
    liveness: Option<LivenessAddress>,
    direct: bool,
}

/// How a presence ended.
#[derive(Debug)]
pub(crate) enum PresenceEnd {
    /// The other side said goodbye.
    Goodbye,
    /// In good order and without a goodbye, as the system of the other end does when a process dies.
    Closed,
    /// By an error: it was reset, or nothing was heard for too long.
    Reset(io::Error),
}

impl Presence {
    /// Connects as the node `name`, whose liveness socket is `liveness`, and shows the token of the group. A server
    /// that knows nothing of this, whose owner does not care, or which has another token, ends the connection.
    pub(crate) async fn open(
        address: impl ToSocketAddrs,
        name: &str,
        token: &str,
        liveness: Option<&LivenessAddress>,
    ) -> io::Result<Self> {
        let connection = StoreConnection::open(address).await?;
        let (local, peer) = connection.ends()?;
        // From here on the server may know who we are, so giving up must say goodbye.
        let mut presence = Self { connection, host: String::new(), liveness: None, direct: false };
        let local = canonical(local).to_string();
        let hello = Message::new(Opcode::Hello).text(name).text(token).text(&local);
        let hello = match liveness {
            Some(LivenessAddress { host, port, token }) => {
                hello.text(host).text(token).short(*port)
            }
            None => hello.text("").text("").short(0),
        };
        let connection = &mut presence.connection;
        connection.send(&hello).await?;
        let host = connection.word(MAX_WORD).await.map_err(unwelcome)?;
        let seen = connection.word(MAX_WORD).await?;
        let (name, token) = (connection.word(MAX_WORD).await?, connection.word(MAX_WORD).await?);
        let port = connection.short().await?;
        let liveness = LivenessAddress { host: name, port, token };
        presence.liveness = Some(liveness).filter(|liveness| !liveness.host.is_empty());
        presence.direct = seen == canonical(peer).to_string();
        presence.host = host;
        Ok(presence)
    }

    /// The node at the other end.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Its liveness socket, if it has one.
    pub(crate) fn liveness(&self) -> Option<&LivenessAddress> {
        self.liveness.as_ref()
    }

    /// Whether both ends agree on the address of the other one. If not, something between them may end the connection
    /// in the name of either.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Waits for the end. It may be given up and called again.
    pub(crate) async fn ended(&mut self) -> PresenceEnd {
        match self.connection.byte().await {
            Ok(byte) if byte == Opcode::Goodbye as u8 => PresenceEnd::Goodbye,
            Ok(byte) => {
                let what = format!("it said {byte:#x}, which is no goodbye");
                PresenceEnd::Reset(io::Error::new(ErrorKind::InvalidData, what))
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => PresenceEnd::Closed,
            Err(error) => PresenceEnd::Reset(error),
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.connection.try_send(&Message::new(Opcode::Goodbye));
    }
}

/// A connection that ends at the hello was ended because of it.
fn unwelcome(error: io::Error) -> io::Error {
    if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) {
        let what = "it ended the connection at our hello: it is no member of this group, or has no \
                    room for another";
        return io::Error::new(error.kind(), what);
    }
    error
}
