//! A connection to a store, which one call at a time uses.
//!
//! If a call is dropped half-way, so is its connection, since the replies that are under way are unknown.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time::timeout;

use super::super::agent::wire::{MAGIC, Opcode, READY, STOP_WAITING, WAIT_CANCELED};
use super::super::keep_alive::keep_alive;
use super::super::timeout::CallTimeout;
use super::message::Message;

/// The time-out of a call that does not wait; after it the server counts as lost.
pub(super) const ROUND_TRIP: Duration = Duration::from_secs(60);

/// The size of the buffer, which most replies fit in; larger ones bypass it.
const BUFFER: usize = 1024;

#[derive(Debug)]
pub(super) struct StoreConnection(BufReader<TcpStream>);

impl StoreConnection {
    /// Connects, and makes sure that there is a store at the other end.
    pub(super) async fn open(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        keep_alive(&stream)?;
        let mut connection = Self(BufReader::with_capacity(BUFFER, stream));
        let greeting = Message::new(Opcode::Validate).word(MAGIC);
        connection.ask_for_echo(greeting).await?;
        Ok(connection)
    }

    /// Whether nothing has come since the last call, not even the end.
    pub(super) fn is_quiet(&self) -> bool {
        let unexpected = self.0.get_ref().try_read(&mut [0]);
        self.0.buffer().is_empty()
            && unexpected.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    pub(super) async fn send(&mut self, message: &Message) -> io::Result<()> {
        soon(self.0.write_all(message.as_bytes())).await
    }

    /// Sends a message that has no reply, and waits until the server has executed it.
    pub(super) async fn ask_for_echo(&mut self, message: Message) -> io::Result<()> {
        let nonce = fastrand::u32(..);
        self.send(&message.then(Opcode::Ping).word(nonce)).await?;
        if soon(self.0.read_u32_le()).await? != nonce {
            return Err(strange("a ping was answered with something else"));
        }
        Ok(())
    }

    /// Sends a short message if the system takes it at once, which it does unless the other end is gone.
    pub(super) fn try_send(&self, message: &Message) {
        let _ = self.0.get_ref().try_write(message.as_bytes());
    }

    /// The next byte, however long it takes. It may be given up and called again.
    pub(super) async fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        match self.0.read(&mut byte).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(byte[0]),
        }
    }

    pub(super) async fn number(&mut self) -> io::Result<i64> {
        soon(self.0.read_i64_le()).await
    }

    /// A string. Memory for it is taken as it comes, whatever length is announced.
    pub(super) async fn string(&mut self) -> io::Result<Bytes> {
        let length = soon(self.0.read_u64_le()).await?;
        let mut string = Vec::new();
        let read = soon((&mut self.0).take(length).read_to_end(&mut string)).await?;
        if read as u64 != length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(string.into())
    }

    /// A short string, such as a name. A longer one than `limit` is no answer.
    pub(super) async fn word(&mut self, limit: usize) -> io::Result<String> {
        let length = soon(self.0.read_u64_le()).await?;
        let length = usize::try_from(length).ok().filter(|length| *length <= limit);
        let mut word = vec![0; length.ok_or_else(|| strange("a name is too long"))?];
        soon(self.0.read_exact(&mut word)).await?;
        String::from_utf8(word).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    pub(super) async fn short(&mut self) -> io::Result<u16> {
        soon(self.0.read_u16_le()).await
    }

    /// The addresses of this end and of the other.
    pub(super) fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        let stream = self.0.get_ref();
        Ok((stream.local_addr()?, stream.peer_addr()?))
    }

    pub(super) async fn strings(&mut self, count: usize) -> io::Result<Vec<Bytes>> {
        let mut strings = Vec::new();
        for _ in 0..count {
            strings.push(self.string().await?);
        }
        Ok(strings)
    }

    /// The answer to a check.
    pub(super) async fn is_ready(&mut self) -> io::Result<bool> {
        Ok(soon(self.0.read_u8()).await? == READY)
    }

    /// Sends a request for the first element of a queue.
    pub(super) async fn pop(&mut self, message: &Message) -> io::Result<Option<Bytes>> {
        self.send(message).await?;
        match self.number().await? {
            0 => Ok(None),
            _ => self.string().await.map(Some),
        }
    }

    /// Sends a request to wait, and waits. Returns whether the wait was over in time.
    pub(super) async fn wait(
        &mut self,
        message: &Message,
        patience: CallTimeout,
    ) -> io::Result<bool> {
        self.send(message).await?;
        if let Ok(reply) = timeout(patience.left(), self.0.read_u8()).await {
            return expect(reply?, STOP_WAITING).map(|()| true);
        }
        self.send(&Message::new(Opcode::CancelWait)).await?;
        let over = soon(self.0.read_u8()).await? == STOP_WAITING;
        if over {
            // The cancellation has crossed the release.
            expect(soon(self.0.read_u8()).await?, WAIT_CANCELED)?;
        }
        Ok(over)
    }

    /// Says that a wait which is over was not for an element of a queue, so that the server wakes the next
    /// in line. To write no values does nothing else, and has no reply that would have to be waited for.
    pub(super) async fn pass_on(&mut self) {
        // If it fails, the server notices the end of the connection.
        let _ = self.send(&Message::new(Opcode::MultiSet).length(0)).await;
    }
}

fn expect(reply: u8, expected: u8) -> io::Result<()> {
    (reply == expected)
        .then_some(())
        .ok_or_else(|| strange("a wait was answered with something else"))
}

fn strange(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{what}; is it a TCPStore?"))
}

async fn soon<T>(exchange: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = || io::Error::new(ErrorKind::TimedOut, format!("no answer in {ROUND_TRIP:?}"));
    timeout(ROUND_TRIP, exchange).await.unwrap_or_else(|_| Err(late()))
}
