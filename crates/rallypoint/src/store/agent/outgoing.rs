//! Replies on their way to a client.

use std::collections::VecDeque;
use std::io::{ErrorKind, Result, Write};

use bytes::{Buf, Bytes};

use super::wire;

/// A value from this size on is sent from where it lies; a smaller one is copied behind what is there.
const LARGE: usize = 16 << 10;

/// A buffer up to this size is kept for the next reply.
const SMALL: usize = 4 << 10;

/// Bytes that a client has yet to take.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// What comes first, if anything large is on its way.
    pieces: VecDeque<Bytes>,
    /// What comes last, apart from what was sent of it.
    last: Vec<u8>,
    sent: usize,
    length: usize,
}

impl Outgoing {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        self.last.extend_from_slice(bytes);
    }

    pub(super) fn put_number(&mut self, number: i64) {
        self.put(&number.to_le_bytes());
    }

    /// A string: its length, and its bytes.
    pub(super) fn put_string(&mut self, string: &Bytes) {
        self.length += 8 + string.len();
        wire::put_length(&mut self.last, string.len());
        if string.len() < LARGE {
            self.last.extend_from_slice(string);
        } else {
            let mut before = Bytes::from(std::mem::take(&mut self.last));
            before.advance(std::mem::take(&mut self.sent));
            self.pieces.extend([before, string.clone()]);
        }
    }

    /// Writes as much as `stream` takes now.
    pub(super) fn write_to(&mut self, stream: &mut impl Write) -> Result<()> {
        while self.length > 0 {
            let next = self.pieces.front().map_or(&self.last[self.sent..], |piece| piece);
            let written = match stream.write(next) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.length -= written;
            match self.pieces.front_mut() {
                None => self.sent += written,
                Some(piece) => {
                    piece.advance(written);
                    if piece.is_empty() {
                        self.pieces.pop_front();
                    }
                }
            }
        }
        self.sent = 0;
        self.last.clear();
        if self.last.capacity() > SMALL {
            self.last = Vec::new();
        }
        self.pieces.shrink_to_fit();
        Ok(())
    }
}
