//! Whether what failed here failed because of another node.
//!
//! When a member dies, the workers of the others often fail before it is missed. That is no failure of theirs, and
//! no reason to end the job.

use std::time::Duration;

use rallypoint::client::ClientError;
use rallypoint::rendezvous::{EtcdRendezvousHandler, Standing};
use rallypoint_core::kv::{KeyRange, Range};
use rallypoint_core::rendezvous::keys::Keys;
use tokio::time::timeout;

/// How long it may take until a member that has died is missed.
const MISSED_AFTER: Duration = Duration::from_secs(1);

/// Whether the group of this node has lost a member, this one included, or has within a second. That others meet
/// again is no sign of it: they may do so because of what failed here. If nobody can tell, it is taken for true.
pub(super) async fn is_collateral(handler: &EtcdRendezvousHandler) -> bool {
    let mut changes = handler.changes();
    let is_lost = |standing: &Standing| standing.fenced.is_some() || !standing.view.lost.is_empty();
    let is_closed = |standing: &Standing| standing.view.closed.is_some();
    let known = changes.wait_for(|standing| is_lost(standing) || is_closed(standing));
    let _ = timeout(MISSED_AFTER, known).await;
    let standing = handler.standing();
    match standing.view.member_of {
        _ if is_lost(&standing) => true,
        Some(round) if !is_closed(&standing) => {
            has_lost_a_member(handler, round).await.unwrap_or(true)
        }
        _ => false,
    }
}

/// Looks it up. Once the others meet again, nobody tells the members of the group before.
async fn has_lost_a_member(
    handler: &EtcdRendezvousHandler,
    round: u64,
) -> Result<bool, ClientError> {
    let (client, keys) = (handler.client(), handler.keys());
    let count = async |range: KeyRange| {
        let found = client.range(Range { count_only: true, ..Range::new(range) }).await?;
        Ok::<_, ClientError>(found.count)
    };
    // A member's lease goes with it, the ranks stay. A server that knows neither has taken the place of one that
    // was lost, and a node with it.
    let (there, all) = (count(keys.members(round)).await?, count(keys.ranks(round)).await?);
    if there == 0 || there < all {
        return Ok(true);
    }
    let suspects = client.range(Range { keys_only: true, ..Range::new(keys.suspects()) }).await?;
    for suspect in suspects.kvs.iter().filter_map(|kv| Keys::id_of(&kv.key)) {
        // Suspects of earlier groups may still be there.
        if count(KeyRange::key(keys.member(round, suspect))).await? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
