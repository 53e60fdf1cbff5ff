//! The wire protocol of PyTorch's `TCPStore`.
//!
//! A request is an opcode and its fields, a reply is its fields alone, and some requests have no reply.
//! A number is little-endian. A string, be it a key or a value, is its length in 64 bits and then its
//! bytes. Lists are preceded by their length in 64 bits.
//!
//! Two opcodes are Rallypoint's own. They are far from PyTorch's numbers, and PyTorch's server closes a connection on
//! which it receives them. By [`Opcode::Hello`] a client names its node and proves that it has the token of the group;
//! the reply names the owner of the store. From then on, either side sends [`Opcode::Goodbye`] before it closes the
//! connection. An end without it means that a process has died, or that the network has ended the connection.
//!
//! A HELLO has the node's id, the token, the client's address as the client sees it, and the node's liveness socket:
//! host, token, and port in 16 bits; an empty host if it has none. The reply has the same fields of the owner, without
//! the token of the group.

/// The magic number in [`Opcode::Validate`], the first request of a client.
pub(in crate::store) const MAGIC: u32 = 0x3c85_f7ce;

/// The longest key, as in PyTorch's own server.
pub(in crate::store) const MAX_KEY: usize = 8192;
/// The longest value, as in PyTorch's own server.
pub(in crate::store) const MAX_VALUE: usize = 8 << 20;
/// The largest number of keys in one request, as in PyTorch's own server.
pub(in crate::store) const MAX_KEYS: usize = 128 << 10;

/// The longest string in a HELLO and in its reply.
pub(in crate::store) const MAX_WORD: usize = 256;

/// The reply to a wait or barrier when it is over.
pub(in crate::store) const STOP_WAITING: u8 = 0;
/// The reply to the cancellation of a wait or barrier.
pub(in crate::store) const WAIT_CANCELED: u8 = 1;

/// The reply to a check if all keys exist.
pub(in crate::store) const READY: u8 = 0;
/// The reply to a check if a key is missing.
pub(in crate::store) const NOT_READY: u8 = 1;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::store) enum Opcode {
    Validate,
    Set,
    CompareSet,
    Get,
    Add,
    Check,
    Wait,
    NumKeys,
    DeleteKey,
    Append,
    MultiGet,
    MultiSet,
    CancelWait,
    Ping,
    QueuePush,
    QueuePop,
    QueueLen,
    ListKeys,
    Barrier,
    Hello = 0xe0,
    Goodbye,
}

/// PyTorch's opcodes, each at the index of its number.
const OPCODES: [Opcode; 19] = [
    Opcode::Validate,
    Opcode::Set,
    Opcode::CompareSet,
    Opcode::Get,
    Opcode::Add,
    Opcode::Check,
    Opcode::Wait,
    Opcode::NumKeys,
    Opcode::DeleteKey,
    Opcode::Append,
    Opcode::MultiGet,
    Opcode::MultiSet,
    Opcode::CancelWait,
    Opcode::Ping,
    Opcode::QueuePush,
    Opcode::QueuePop,
    Opcode::QueueLen,
    Opcode::ListKeys,
    Opcode::Barrier,
];

/// The meaning of a string, which decides how long it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Key,
    Value,
    /// A name, a token or an address.
    Word,
}

/// The fields that follow an opcode.
#[derive(Debug)]
pub(super) struct Shape {
    /// The strings; for a list, those of one entry.
    pub(super) strings: &'static [Field],
    /// Whether the strings are a list, preceded by its length.
    pub(super) list: bool,
    /// The number of bytes of the numbers at the end.
    pub(super) numbers: usize,
}

impl Opcode {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        let ours = || [Self::Hello, Self::Goodbye].into_iter().find(|ours| *ours as u8 == byte);
        OPCODES.get(usize::from(byte)).copied().or_else(ours)
    }

    pub(super) const fn shape(self) -> Shape {
        use Field::{Key, Value, Word};
        let (strings, list, numbers): (&'static [Field], bool, usize) = match self {
            Self::NumKeys | Self::CancelWait | Self::ListKeys | Self::Goodbye => (&[], false, 0),
            Self::Validate | Self::Ping => (&[], false, 4),
            Self::Get | Self::DeleteKey | Self::QueuePop | Self::QueueLen => (&[Key], false, 0),
            Self::Hello => (&[Word, Word, Word, Word, Word], false, 2),
            Self::Add | Self::Barrier => (&[Key], false, 8),
            Self::Set | Self::Append | Self::QueuePush => (&[Key, Value], false, 0),
            Self::CompareSet => (&[Key, Value, Value], false, 0),
            Self::Check | Self::Wait | Self::MultiGet => (&[Key], true, 0),
            Self::MultiSet => (&[Key, Value], true, 0),
        };
        Shape { strings, list, numbers }
    }
}

/// Writes a string.
pub(in crate::store) fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    put_length(out, string.len());
    out.extend_from_slice(string);
}

/// Writes the length of a string or of a list.
pub(in crate::store) fn put_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&(length as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_stands_at_its_number() {
        for (number, opcode) in OPCODES.into_iter().enumerate() {
            assert_eq!(opcode as usize, number);
            assert_eq!(Opcode::from_byte(number as u8), Some(opcode));
        }
        assert_eq!(Opcode::from_byte(OPCODES.len() as u8), None);
    }
}
