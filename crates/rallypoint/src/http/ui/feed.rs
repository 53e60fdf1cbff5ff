//! One reader of the server for all viewers. It reads while somebody looks, and otherwise the server is left alone.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rallypoint_core::rendezvous::keys::Keys;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use super::RunSource;
use super::board::{Board, Told, Topic};
use crate::client::WatchError;
use crate::log_target::HTTP;
use crate::runs::{Changes, KeySpace, RunReader};

/// Changes come in bursts, as when a thousand nodes join. Those of this time are shown together.
const BURST: Duration = Duration::from_millis(50);

/// The least time from one view to the next. After a view that takes long to make, the pause is thrice as long.
const LEAST: Duration = Duration::from_millis(250);

/// How often everything is shown again that is not told by changes: margins of leases, ages, the server.
const AGAIN: Duration = Duration::from_secs(5);

/// The pause after the server could not be asked.
const PAUSE: Duration = Duration::from_secs(1);

/// The viewers, by what they look at, and the reader.
pub(in crate::http) struct Feed {
    reader: RunReader<dyn KeySpace>,
    viewers: Mutex<Viewers>,
    /// A topic has its first viewer.
    wanted: Notify,
}

#[derive(Default)]
struct Viewers {
    topics: BTreeMap<Topic, watch::Sender<Option<Told>>>,
    /// Why the server does not answer.
    away: Option<String>,
}

impl Feed {
    pub(in crate::http) fn new(source: RunSource) -> Self {
        let RunSource { keys, prefix } = source;
        let viewers = Mutex::new(Viewers::default());
        Self { reader: RunReader { keys, prefix }, viewers, wanted: Notify::new() }
    }

    fn viewers(&self) -> MutexGuard<'_, Viewers> {
        self.viewers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a topic until the receiver is dropped. It has nothing to tell before the server was read.
    pub(super) fn subscribe(&self, topic: Topic) -> watch::Receiver<Option<Told>> {
        let mut viewers = self.viewers();
        let first = viewers.away.as_deref().map(Told::away);
        let sender = viewers.topics.entry(topic).or_insert_with(|| watch::Sender::new(first));
        let mut receiver = sender.subscribe();
        // A new viewer has not seen what earlier viewers have.
        receiver.mark_changed();
        self.wanted.notify_one();
        receiver
    }

    /// What is looked at.
    fn topics(&self) -> Vec<Topic> {
        let mut viewers = self.viewers();
        viewers.topics.retain(|_, sender| sender.receiver_count() > 0);
        viewers.topics.keys().cloned().collect()
    }

    fn tell(&self, told: Vec<(Topic, Told)>) {
        let mut viewers = self.viewers();
        viewers.away = None;
        for (topic, told) in told {
            if let Some(sender) = viewers.topics.get(&topic) {
                sender.send_replace(Some(told));
            }
        }
    }

    fn is_away(&self, why: String) {
        let mut viewers = self.viewers();
        if viewers.away.as_ref() == Some(&why) {
            return;
        }
        tracing::debug!(target: HTTP, "the page has nothing to show: {why}");
        for sender in viewers.topics.values() {
            sender.send_replace(Some(Told::away(&why)));
        }
        viewers.away = Some(why);
    }

    /// Reads for the viewers. It does not end.
    pub(in crate::http) async fn run(&self) {
        loop {
            while self.topics().is_empty() {
                // What was known is old when somebody looks again.
                self.viewers().away = None;
                self.wanted.notified().await;
            }
            if let Err(error) = self.follow().await {
                let why = match &error {
                    WatchError::Client(error) => self.reader.keys.why(error).await,
                    // The watch ended, and the next one begins at once.
                    WatchError::Compacted { .. } | WatchError::ClusterChanged { .. } => {
                        sleep(LEAST).await;
                        continue;
                    }
                    error => crate::error_chain(error),
                };
                self.is_away(why);
                sleep(PAUSE).await;
            }
        }
    }

    /// Follows the server while somebody looks.
    async fn follow(&self) -> Result<(), WatchError> {
        let all = Keys::runs(&self.reader.prefix, None);
        let changes = self.reader.keys.watch(all).await?;
        tokio::select! {
            ended = self.show(changes) => ended,
            error = self.reader.until_away() => Err(error.into()),
        }
    }

    /// Shows the runs, and each change, until no viewer is left.
    async fn show(&self, mut changes: Box<dyn Changes>) -> Result<(), WatchError> {
        let mut board = Board::new(&self.reader);
        let mut again = interval(AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is at once: everything is new.
        let (mut due, mut all_of_it, mut not_before) = (None, false, Instant::now());
        loop {
            tokio::select! {
                events = changes.next() => {
                    for event in events? {
                        if let Some(run) = self.reader.changed(&event) {
                            board.changed(run);
                            due.get_or_insert_with(|| not_before.max(Instant::now() + BURST));
                        }
                    }
                }
                () = self.wanted.notified() => due = Some(Instant::now()),
                _ = again.tick() => {
                    all_of_it = true;
                    due.get_or_insert_with(|| not_before.max(Instant::now()));
                }
                () = sleep_until(due.unwrap_or(not_before)), if due.is_some() => {
                    let topics = self.topics();
                    if topics.is_empty() {
                        return Ok(());
                    }
                    let begun = Instant::now();
                    board.looked_at(&topics);
                    let is_shown =
                        |topic: &Topic| all_of_it || board.is_stale(topic) || self.is_new(topic);
                    let shown: Vec<Topic> = topics.into_iter().filter(is_shown).collect();
                    self.tell(board.tell(&shown).await?);
                    (due, all_of_it) = (None, false);
                    not_before = Instant::now() + LEAST.max(3 * begun.elapsed());
                }
            }
        }
    }

    /// Whether the viewers of this topic have seen nothing of it.
    fn is_new(&self, topic: &Topic) -> bool {
        let viewers = self.viewers();
        let told = viewers.topics.get(topic);
        told.is_some_and(|told| !matches!(*told.borrow(), Some(Told::Board(_) | Told::Gone(_))))
    }
}
