//! Whether a node counts for the first group of a run.
//!
//! The hosts of the order are the group of round 0, and its members must not vote twice: a launcher that is started again
//! on its host remembers nothing, and could begin the run anew beside the nodes that go on. So a node that confirms its
//! rank leaves a note on its host, and refreshes it while it is a member. A launcher that finds a fresh note does not vote
//! if any other host remembers a group; if none does, the whole job was started again, and the launcher waits until
//! no worker of the group before can be left.

use std::time::Duration;

use rallypoint_core::rendezvous::succession::order::HostAnswer;
use rallypoint_core::rendezvous::succession::outlives;
use tokio::time::sleep;

use super::order::{HostOrder, OrderSetup, PATIENCE};
use crate::embedded::runtime_directory;
use crate::log_target::EMBEDDED;
use crate::util::blocking::blocking;
use crate::util::boot_note::BootNote;

/// The pause between two looks at the note and at the other hosts.
const AGAIN: Duration = Duration::from_millis(500);

/// The note of a host that a node of this run has confirmed a rank there.
#[derive(Debug, Clone)]
pub(crate) struct VoteNote(BootNote);

impl VoteNote {
    fn new(setup: &OrderSetup, host: usize) -> Self {
        let port = setup.endpoints.get(host).map_or(0, |endpoint| endpoint.port);
        let run: String = setup.run_id.bytes().map(|byte| format!("{byte:02x}")).collect();
        // A file name has at most 255 bytes.
        let run = run.get(..128).unwrap_or(&run);
        Self(BootNote::new(&runtime_directory(), &format!("rallypoint-voted-{port}-{run}")))
    }

    /// The note of this host, if it is one of the order.
    pub(crate) fn of(order: &HostOrder) -> Option<Self> {
        order.own().map(|(host, _)| Self::new(order.setup(), host))
    }

    /// A node of this host is about to confirm a rank, or is a member of a group. Without a note, a launcher after this
    /// one may vote again.
    pub(crate) async fn write(&self) {
        let note = self.0.clone();
        if let Err(error) = blocking(move || note.write()).await {
            let path = self.0.path().display();
            tracing::warn!(
                target: EMBEDDED,
                %error, %path, "a launcher that is started again on this host will not know of this one"
            );
        }
    }

    /// The node leaves in good order.
    pub(crate) async fn remove(&self) {
        let note = self.0.clone();
        blocking(move || note.remove()).await;
    }
}

impl HostOrder {
    /// Whether the node of this process counts for the first group of the run. Waits where that is not certain.
    pub(crate) async fn votes(&self) -> bool {
        self.decided().await;
        let Some(note) = VoteNote::of(self) else { return false };
        let fresh = 2 * outlives(self.setup().lease_ttl);
        let mut said = false;
        loop {
            let found = note.0.clone();
            let age = blocking(move || found.age()).await;
            let Some(left) =
                age.map(|age| fresh.saturating_sub(age)).filter(|left| !left.is_zero())
            else {
                return true;
            };
            let knows = |answer: &HostAnswer| match answer {
                HostAnswer::Silent => false,
                HostAnswer::StandsBy { remembers } => *remembers > 0,
                HostAnswer::Serves { formed } => *formed > 0,
            };
            if self.ask(0, PATIENCE).await.iter().any(knows) {
                return false;
            }
            if !std::mem::replace(&mut said, true) {
                tracing::warn!(
                    target: EMBEDDED,
                    "this host was part of this run a moment ago, and no other host remembers it; this launcher waits up to \
                     {left:.0?}, until no worker of that time can be left. Another --rdzv-id begins at once"
                );
            }
            sleep(left.min(AGAIN)).await;
        }
    }
}
