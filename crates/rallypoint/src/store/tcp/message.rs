//! A request as a client writes it.

use super::super::agent::wire::{self, MAX_KEY, MAX_VALUE, Opcode};
use super::StoreError;

/// Keys of users begin with it, so that the server's own do not get in their way.
pub(super) const PREFIX: &[u8] = b"/";

/// Requests, to be sent at once.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn new(opcode: Opcode) -> Self {
        Self(vec![opcode as u8])
    }

    /// The list of keys that a request is about.
    pub(super) fn with_keys(opcode: Opcode, keys: &[&[u8]]) -> Result<Self, StoreError> {
        keys.iter().try_fold(Self::new(opcode).length(keys.len()), |message, key| message.key(key))
    }

    /// Another request behind those that are there.
    pub(super) fn then(mut self, opcode: Opcode) -> Self {
        self.0.push(opcode as u8);
        self
    }

    pub(super) fn key(mut self, key: &[u8]) -> Result<Self, StoreError> {
        let size = PREFIX.len() + key.len();
        if size > MAX_KEY {
            return Err(StoreError::KeyTooLarge { size: key.len(), limit: MAX_KEY - PREFIX.len() });
        }
        wire::put_length(&mut self.0, size);
        self.0.extend_from_slice(PREFIX);
        self.0.extend_from_slice(key);
        Ok(self)
    }

    /// A value, for the key that errors are to name.
    pub(super) fn value(mut self, key: &[u8], value: &[u8]) -> Result<Self, StoreError> {
        if value.len() > MAX_VALUE {
            let (key, size) = (super::name(key), value.len());
            return Err(StoreError::TooLarge { key, size, limit: MAX_VALUE });
        }
        wire::put_string(&mut self.0, value);
        Ok(self)
    }

    /// A string that is neither a user's key nor a value.
    pub(super) fn text(mut self, text: &str) -> Self {
        wire::put_string(&mut self.0, text.as_bytes());
        self
    }

    pub(super) fn length(mut self, length: usize) -> Self {
        wire::put_length(&mut self.0, length);
        self
    }

    pub(super) fn number(mut self, number: i64) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub(super) fn word(mut self, word: u32) -> Self {
        self.0.extend_from_slice(&word.to_le_bytes());
        self
    }

    pub(super) fn short(mut self, number: u16) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
