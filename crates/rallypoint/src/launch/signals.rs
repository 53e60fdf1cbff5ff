//! The signals that end the launcher, by way of its workers.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// From here on they do not end the process by themselves.
pub(super) struct Signals(Vec<(i32, Signal)>);

impl Signals {
    pub(super) fn listen(signals: &[i32]) -> io::Result<Self> {
        let listen = |number: &i32| Ok((*number, signal(SignalKind::from_raw(*number))?));
        signals.iter().map(listen).collect::<io::Result<_>>().map(Self)
    }

    /// The next one. Cancel-safe.
    pub(super) async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}
