//! Follows an election: each leader, and what it proclaims.

use std::collections::VecDeque;

use bytes::Bytes;
use rallypoint_core::kv::{Event, EventKind, KeyRange, KeyValue, Revision};
use tonic::Status;

use super::queue::{Changes, Queues};

/// Reports each leader of an election, and each of its values.
pub(super) struct Observer {
    queues: Queues,
    prefix: Bytes,
    leader: Option<Followed>,
}

/// The leader whose changes are reported.
struct Followed {
    changes: Changes,
    revision: Revision,
    events: VecDeque<Event>,
}

impl Observer {
    pub(super) fn new(queues: Queues, prefix: Bytes) -> Self {
        Self { queues, prefix, leader: None }
    }

    /// Waits for the next leader or value, and returns its pair with the revision of the store.
    pub(super) async fn next(&mut self) -> Result<(Revision, KeyValue), Status> {
        loop {
            let Some(leader) = &mut self.leader else {
                let (revision, pair) = self.first().await?;
                let changes = self.queues.watch(KeyRange::key(pair.key.clone()), revision + 1)?;
                let events = VecDeque::new();
                self.leader = Some(Followed { changes, revision, events });
                return Ok((revision, pair));
            };
            match leader.events.pop_front() {
                Some(event) if event.kind == EventKind::Put => {
                    return Ok((leader.revision, event.kv));
                }
                Some(_) => self.leader = None,
                None => match leader.changes.next().await? {
                    Some((revision, events)) => {
                        (leader.revision, leader.events) = (revision, events.into());
                    }
                    None => self.leader = None,
                },
            }
        }
    }

    /// The current leader, or the first that comes.
    async fn first(&self) -> Result<(Revision, KeyValue), Status> {
        loop {
            let (revision, first) = self.queues.first(&self.prefix)?;
            if let Some(pair) = first {
                return Ok((revision, pair));
            }
            let keys = KeyRange::prefix(self.prefix.clone());
            let mut changes = self.queues.watch(keys, revision + 1)?;
            while let Some((_, events)) = changes.next().await? {
                let put = events.into_iter().find(|event| event.kind == EventKind::Put);
                if let Some(Event { kv, .. }) = put {
                    return Ok((kv.mod_revision, kv));
                }
            }
        }
    }
}
