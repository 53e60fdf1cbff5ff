//! When the coordinator of a round that waits publishes what it waits for.
//!
//! It is written into the document in force, which every node watches: the coordinator alone sees who has joined.

use super::membership::RoundMembership;
use super::window::WaitReason;
use super::{Coordinator, CoordinatorStep};
use crate::kv::Time;
use crate::rendezvous::documents::Active;
use crate::rendezvous::messages::{NodeConfig, Purpose};
use crate::rendezvous::txn::{OwnedRound, Txns};

/// A wait that is shorter than this is not published.
const AFTER: Time = Time::from_secs(2);

/// What is waited for is published at most so often.
const EVERY: Time = Time::from_secs(5);

/// The state of the publication.
#[derive(Debug, Default)]
pub(super) struct Progress {
    state: PublishState,
    /// What the round waits for is not what was published last.
    is_news: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum PublishState {
    /// The round does not wait yet.
    #[default]
    Idle,
    /// It may be published from then on.
    From(Time),
    /// It is being published, and may be again from then on. The document changes by it, so the coordinator asks for
    /// nothing else meanwhile.
    UnderWay(Time),
}

impl Progress {
    /// Whether to publish what is waited for now. Then it is under way until [`replied`](Self::replied).
    pub(super) fn is_due(&mut self, now: Time, is_news: bool) -> bool {
        self.is_news = is_news;
        match self.state {
            PublishState::Idle => self.state = PublishState::From(now.saturating_add(AFTER)),
            PublishState::From(time) if is_news && time <= now => {
                self.state = PublishState::UnderWay(now.saturating_add(EVERY));
                return true;
            }
            PublishState::From(_) | PublishState::UnderWay(_) => {}
        }
        false
    }

    pub(super) fn is_being_published(&self) -> bool {
        matches!(self.state, PublishState::UnderWay(_))
    }

    /// The reply to a request of `purpose` is there, whether it was granted or refused.
    pub(super) fn replied(&mut self, purpose: Purpose) {
        if let (Purpose::PublishChanges, PublishState::UnderWay(again)) = (purpose, self.state) {
            self.state = PublishState::From(again);
        }
    }

    /// When there is something to publish.
    pub(super) fn next_wake(&self) -> Option<Time> {
        match self.state {
            PublishState::From(time) if self.is_news => Some(time),
            _ => None,
        }
    }
}

impl Coordinator {
    /// Publishes what the round waits for, if it waits long, to the nodes that joined.
    pub(super) fn publish_progress(
        &mut self,
        now: Time,
        (config, txns): (&NodeConfig, &Txns),
        own: OwnedRound<'_>,
    ) -> Option<CoordinatorStep> {
        let (reason, membership) = (self.waits_for?, self.membership()?);
        let waits_for = reason.describe_to_others() + &details(reason, config, membership);
        let lacks_quorum = self.lacks_quorum();
        // A round that no other node has joined has no reader, but for an operator who may have to decide.
        let has_readers = membership.counts().joined > 1 || lacks_quorum.is_some();
        let is_news = has_readers && waits_for != own.active.waits_for;
        if !self.progress.is_due(now, is_news) {
            return None;
        }
        let proved_dead = self.proved_dead(own.active);
        let changed = Active { waits_for, lacks_quorum, proved_dead, ..own.active.clone() };
        let changed = own.followed_by(changed);
        let txn = txns.replace(own, &changed);
        Some(CoordinatorStep::Request(Purpose::PublishChanges, txn, Some(Box::new(changed))))
    }
}

/// The sizes that the group may have, the nodes that are here and the nodes that are missing, each after a semicolon.
pub(super) fn details(
    reason: WaitReason,
    config: &NodeConfig,
    membership: &RoundMembership,
) -> String {
    let sizes = || config.sizes.listed(config.limits);
    match reason {
        WaitReason::ForLastGroup { .. } => membership.names_of_unresolved(),
        WaitReason::ForEnough { min, .. } => sizes() + &membership.names(min),
        // The group is large enough, but a gap in the node ranks is worth naming.
        WaitReason::LastCall { .. } | WaitReason::ForQuorum { .. } => {
            sizes() + &membership.names(0)
        }
        WaitReason::ForForgottenGroup { .. } => membership.names(0),
    }
}
