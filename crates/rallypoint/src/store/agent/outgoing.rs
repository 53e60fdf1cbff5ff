//! Replies on their way to a client.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Result, Write};

use bytes::{Buf, Bytes};

use super::wire;

/// A string from this size on is sent from where it lies, so that a short request for many of them takes
/// little memory. A smaller one is copied behind what is there.
const LARGE: usize = 1 << 10;

/// So many pieces are written at once.
const PIECES: usize = 32;

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
            match self.write_once(stream) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.forget(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
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

    fn write_once(&self, stream: &mut impl Write) -> Result<usize> {
        let last = &self.last[self.sent..];
        if self.pieces.is_empty() {
            return stream.write(last);
        }
        let mut slices = [IoSlice::new(&[]); PIECES];
        let pieces = self.pieces.iter().map(Bytes::as_ref).chain([last]);
        slices.iter_mut().zip(pieces).for_each(|(slice, piece)| *slice = IoSlice::new(piece));
        stream.write_vectored(&slices)
    }

    /// So many bytes are on their way.
    fn forget(&mut self, mut written: usize) {
        self.length -= written;
        while let Some(piece) = self.pieces.front_mut() {
            if written < piece.len() {
                return piece.advance(written);
            }
            written -= piece.len();
            self.pieces.pop_front();
        }
        self.sent += written;
    }
}
