//! The unsent replies of a client.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Result, Write};

use bytes::{Buf, Bytes};

use super::wire;

/// Strings of at least this size are sent without a copy, so that a short request for many of them takes
/// little memory. Smaller strings are copied into the buffer.
const LARGE: usize = 1 << 10;

/// The number of pieces in one vectored write.
const PIECES: usize = 32;

/// A buffer up to this size is kept for the next reply.
const SMALL: usize = 4 << 10;

/// The unsent replies of one client.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// The pieces before `last`. Empty unless a large string is unsent.
    pieces: VecDeque<Bytes>,
    /// The last piece, of which `sent` bytes were sent.
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

    /// Adds a string: its length, and its bytes.
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

    /// Frees the sent part of the last piece once it is more than half of it, so that the buffer of a client
    /// that never catches up does not keep growing.
    fn forget_sent(&mut self) {
        if self.sent > SMALL && self.sent > self.last.len() / 2 {
            self.last.drain(..std::mem::take(&mut self.sent));
            self.last.shrink_to(SMALL.max(2 * self.last.len()));
        }
    }

    /// Writes as much as `stream` accepts without blocking.
    pub(super) fn write_to(&mut self, stream: &mut impl Write) -> Result<()> {
        while self.length > 0 {
            match self.write_once(stream) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.forget(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.forget_sent();
                    return Ok(());
                }
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

    /// Drops `written` bytes, which were sent.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts `room` bytes, and then blocks.
    struct SlowSocket {
        room: usize,
        taken: Vec<u8>,
    }

    impl Write for SlowSocket {
        fn write(&mut self, bytes: &[u8]) -> Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.room -= count;
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bytes_sent_to_a_slow_client_are_freed() {
        let mut outgoing = Outgoing::default();
        let mut client = SlowSocket { room: 0, taken: Vec::new() };
        let mut sent = Vec::new();
        // Some bytes are always unsent, so the buffer is never empty.
        for number in 0..10_000_u32 {
            let reply = number.to_le_bytes().repeat(64);
            outgoing.put(&reply);
            sent.extend(reply);
            client.room = if number < 100 { 0 } else { 256 };
            outgoing.write_to(&mut client).unwrap();
            assert!(outgoing.last.capacity() < 128 << 10, "{}", outgoing.last.capacity());
        }
        client.room = usize::MAX;
        outgoing.write_to(&mut client).unwrap();
        assert_eq!((outgoing.len(), client.taken), (0, sent));
    }
}
