//! The launcher's signals: those that end it, by way of its workers; those that it passes on to the
//! workers; and SIGCHLD.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rallypoint_core::agent::signal_name;
use rustix::process::Signal as Kind;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::launch::job::HandledSignals;
use crate::log_target::LAUNCH;
use crate::process::signals::is_ignored;

/// The signals that schedulers send some time before the end, as with `#SBATCH --signal=USR1@120`, so that programs
/// save their work.
const FOR_WORKERS: [Kind; 2] = [Kind::USR1, Kind::USR2];

/// The effect of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalAction {
    /// The launcher ends, by way of its workers.
    End(i32),
    /// The workers get the signal.
    PassOn(i32),
}

/// Listens for signals, which no longer end the process by themselves.
pub(super) struct SignalListener {
    listened: Vec<(SignalAction, Signal)>,
    /// Makes exits of children visible even if the parent process had SIGCHLD ignored.
    _children: Signal,
}

impl SignalListener {
    /// Listens for the signals that end the launcher, and for those that it passes on. A signal that was ignored when
    /// the launcher started stays ignored, as under `nohup` or a shell's `&`, unless the user named it.
    pub(super) fn listen(handled: &HandledSignals) -> io::Result<Self> {
        let named = &handled.signals.0;
        let is_wanted = |number: i32| {
            let ignored = Kind::from_named_raw(number).is_some_and(is_ignored);
            !ignored || handled.named && named.contains(&number)
        };
        let ends = named.iter().copied().map(SignalAction::End);
        let for_workers = FOR_WORKERS.into_iter().map(Kind::as_raw);
        let passed_on =
            for_workers.filter(|number| !named.contains(number)).map(SignalAction::PassOn);
        let mut listened = Vec::new();
        for told in ends.chain(passed_on) {
            let (SignalAction::End(number) | SignalAction::PassOn(number)) = told;
            if is_wanted(number) {
                listened.push((told, signal(SignalKind::from_raw(number))?));
            }
        }
        Ok(Self { listened, _children: signal(SignalKind::child())? })
    }

    /// The next signal. Cancel-safe.
    pub(super) async fn told(&mut self) -> SignalAction {
        poll_fn(|context| {
            for (told, signal) in &mut self.listened {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*told);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends the launcher, while no worker runs. Cancel-safe.
    pub(super) async fn next(&mut self) -> i32 {
        loop {
            match self.told().await {
                SignalAction::End(signal) => return signal,
                SignalAction::PassOn(signal) => log_no_worker(signal),
            }
        }
    }
}

/// Logs that there is no worker to pass the signal on to.
pub(super) fn log_no_worker(signal: i32) {
    tracing::info!(target: LAUNCH, "no worker runs that {} could be passed on to", name(signal));
}

/// The signal's name.
pub(super) fn name(signal: i32) -> &'static str {
    signal_name(signal).unwrap_or("the signal")
}
