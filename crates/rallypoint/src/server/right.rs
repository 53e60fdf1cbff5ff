//! The right of a server to grant and renew leases, where hosts succeed each other as servers (invariant Y3).
//!
//! The decision is the core's ([`ServingRight`]). Here it is given what it needs: the changes of the run's keys, the
//! grants, and the responses that clients have confirmed. Its clock is the one that also advances while the host is
//! suspended: a server that slept has not heard its group meanwhile.

use std::time::Duration;

use rallypoint_core::kv::{KeyRange, LeaseId, Time, Watch};
use rallypoint_core::mvcc::{Mvcc, StreamId, WatchMessage};
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::rendezvous::succession::right::ServingRight;
use tokio_util::sync::CancellationToken;

use crate::util::clock::boot_time;

/// The right of one server, as long as its store lives.
pub(super) struct EngineRight {
    right: ServingRight,
    /// The changes of the run's keys.
    changes: Option<StreamId>,
    /// The server ends as soon as the nodes can go on at another host.
    retires: bool,
    /// The round of the running group that could go on at another host when this was asked last.
    could_go_on: Option<u64>,
    /// The running group can go on at another host, and has known for a while that it is the group.
    goes_on: bool,
    /// The server has ended because the nodes can go on at another host.
    succeeded: CancellationToken,
}

impl EngineRight {
    /// The right to serve the run with these keys, whose changes are those of `store`.
    pub(super) fn new(store: &mut Mvcc, keys: Keys, lease_ttl: Duration) -> Self {
        let stream = store.open_stream();
        let watch = Watch::new(KeyRange::prefix(keys.root().to_owned()));
        let changes = store.watch(stream, None, watch).is_ok().then_some(stream);
        let right = ServingRight::new(keys, lease_ttl);
        let (could_go_on, goes_on, succeeded) = (None, false, CancellationToken::new());
        Self { right, changes, retires: false, could_go_on, goes_on, succeeded }
    }

    /// Takes in the changes since the last call, which are published. A server that has missed some has no right, so this
    /// is called before a client can compact them.
    pub(super) fn follow(&mut self, store: &mut Mvcc) {
        while let Some(stream) = self.changes {
            match store.next_message(stream) {
                Some(WatchMessage::Events { events, .. }) => {
                    events.iter().for_each(|event| self.right.changed(event));
                }
                Some(WatchMessage::Compacted { .. }) => self.changes = None,
                None => return,
            }
        }
    }

    /// The holder of the lease has confirmed a response that was sent at this time.
    pub(super) fn confirmed(&mut self, lease: LeaseId, sent: Time) {
        self.right.confirmed(lease, sent);
    }

    /// The server has granted this lease, and sends the response after this time.
    pub(super) fn granted(&mut self, lease: LeaseId, at: Time) {
        self.right.granted(lease, at);
    }

    /// Whether the server may grant and renew leases now.
    pub(super) fn holds(&mut self) -> bool {
        self.changes.is_some() && self.right.holds(boot_time())
    }

    /// Whether the right is lost for so long that the server ends.
    pub(super) fn is_over(&mut self) -> bool {
        self.changes.is_none() || self.right.is_over(boot_time())
    }

    /// The node of this server has left. If `retires`, the server ends as soon as the others can go on at another host.
    /// To be called again and again, some time after the last call: a group that has just formed goes on elsewhere only
    /// if its members know of it, and a server that ends does not tell them.
    pub(super) fn retires(&mut self, retires: bool) {
        let can_go_on = self.right.can_go_on();
        self.goes_on = can_go_on.is_some() && can_go_on == self.could_go_on;
        (self.retires, self.could_go_on) = (retires, can_go_on);
    }

    /// Cancelled when the server has ended because the nodes can go on at another host.
    pub(super) fn succeeded(&self) -> &CancellationToken {
        &self.succeeded
    }

    /// Whether the server ends now because the nodes can go on at another host.
    pub(super) fn is_succeeded(&self) -> bool {
        // The group is counted only for a server that retires: this is asked with every write.
        let can_end = || {
            self.right.can_be_succeeded()
                || (self.goes_on && self.right.can_go_on() == self.could_go_on)
        };
        let is_succeeded = self.retires && can_end();
        if is_succeeded {
            self.succeeded.cancel();
        }
        is_succeeded
    }

    /// The last round that formed a group here; 0 if none did.
    pub(super) fn formed(&self) -> u64 {
        self.right.round()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rallypoint_core::kv::Put;
    use rallypoint_core::mvcc::MvccOptions;
    use rallypoint_core::rendezvous::documents::FORMAT;

    use super::super::engine::Engine;
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn engine() -> (Engine, Keys) {
        let (engine, keys) =
            (Engine::new(Mvcc::new(MvccOptions::default()), None), Keys::new("/p", "r"));
        engine.needs_right(keys.clone(), TTL);
        (engine, keys)
    }

    #[tokio::test]
    async fn a_client_that_compacts_does_not_take_the_right_away() {
        let (engine, keys) = engine();
        for revision in 2..12 {
            let put = Put::new(keys.node("a"), "{}");
            engine.write(|store, _| store.put(put)).await.unwrap().unwrap();
            engine.write(|store, _| store.compact(revision)).await.unwrap().unwrap();
        }
        assert!(engine.has_right());
        assert!(!engine.right_is_over());
    }

    fn active(round: u64, status: &str) -> Bytes {
        let rest = r#""limits":{"min":1,"max":3},"rank_policy":"","coordinator":{"id":"a"}"#;
        let history = r#""history":"0000000000000007""#;
        format!(r#"{{"format":{FORMAT},{history},"round":{round},"status":"{status}",{rest}}}"#)
            .into()
    }

    /// No group forms here after the nodes can go on at another host.
    #[tokio::test]
    async fn the_join_that_lets_the_nodes_go_on_elsewhere_is_the_last_change() {
        let (engine, keys) = engine();
        let puts = async |key: String, value: Bytes| {
            let put = Put::new(key, value);
            engine.write(|store, _| store.put(put)).await.map(Result::unwrap)
        };
        for id in ["a", "b", "c"] {
            puts(keys.ready(1, id), Bytes::new()).await.unwrap();
        }
        puts(keys.active(), active(1, "final")).await.unwrap();
        puts(keys.left(1, "a"), Bytes::new()).await.unwrap();
        puts(keys.active(), active(2, "joinable")).await.unwrap();
        let ended = engine.retires(true).unwrap();
        puts(keys.member(2, "b"), "{}".into()).await.unwrap();
        assert!(!ended.is_cancelled() && engine.is_open());
        puts(keys.member(2, "c"), "{}".into()).await.unwrap();
        assert!(ended.is_cancelled());
        assert!(puts(keys.active(), active(2, "frozen")).await.is_err());
    }

    /// Members that have tried to confirm a group, and never learn that it formed, could go on nowhere.
    #[tokio::test]
    async fn a_group_that_has_just_formed_is_told_before_the_server_ends() {
        let (engine, keys) = engine();
        let puts = async |key: String, value: Bytes| {
            let put = Put::new(key, value);
            engine.write(|store, _| store.put(put)).await.map(Result::unwrap)
        };
        for id in ["b", "c"] {
            puts(keys.member(2, id), "{}".into()).await.unwrap();
            puts(keys.ready(2, id), Bytes::new()).await.unwrap();
        }
        let ended = engine.retires(true).unwrap();
        puts(keys.active(), active(2, "final")).await.unwrap();
        assert!(!ended.is_cancelled() && engine.is_open());
        engine.retires(true).unwrap();
        assert!(!ended.is_cancelled(), "it may have formed just now");
        engine.retires(true).unwrap();
        assert!(ended.is_cancelled());
    }
}
