//! The signals that end the launcher, by way of its workers; and that of its children.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal as Kind;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::process::signals::is_ignored;

/// From here on they do not end the process by themselves, nor are they ignored.
pub(super) struct Signals {
    listened: Vec<(i32, Signal)>,
    /// How children end is told, even if whoever started us did not want to know it of its own.
    _children: Signal,
}

impl Signals {
    /// Listens to these. But whoever uses `nohup` does not want the end of a terminal to be heard.
    pub(super) fn listen(signals: &[i32]) -> io::Result<Self> {
        let is_wanted = |number: &&i32| **number != Kind::HUP.as_raw() || !is_ignored(Kind::HUP);
        let listen = |number: &i32| Ok((*number, signal(SignalKind::from_raw(*number))?));
        let listened = signals.iter().filter(is_wanted).map(listen).collect::<io::Result<_>>()?;
        Ok(Self { listened, _children: signal(SignalKind::child())? })
    }

    /// The next one. Cancel-safe.
    pub(super) async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            for (number, signal) in &mut self.listened {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}
