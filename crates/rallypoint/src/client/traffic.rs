//! Counters of a client's traffic, for benchmarks and tests.

use std::sync::atomic::{AtomicU64, Ordering};

use prost::Message;

/// The traffic of a client since its creation, without the framing of gRPC and below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// The number of messages sent: calls, including retries, and requests on streams.
    pub requests: u64,
    /// The number of messages received: answers to calls, and messages on streams.
    pub messages: u64,
    /// The size of the sent messages in bytes.
    pub bytes_sent: u64,
    /// The size of the received messages in bytes.
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
