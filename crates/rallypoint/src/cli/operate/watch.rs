//! `rallypoint status --watch`: the server's watches tell when to look again.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rallypoint_core::kv::{Event, LeaseId, Watch};
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::status::LeaseMargin;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::print;
use super::server::RunServer;
use super::status::View;
use crate::cli::AnyError;
use crate::client::{ClientError, Watcher};
use crate::runs::no_answer;
use crate::util::optional::{at, ready};

/// Changes come in bursts, as when a thousand nodes join. Those of this time are shown together.
const BURST: Duration = Duration::from_millis(50);

/// The pause after the server could not be asked.
const AGAIN: Duration = Duration::from_secs(1);

/// The pause between two reads of the leases. Renewals change no key, so the server's watches do not tell them.
const LEASES: Duration = Duration::from_secs(2);

/// The least pause, in times of the last read: the leases of thousands of nodes are read less often.
const LEASES_SHARE: u32 = 10;

/// Moves to the top left, and clears what is below.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Shows the runs, and each change of them, until it is interrupted.
pub(super) async fn follow(
    server: &RunServer,
    run: Option<&str>,
    json: bool,
) -> Result<(), AnyError> {
    // Without a first answer the command fails, as without --watch.
    let mut view = View::read(server, run).await?;
    let is_terminal = !json && std::io::stdout().is_terminal();
    let mut screen = WatchScreen { json, is_terminal, trouble: String::new() };
    loop {
        match follow_rounds(server, run, &mut view, &mut screen).await {
            Ok(()) => {}
            Err(FollowError::Screen(error)) => return Err(error),
            Err(FollowError::Server(error)) => {
                screen.trouble(&error);
                sleep(AGAIN).await;
            }
            Err(FollowError::Away(error)) => {
                screen.trouble(&no_answer(&error, &server.endpoint).await.into());
                sleep(AGAIN).await;
            }
        }
    }
}

enum FollowError {
    /// The server could not be asked: try again.
    Server(AnyError),
    /// The server does not answer.
    Away(ClientError),
    /// The output cannot be written.
    Screen(AnyError),
}

/// Follows the run as long as its rounds are these: the members of a round have keys of their own.
async fn follow_rounds(
    server: &RunServer,
    run: Option<&str>,
    view: &mut View,
    screen: &mut WatchScreen,
) -> Result<(), FollowError> {
    let rounds = rounds_of(view);
    // A watch would wait for a server that does not answer without a word.
    let away = server.reader.until_away();
    tokio::pin!(away);
    let watching = async {
        let watcher = server.client.watch(watches(server, run, &rounds)).await?;
        // What changed before the watches began is in this read.
        Ok::<_, AnyError>((View::read(server, run).await?, watcher))
    };
    let mut watcher = tokio::select! {
        watching = watching => {
            let (read, watcher) = watching.map_err(FollowError::Server)?;
            *view = read;
            watcher
        }
        error = &mut away => return Err(FollowError::Away(error)),
    };
    screen.show(view).map_err(FollowError::Screen)?;
    let mut clock = interval(Duration::from_secs(1));
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while rounds_of(view) == rounds {
        let mut leases = LeaseReads::new(server, screen.is_terminal);
        // It is not begun again by the clock: a change is told once.
        let next = next_view(&mut watcher, server, run);
        tokio::pin!(next);
        let changed = loop {
            tokio::select! {
                changed = &mut next => break changed,
                error = &mut away => return Err(FollowError::Away(error)),
                _ = clock.tick(), if screen.is_terminal => {
                    screen.show(view).map_err(FollowError::Screen)?;
                }
                margins = leases.next(view) => {
                    view.set_margins(&margins.map_err(FollowError::Server)?);
                }
            }
        };
        *view = changed.map_err(FollowError::Server)?;
        screen.show(view).map_err(FollowError::Screen)?;
    }
    Ok(())
}

/// The leases of the nodes on a terminal, read again and again. In a file or a pipe they are as they were at the change.
struct LeaseReads<'a> {
    server: &'a RunServer,
    /// The time of the next read.
    due: Option<Instant>,
    reading: Option<BoxFuture<'a, Result<BTreeMap<LeaseId, LeaseMargin>, ClientError>>>,
    begun: Instant,
}

impl<'a> LeaseReads<'a> {
    /// They have just been read.
    fn new(server: &'a RunServer, is_terminal: bool) -> Self {
        let begun = Instant::now();
        Self { server, due: is_terminal.then_some(begun + LEASES), reading: None, begun }
    }

    /// Waits for the next margins of the leases in this view. Cancel-safe.
    async fn next(&mut self, view: &View) -> Result<BTreeMap<LeaseId, LeaseMargin>, AnyError> {
        if self.reading.is_none() {
            at(self.due).await;
            self.begun = Instant::now();
            self.reading = Some(self.server.reader.leases(view.leases()).boxed());
        }
        let read = ready(&mut self.reading).await;
        self.reading = None;
        let now = Instant::now();
        self.due = Some(now + LEASES.max((now - self.begun) * LEASES_SHARE));
        Ok(read?)
    }
}

/// Waits for a change, and reads what there is then.
async fn next_view(
    watcher: &mut Watcher,
    server: &RunServer,
    run: Option<&str>,
) -> Result<View, AnyError> {
    next_change(watcher, server).await?;
    View::read(server, run).await
}

/// Waits until a document of a run changes, and for the rest of the burst.
async fn next_change(watcher: &mut Watcher, server: &RunServer) -> Result<(), AnyError> {
    let is_of_a_document = |event: &Event| server.reader.changed(event).is_some();
    while !watcher.next().await?.events.iter().any(is_of_a_document) {}
    let burst = async {
        loop {
            watcher.next().await?;
        }
    };
    match tokio::time::timeout(BURST, burst).await {
        Ok(ended) => ended,
        Err(_) => Ok(()),
    }
}

/// The watches of one run leave out the stores of its rounds. Those of all runs cannot, since runs come and go.
fn watches(server: &RunServer, run: Option<&str>, rounds: &BTreeSet<u64>) -> Vec<Watch> {
    let Some(run) = run else { return vec![Watch::new(Keys::runs(&server.reader.prefix, None))] };
    let keys = server.keys(run);
    let of_rounds = rounds.iter().flat_map(|round| [keys.members(*round), keys.all_ready(*round)]);
    keys.documents().into_iter().chain(of_rounds).map(Watch::new).collect()
}

fn rounds_of(view: &View) -> BTreeSet<u64> {
    match view {
        View::Run(run) => [run.status.round].into(),
        View::Runs(_) => BTreeSet::new(),
    }
}

/// Where the view is shown: a terminal is redrawn, a file or a pipe gets each state once.
struct WatchScreen {
    json: bool,
    is_terminal: bool,
    /// What was said about the server that does not answer.
    trouble: String,
}

impl WatchScreen {
    fn show(&mut self, view: &View) -> Result<(), AnyError> {
        self.trouble.clear();
        let text = view.show(self.json)?;
        match (self.is_terminal, self.json) {
            (true, _) => print(&format!("{REDRAW}{text}")),
            (false, true) => print(&text),
            // An empty line ends a state.
            (false, false) => print(&format!("{text}\n")),
        }
    }

    /// Says that the server does not answer, and why, once until it does.
    fn trouble(&mut self, error: &AnyError) {
        let error = super::text::printable(&crate::error_chain(error.as_ref()));
        if error != self.trouble {
            tracing::warn!(target: crate::log_target::CLI, "{error}; trying again");
            self.trouble = error;
        }
    }
}
