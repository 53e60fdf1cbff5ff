//! The bounded queue between the launcher and the console's writing thread, so that logging never blocks.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The limit on queued bytes; a single longer line is accepted.
const ROOM: usize = 256 << 10;

/// Lines in order, and the latest live line.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The number of lines dropped for lack of room.
    dropped: u64,
    /// The next state of the live line.
    live: Option<Option<String>>,
    /// The writing thread has taken an item, and may not have written it yet.
    is_writing: bool,
    is_closed: bool,
}

/// An item for the writing thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConsoleItem {
    Lines(Vec<u8>),
    Live(Option<String>),
    /// The number of lines dropped since the last report.
    Dropped(u64),
}

impl Queue {
    /// Queues lines, or drops them without room.
    pub(super) fn push(&self, lines: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes == 0 || waiting.bytes + lines.len() <= ROOM {
            self.add(waiting, lines);
        } else {
            waiting.dropped += 1;
        }
    }

    /// Queues lines regardless of the limit.
    pub(super) fn insist(&self, lines: &[u8]) {
        self.add(self.lock(), lines);
    }

    fn add(&self, mut waiting: MutexGuard<'_, QueueState>, lines: &[u8]) {
        waiting.bytes += lines.len();
        waiting.lines.push_back(lines.to_vec());
        self.changed.notify_all();
    }

    /// Changes the live line.
    pub(super) fn set_live(&self, line: Option<String>) {
        self.lock().live = Some(line);
        self.changed.notify_all();
    }

    /// Waits for the next item; a call reports that the previous item is written. For one caller. `None` when
    /// the queue is closed and empty.
    pub(super) fn next(&self) -> Option<ConsoleItem> {
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

    /// Blocks until everything is written, up to this time limit. Returns whether everything is written.
    pub(super) fn flush(&self, patience: Duration) -> bool {
        let is_left = |waiting: &mut QueueState| waiting.is_writing || !waiting.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), patience, is_left);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Closes the queue: nothing is queued after this.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    fn take(&mut self) -> Option<ConsoleItem> {
        if let Some(lines) = self.lines.pop_front() {
            self.bytes -= lines.len();
            return Some(ConsoleItem::Lines(lines));
        }
        if self.dropped > 0 {
            return Some(ConsoleItem::Dropped(std::mem::take(&mut self.dropped)));
        }
        self.live.take().map(ConsoleItem::Live)
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
        let lines = |bytes: &[u8]| Some(ConsoleItem::Lines(bytes.to_vec()));
        assert_eq!(items.next(), lines(&half));
        assert_eq!(items.next(), lines(&half));
        assert_eq!(items.next(), lines(b"important\n"));
        assert_eq!(items.next(), Some(ConsoleItem::Dropped(3)));
        assert_eq!(items.next(), Some(ConsoleItem::Live(Some("two".to_owned()))));
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
        assert!(matches!(queue.next(), Some(ConsoleItem::Lines(_))));
        assert_eq!(queue.next(), Some(ConsoleItem::Dropped(1)));
    }
}
