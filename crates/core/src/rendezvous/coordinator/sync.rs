//! The coordinator's copy of the membership: the watches are opened first, then the membership is read, and then
//! every change that the watches report is applied. So no change is missed.

use super::CoordinatorStep;
use super::lineage::Lineage;
use super::membership::RoundMembership;
use super::watches;
use crate::kv::{Event, Revision, TxnResult};
use crate::rendezvous::messages::{NodeConfig, Purpose};
use crate::rendezvous::txn::{MembershipReader, MembershipSnapshot, Txns};

/// How far the copy is synced with the server.
#[derive(Debug, Default)]
enum SyncState {
    /// No watches were requested yet.
    #[default]
    Unsynced,
    /// The watches are being opened.
    OpeningWatches,
    /// The watches are open, and the membership can be read.
    Watching,
    /// The read of the membership is in flight.
    Reading(MembershipReader),
    /// The membership is read, and the watches keep it up to date.
    Synced(Box<RoundMembership>),
}

/// The copy of the membership, if there is one yet.
#[derive(Debug, Default)]
pub(super) struct MembershipSync {
    state: SyncState,
    /// The watches have missed nothing since the round was opened.
    is_first: bool,
    /// Events that came before the reply to the read of the membership.
    early_events: Vec<(usize, Event)>,
}

impl MembershipSync {
    /// The copy for a coordinator that has just opened its round.
    pub(super) fn first() -> Self {
        Self { is_first: true, ..Self::default() }
    }

    /// What the nodes that joined remember, once it is synced, and where hosts succeed each other as servers.
    pub(super) fn lineage(&mut self) -> Option<&mut Lineage> {
        match &mut self.state {
            SyncState::Synced(membership) => membership.lineage_mut(),
            _ => None,
        }
    }

    /// The membership, once it is synced.
    pub(super) fn membership(&self) -> Option<&RoundMembership> {
        match &self.state {
            SyncState::Synced(membership) => Some(membership),
            _ => None,
        }
    }

    /// Opens the watches, and then reads the membership.
    pub(super) fn advance(
        &mut self,
        (config, txns): (&NodeConfig, &Txns),
        (round, previous): (u64, u64),
        began: Revision,
    ) -> Option<CoordinatorStep> {
        match self.state {
            SyncState::Unsynced => {
                self.state = SyncState::OpeningWatches;
                // A history may be compacted meanwhile, so only the first watch begins in the past.
                let since = if self.is_first { began } else { 0 };
                let since = config.succession.map(|_| since);
                let watches = watches::watches(&config.keys, (round, previous), since);
                Some(CoordinatorStep::Watch(watches))
            }
            SyncState::Watching => {
                let (txn, reader) = txns.read_membership(round, previous);
                self.state = SyncState::Reading(reader);
                Some(CoordinatorStep::Request(Purpose::ReadMembership, txn, None))
            }
            SyncState::OpeningWatches | SyncState::Reading(_) | SyncState::Synced(_) => None,
        }
    }

    /// The watches are open.
    pub(super) fn watching(&mut self) {
        if matches!(self.state, SyncState::OpeningWatches) {
            self.state = SyncState::Watching;
        }
    }

    /// Reads the reply to the read of the membership; `None` if no read is in flight.
    pub(super) fn read<'a>(&self, reply: &'a TxnResult) -> Option<MembershipSnapshot<'a>> {
        match &self.state {
            SyncState::Reading(reader) => Some(reader.read(reply)),
            _ => None,
        }
    }

    /// Keeps the membership that was read, with the events that came before it.
    pub(super) fn complete(&mut self, mut membership: RoundMembership) {
        if let Some(lineage) = membership.lineage_mut().filter(|_| self.is_first) {
            lineage.reports_all();
        }
        for (watch, event) in self.early_events.drain(..) {
            membership.apply(watch, &event);
        }
        self.state = SyncState::Synced(Box::new(membership));
    }

    /// Takes in the events of one watch.
    pub(super) fn watched(&mut self, watch: usize, events: Vec<Event>) {
        match &mut self.state {
            SyncState::Synced(membership) => {
                events.iter().for_each(|event| membership.apply(watch, event));
            }
            _ => self.early_events.extend(events.into_iter().map(|event| (watch, event))),
        }
    }
}
