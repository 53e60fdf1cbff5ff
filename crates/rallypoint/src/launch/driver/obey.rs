//! What the agent says is done.

use rallypoint_core::agent::{Group, Input, Output, SIGKILL, Start, Why};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{DEATH, Driver, Event, Notice, Stop};
use crate::launch::peers::{exit_barrier, ranks};
use crate::launch::signals::{name, say_nobody};
use crate::launch::workers::{Crew, notices};
use crate::util::blocking::blocking;
use crate::util::clock::boot_time;

impl Driver {
    pub(super) fn obey(&mut self, output: Output) {
        match output {
            Output::Meet { why } => self.meet(&why),
            Output::AssignRanks(group) => self.assign_ranks(group),
            Output::StartWorkers(start) => self.start(start),
            Output::NotifyWorkers { attempt, stops_at, why } => {
                let seconds = stops_at.saturating_sub(self.now()).as_secs_f64();
                tracing::info!(%why, seconds, "the workers are told that they will be stopped");
                let (stops_at, why) = (self.origin + stops_at, why.to_string());
                self.notice = Some(Notice { attempt, stops_at, why });
                self.give_notice();
            }
            Output::Announce { round, stops_at, why } => {
                tracing::info!(
                    "the other nodes are told that this one leaves, so that all save their work"
                );
                let (peers, stops_at) = (self.parts.peers.clone(), self.origin + stops_at);
                self.telling.spawn(async move {
                    peers.ledger.announce(round, stops_at, &why).await;
                });
            }
            Output::StopWorkers { attempt, signal, kill_at, why } => {
                let kill_at = self.origin + kill_at;
                self.stop = Some(Stop { attempt, signal, kill_at, give_up_at: None });
                self.signal_again();
                tracing::info!(%why, "stopping the workers");
            }
            Output::CountRestart { round, blame, lived } => {
                self.asked = Some(round);
                let peers = self.parts.peers.clone();
                self.counting = Some(Box::pin(async move {
                    let answer = peers.ledger.charge(round, &blame, lived).await;
                    Input::Counted { round, answer }
                }));
            }
            Output::ForgiveRestart { round, why } => {
                let peers = self.parts.peers.clone();
                self.telling.spawn(async move {
                    peers.ledger.forgive(round, &why.to_string()).await;
                });
            }
            Output::ExitBarrier { .. } => {
                let Some((group, info)) = self.group.clone() else { return };
                self.errand = Some(Box::pin(async move {
                    Event::Told(exit_barrier(info.store.as_ref(), &group).await)
                }));
            }
            Output::Close(closing) => {
                let peers = self.parts.peers.clone();
                let closing = tokio::spawn(async move { peers.close(&closing).await });
                self.closing = Some(AbortOnDropHandle::new(closing));
            }
            Output::Leave => (self.errand, self.counting) = (None, None),
            Output::Finish(outcome) => self.outcome = Some(outcome),
        }
    }

    fn meet(&mut self, why: &Why) {
        if *why != Why::Begin {
            tracing::info!(%why, "meeting the other nodes again");
        }
        (self.group, self.counting) = (None, None);
        self.news.begin();
        let peers = self.parts.peers.clone();
        self.errand = Some(Box::pin(async move { Event::Met(peers.meet().await) }));
    }

    fn assign_ranks(&mut self, group: Group) {
        let Some((_, info)) = &self.group else { return };
        let (store, outfit) = (info.store.clone(), self.parts.outfit.clone());
        let (identical, peers) = (self.parts.identical, self.parts.peers.clone());
        self.errand = Some(Box::pin(async move {
            let job = &outfit.job;
            let placed =
                ranks(store.as_ref(), &group, &job.role, job.local_workers, identical).await;
            // A launcher that stood still meanwhile may have lost its place, and does not know yet.
            peers.is_sure_of_its_place().await;
            Event::Told(placed)
        }));
    }

    fn start(&mut self, start: Start) {
        let (round, attempt) = (start.group.round, start.attempt);
        let (first, world) = (start.placement.base_rank, start.placement.world_size);
        let last = first.saturating_add(self.parts.outfit.job.local_workers - 1);
        let nodes = start.group.nodes;
        tracing::info!(round, nodes, attempt, "starting workers {first} to {last} of {world}");
        // The last ones are gone; what they left is, too.
        self.crew = None;
        self.began = boot_time();
        let outfit = self.parts.outfit.clone();
        self.errand = Some(Box::pin(async move {
            let (crew, started) = Crew::start(&outfit, &start).await;
            Event::Started(crew, started)
        }));
    }

    /// Somebody has sent the launcher a signal that is meant for its workers. It ends nothing.
    pub(super) fn pass_on(&self, signal: i32) {
        match self.notify(signal) {
            0 => say_nobody(signal),
            _ => tracing::info!("{} is passed on to the workers", name(signal)),
        }
    }

    /// Tells the workers that they will be stopped, if they are there: in a file first, and then by the signal.
    pub(super) fn give_notice(&mut self) {
        let (Some(notice), Some(crew)) = (&self.notice, &self.crew) else { return };
        if notice.attempt == crew.attempt() {
            let left = notice.stops_at.saturating_duration_since(Instant::now());
            let (files, why) = (crew.notices(), notice.why.clone());
            self.notice = None;
            let write = move || notices::write(&files, left, &why);
            self.noticing = Some(Box::pin(blocking(write)));
        }
    }

    /// Sends the workers a signal that they handle. How many live?
    pub(super) fn notify(&self, signal: i32) -> usize {
        let Some(crew) = &self.crew else { return 0 };
        let told = crew.notify(signal);
        if !told.spared.is_empty() {
            let (name, spared) = (name(signal), &told.spared);
            tracing::warn!(
                "local ranks {spared:?} do not handle {name}, and would die of it: it is not sent to them"
            );
        }
        told.living
    }

    /// Sends workers that are to go the signal that they are to go by.
    pub(super) fn signal_again(&mut self) {
        if let (Some(stop), Some(crew)) = (&self.stop, &self.crew)
            && stop.attempt == crew.attempt()
        {
            crew.signal(stop.signal);
        }
    }

    /// The time is over that workers had to go, or to be gone.
    pub(super) fn kill(&mut self) -> Option<Event> {
        let stop = self.stop.as_mut()?;
        if stop.give_up_at.is_some() {
            let attempt = stop.attempt;
            self.stop = None;
            let left = self.crew.as_ref().map(Crew::left).unwrap_or_default();
            let reason = format!("process groups {left:?} are still there {DEATH:?} after SIGKILL");
            return Some(Event::Told(Input::NotStopped { attempt, reason }));
        }
        if stop.signal != SIGKILL {
            tracing::warn!("the workers did not stop in time, and are killed");
        }
        stop.signal = SIGKILL;
        stop.give_up_at = Some(Instant::now() + DEATH);
        self.signal_again();
        None
    }
}
