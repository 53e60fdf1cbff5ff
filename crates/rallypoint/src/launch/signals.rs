//! The signals that the launcher gets: those that end it, by way of its workers; those that are meant for the
//! workers; and that of its children.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rallypoint_core::agent::signal_name;
use rustix::process::Signal as Kind;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::run::plan::Handled;
use crate::process::signals::is_ignored;

/// What programs save their work for when a scheduler sends it some time before the end, as with
/// `#SBATCH --signal=USR1@120`.
const FOR_WORKERS: [Kind; 2] = [Kind::USR1, Kind::USR2];

/// What a signal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// To end, by way of the workers.
    End(i32),
    /// Something to the workers.
    PassOn(i32),
}

/// From here on they do not end the process by themselves.
pub(super) struct Signals {
    listened: Vec<(Told, Signal)>,
    /// How children end is told, even if whoever started us did not want to know it of its own.
    _children: Signal,
}

impl Signals {
    /// Listens to what ends the launcher, and otherwise to what is meant for its workers. What was ignored when
    /// we began stays so, as with `nohup` or a shell's `&`, unless somebody has named it.
    pub(super) fn listen(handled: &Handled) -> io::Result<Self> {
        let named = &handled.signals.0;
        let is_wanted = |number: i32| {
            let ignored = Kind::from_named_raw(number).is_some_and(is_ignored);
            !ignored || handled.named && named.contains(&number)
        };
        let ends = named.iter().copied().map(Told::End);
        let for_workers = FOR_WORKERS.into_iter().map(Kind::as_raw);
        let passed_on = for_workers.filter(|number| !named.contains(number)).map(Told::PassOn);
        let mut listened = Vec::new();
        for told in ends.chain(passed_on) {
            let (Told::End(number) | Told::PassOn(number)) = told;
            if is_wanted(number) {
                listened.push((told, signal(SignalKind::from_raw(number))?));
            }
        }
        Ok(Self { listened, _children: signal(SignalKind::child())? })
    }

    /// The next one. Cancel-safe.
    pub(super) async fn told(&mut self) -> Told {
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

    /// The next one that ends the launcher, where no worker runs. Cancel-safe.
    pub(super) async fn next(&mut self) -> i32 {
        loop {
            match self.told().await {
                Told::End(signal) => return signal,
                Told::PassOn(signal) => say_nobody(signal),
            }
        }
    }
}

/// Says that there is no worker to pass a signal on to.
pub(super) fn say_nobody(signal: i32) {
    tracing::info!("no worker runs that {} could be passed on to", name(signal));
}

/// What people call it.
pub(super) fn name(signal: i32) -> &'static str {
    signal_name(signal).unwrap_or("the signal")
}
