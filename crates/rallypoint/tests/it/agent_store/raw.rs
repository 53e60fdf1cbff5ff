//! A client that is written byte by byte, from the description of the wire.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{A_WHILE, SOON};

pub const VALIDATE: &[u8] = b"\x00\xce\xf7\x85\x3c";

/// A string: its length, and its bytes.
pub fn string(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

pub fn number(number: i64) -> [u8; 8] {
    number.to_le_bytes()
}

/// A request: its opcode, and its fields one after the other.
pub fn request(opcode: u8, fields: &[&[u8]]) -> Vec<u8> {
    [&[opcode], fields.concat().as_slice()].concat()
}

/// A request with a list of keys.
pub fn list(opcode: u8, keys: &[&str]) -> Vec<u8> {
    let strings: Vec<u8> = keys.iter().flat_map(string).collect();
    request(opcode, &[&number(keys.len() as i64), &strings])
}

pub fn set(key: &str, value: impl AsRef<[u8]>) -> Vec<u8> {
    request(1, &[&string(key), &string(value)])
}

pub fn get(key: &str) -> Vec<u8> {
    request(3, &[&string(key)])
}

pub fn add(key: &str, amount: i64) -> Vec<u8> {
    request(4, &[&string(key), &number(amount)])
}

pub fn wait(keys: &[&str]) -> Vec<u8> {
    list(6, keys)
}

pub fn ping(nonce: u32) -> Vec<u8> {
    request(13, &[&nonce.to_le_bytes()])
}

pub fn queue_push(key: &str, value: &str) -> Vec<u8> {
    request(14, &[&string(key), &string(value)])
}

pub fn queue_pop(key: &str) -> Vec<u8> {
    request(15, &[&string(key)])
}

pub fn barrier(key: &str, world_size: i64) -> Vec<u8> {
    request(18, &[&string(key), &number(world_size)])
}

pub const CANCEL_WAIT: &[u8] = &[12];
pub const STOP_WAITING: &[u8] = &[0];
pub const WAIT_CANCELED: &[u8] = &[1];

pub struct Raw(pub TcpStream);

impl Raw {
    /// A connection that has said nothing yet.
    pub async fn stranger(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub async fn connect(address: SocketAddr) -> Self {
        let mut raw = Self::stranger(address).await;
        raw.say(VALIDATE).await;
        raw
    }

    pub async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next bytes are these.
    pub async fn hears(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut bytes = vec![0; expected.len()];
        let read = timeout(SOON, self.0.read_exact(&mut bytes)).await;
        read.expect("an answer in time").unwrap();
        assert!(bytes == expected, "heard {:?}, not {:?}", start_of(&bytes), start_of(expected));
    }

    pub async fn asks(&mut self, request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        self.say(request).await;
        self.hears(reply).await;
    }

    /// Everything that was said has been executed.
    pub async fn settles(&mut self) {
        self.asks(ping(77), 77_u32.to_le_bytes()).await;
    }

    pub async fn hears_nothing(&mut self) {
        let mut byte = [0];
        let read = timeout(A_WHILE, self.0.read(&mut byte)).await;
        assert!(read.is_err(), "heard {read:?}, {byte:?}");
    }

    /// The other side has gone, with or without a farewell.
    pub async fn is_closed(&mut self) {
        let mut rest = Vec::new();
        let read = timeout(SOON, self.0.read_to_end(&mut rest)).await.expect("closed in time");
        assert!(rest.is_empty(), "heard {:?}", start_of(&rest));
        let reset = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(read.map_or_else(reset, |_| true));
    }
}

fn start_of(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(100)]
}
