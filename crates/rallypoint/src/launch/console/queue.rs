//! What waits to be said on the console, so that nobody has to who has better things to do.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many bytes wait at most, but for one line, however long.
const ROOM: usize = 256 << 10;

/// Lines in their order, and the live line as it should be by now.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// How many lines had no room.
    dropped: u64,
    /// What the live line is to become.
    live: Option<Option<String>>,
    /// Something was taken, and may not be written yet.
    is_writing: bool,
    is_closed: bool,
}

/// Something to be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    Lines(Vec<u8>),
    Live(Option<String>),
    /// So many lines were not taken since this was last said.
    Dropped(u64),
}

impl Queue {
    /// Takes lines, if there is room.
    pub(super) fn push(&self, lines: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes == 0 || waiting.bytes + lines.len() <= ROOM {
            self.add(waiting, lines);
        } else {
            waiting.dropped += 1;
        }
    }

    /// Takes lines in any case.
    pub(super) fn insist(&self, lines: &[u8]) {
        self.add(self.lock(), lines);
    }

    fn add(&self, mut waiting: MutexGuard<'_, Waiting>, lines: &[u8]) {
        waiting.bytes += lines.len();
        waiting.lines.push_back(lines.to_vec());
        self.changed.notify_all();
    }

    /// Changes the live line.
    pub(super) fn set_live(&self, line: Option<String>) {
        self.lock().live = Some(line);
        self.changed.notify_all();
    }

    /// Waits for something to be written, for one caller, who has written what it got before. Nothing when
    /// the queue is closed, and empty.
    pub(super) fn next(&self) -> Option<Item> {
        let mut waiting = self.lock();
        waiting.is_writing = false;
        loop {
            if let Some(item) = waiting.take() {
                waiting.is_writing = true;
                return Some(item);
            }
            self.changed.notify_all();
            if waiting.is_closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until everything is written, but no longer than this. Whether it is.
    pub(super) fn flush(&self, patience: Duration) -> bool {
        let is_left = |waiting: &mut Waiting| waiting.is_writing || !waiting.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), patience, is_left);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Nothing more will come.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn take(&mut self) -> Option<Item> {
        if let Some(lines) = self.lines.pop_front() {
            self.bytes -= lines.len();
            return Some(Item::Lines(lines));
        }
        if self.dropped > 0 {
            return Some(Item::Dropped(std::mem::take(&mut self.dropped)));
        }
        self.live.take().map(Item::Live)
    }

    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0 && self.live.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_and_told_after_what_does() {
        let queue = Queue::default();
        let half = vec![b'x'; ROOM / 2];
        for _ in 0..5 {
            queue.push(&half);
        }
        queue.insist(b"important\n");
        queue.set_live(Some("one".to_owned()));
        queue.set_live(Some("two".to_owned()));
        let mut items = std::iter::from_fn(|| queue.next());
        let lines = |bytes: &[u8]| Some(Item::Lines(bytes.to_vec()));
        assert_eq!(items.next(), lines(&half));
        assert_eq!(items.next(), lines(&half));
        assert_eq!(items.next(), lines(b"important\n"));
        assert_eq!(items.next(), Some(Item::Dropped(3)));
        assert_eq!(items.next(), Some(Item::Live(Some("two".to_owned()))));
        queue.push(b"again\n");
        queue.close();
        assert_eq!(items.next(), lines(b"again\n"));
        assert_eq!(items.next(), None);
    }

    #[test]
    fn one_long_line_has_room() {
        let queue = Queue::default();
        queue.push(&vec![b'x'; 2 * ROOM]);
        queue.push(b"too much\n");
        assert!(matches!(queue.next(), Some(Item::Lines(_))));
        assert_eq!(queue.next(), Some(Item::Dropped(1)));
    }
}
