//! Decodes requests from a stream of bytes that arrives in pieces.

use rallypoint_core::c10d::AddError;
use thiserror::Error;

use super::wire::{Field, MAGIC, MAX_KEY, MAX_KEYS, MAX_VALUE, MAX_WORD, Opcode};

/// Why a client is disconnected.
#[derive(Debug, Error)]
pub(super) enum ProtocolViolation {
    #[error("its first message is opcode {0}, not VALIDATE; it is not a TCPStore client")]
    NotTcpStoreClient(u8),
    #[error("its first message has {0:#x} instead of {MAGIC:#x}; it is not a TCPStore client")]
    Magic(u32),
    #[error("it sent VALIDATE twice")]
    ValidatedTwice,
    #[error("there is no opcode {0}")]
    Opcode(u8),
    #[error("a key of {0} bytes; {MAX_KEY} are allowed")]
    Key(u64),
    #[error("a value of {0} bytes; {MAX_VALUE} are allowed")]
    Value(u64),
    #[error("a request with {0} keys; {MAX_KEYS} are allowed")]
    Keys(u64),
    #[error("a HELLO with a string of {0} bytes; {MAX_WORD} are allowed")]
    HelloString(u64),
    #[error("it sent HELLO as {0:?}, which is not the id of a node")]
    Name(String),
    #[error("it sent HELLO without the token of the group")]
    Token,
    #[error("it sent HELLO twice")]
    HelloTwice,
    #[error("it sent HELLO while {0} nodes are connected, which is the limit of the run")]
    TooManyNodes(usize),
    #[error("it sent HELLO, but this store has no owner that follows its peers")]
    NoOwner,
    #[error("it sent a second WAIT or BARRIER while it is waiting")]
    AlreadyWaiting,
    #[error(transparent)]
    Add(#[from] AddError),
}

/// How far an incomplete request was scanned, so that no byte is scanned twice.
#[derive(Debug, Default)]
pub(super) struct RequestScan {
    /// The number of bytes that are known to belong to this request.
    seen: usize,
    /// The number of strings that follow, once it is known.
    strings: Option<usize>,
}

impl RequestScan {
    /// The length of the request at the start of `bytes`, if the request is complete. The next request needs
    /// a new scan; until the request is complete, `bytes` may only grow between calls.
    ///
    /// A string or list that is too long is refused as soon as its length is known.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolViolation> {
        let Some(byte) = bytes.first() else { return Ok(None) };
        let shape = Opcode::from_byte(*byte).ok_or(ProtocolViolation::Opcode(*byte))?.shape();
        let each = shape.strings.len();
        let mut left = match self.strings {
            Some(left) => left,
            None if shape.list => {
                let Some(entries) = number(bytes, 1) else { return Ok(None) };
                self.seen = 9;
                fit(entries, MAX_KEYS).ok_or(ProtocolViolation::Keys(entries))? * each
            }
            None => {
                self.seen = 1;
                each
            }
        };
        while left > 0 {
            self.strings = Some(left);
            let Some(length) = number(bytes, self.seen) else { return Ok(None) };
            let field = shape.strings[(each - left % each) % each];
            let length = match field {
                Field::Key => fit(length, MAX_KEY).ok_or(ProtocolViolation::Key(length))?,
                Field::Value => fit(length, MAX_VALUE).ok_or(ProtocolViolation::Value(length))?,
                Field::Word => {
                    fit(length, MAX_WORD).ok_or(ProtocolViolation::HelloString(length))?
                }
            };
            let end = self.seen + 8 + length;
            if bytes.len() < end {
                return Ok(None);
            }
            self.seen = end;
            left -= 1;
        }
        self.strings = Some(0);
        let end = self.seen + shape.numbers;
        Ok((bytes.len() >= end).then_some(end))
    }
}

fn fit(length: u64, limit: usize) -> Option<usize> {
    usize::try_from(length).ok().filter(|length| *length <= limit)
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let digits = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(digits.try_into().ok()?))
}

/// A request. Its strings borrow from the receive buffer.
#[derive(Debug)]
pub(super) enum Request<'a> {
    Validate { magic: u32 },
    Set { key: &'a [u8], value: &'a [u8] },
    CompareSet { key: &'a [u8], expected: &'a [u8], desired: &'a [u8] },
    Get { key: &'a [u8] },
    Add { key: &'a [u8], amount: i64 },
    Check { keys: Strings<'a> },
    Wait { keys: Strings<'a> },
    NumKeys,
    DeleteKey { key: &'a [u8] },
    Append { key: &'a [u8], value: &'a [u8] },
    MultiGet { keys: Strings<'a> },
    MultiSet { pairs: Strings<'a> },
    CancelWait,
    Ping { nonce: u32 },
    QueuePush { key: &'a [u8], value: &'a [u8] },
    QueuePop { key: &'a [u8] },
    QueueLen { key: &'a [u8] },
    ListKeys,
    Barrier { key: &'a [u8], world_size: i64 },
    Hello(Hello<'a>),
    Goodbye,
}

/// The fields of a HELLO request.
#[derive(Debug)]
pub(super) struct Hello<'a> {
    pub(super) name: &'a [u8],
    pub(super) token: &'a [u8],
    /// The client's address, as the client sees it.
    pub(super) address: &'a [u8],
    /// The host of the node's liveness socket; empty if it has none.
    pub(super) liveness_host: &'a [u8],
    pub(super) liveness_token: &'a [u8],
    pub(super) liveness_port: u16,
}

impl<'a> Request<'a> {
    /// Reads a request that [`RequestScan`] found to be complete.
    pub(super) fn read(frame: &'a [u8]) -> Result<Self, ProtocolViolation> {
        let opcode = Opcode::from_byte(frame[0]).ok_or(ProtocolViolation::Opcode(frame[0]))?;
        let shape = opcode.shape();
        let begin = if shape.list { 9 } else { 1 };
        let (strings, numbers) = frame[begin..].split_at(frame.len() - begin - shape.numbers);
        let mut strings = Strings(strings);
        let mut string = || strings.next().unwrap_or_default();
        let small = || numbers.try_into().map(u32::from_le_bytes).unwrap_or_default();
        let large = || numbers.try_into().map(i64::from_le_bytes).unwrap_or_default();
        Ok(match opcode {
            Opcode::Validate => Self::Validate { magic: small() },
            Opcode::Set => Self::Set { key: string(), value: string() },
            Opcode::CompareSet => {
                Self::CompareSet { key: string(), expected: string(), desired: string() }
            }
            Opcode::Get => Self::Get { key: string() },
            Opcode::Add => Self::Add { key: string(), amount: large() },
            Opcode::Check => Self::Check { keys: strings },
            Opcode::Wait => Self::Wait { keys: strings },
            Opcode::NumKeys => Self::NumKeys,
            Opcode::DeleteKey => Self::DeleteKey { key: string() },
            Opcode::Append => Self::Append { key: string(), value: string() },
            Opcode::MultiGet => Self::MultiGet { keys: strings },
            Opcode::MultiSet => Self::MultiSet { pairs: strings },
            Opcode::CancelWait => Self::CancelWait,
            Opcode::Ping => Self::Ping { nonce: small() },
            Opcode::QueuePush => Self::QueuePush { key: string(), value: string() },
            Opcode::QueuePop => Self::QueuePop { key: string() },
            Opcode::QueueLen => Self::QueueLen { key: string() },
            Opcode::ListKeys => Self::ListKeys,
            Opcode::Barrier => Self::Barrier { key: string(), world_size: large() },
            Opcode::Hello => Self::Hello(Hello {
                name: string(),
                token: string(),
                address: string(),
                liveness_host: string(),
                liveness_token: string(),
                liveness_port: numbers.try_into().map(u16::from_le_bytes).unwrap_or_default(),
            }),
            Opcode::Goodbye => Self::Goodbye,
        })
    }
}

/// An iterator over the strings of a request.
#[derive(Debug, Clone)]
pub(super) struct Strings<'a>(&'a [u8]);

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(number(self.0, 0)?).ok()?;
        let (string, rest) = self.0.get(8..)?.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }
}
