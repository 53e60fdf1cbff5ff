//! How much a client has asked for and been told, for those who count: benchmarks and tests.

use std::sync::atomic::{AtomicU64, Ordering};

use prost::Message;

/// What has gone over a client's connection since it was made, without the framing of gRPC and below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Messages sent: calls, repeated ones too, and what was asked for on streams.
    pub requests: u64,
    /// Messages received: answers to calls, and what streams told.
    pub messages: u64,
    /// The size of the former.
    pub bytes_sent: u64,
    /// The size of the latter.
    pub bytes_received: u64,
}

#[derive(Debug, Default)]
pub(super) struct Meter {
    requests: AtomicU64,
    messages: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
}

impl Meter {
    pub(super) fn sent(&self, message: &impl Message) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes_sent.fetch_add(message.encoded_len() as u64, Ordering::Relaxed);
    }

    pub(super) fn received(&self, message: &impl Message) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes_received.fetch_add(message.encoded_len() as u64, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Traffic {
        Traffic {
            requests: self.requests.load(Ordering::Relaxed),
            messages: self.messages.load(Ordering::Relaxed),
            bytes_sent: self.bytes_sent.load(Ordering::Relaxed),
            bytes_received: self.bytes_received.load(Ordering::Relaxed),
        }
    }
}
