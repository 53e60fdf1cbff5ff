//! Reads what the core needs to decide whether a failure of this node is a consequence of a lost peer.

use rallypoint_core::agent::collateral::{
    DETECTION_TIMEOUT, FailureOrigin, RoundMembers, failure_origin,
};
use rallypoint_core::kv::{KeyRange, Range};
use rallypoint_core::rendezvous::keys::Keys;
use tokio::time::timeout;

use super::handler::EtcdRendezvousHandler;
use crate::client::ClientError;
use crate::rendezvous::HandlerStatus;

fn known(status: &HandlerStatus) -> FailureOrigin {
    failure_origin(&status.view, status.fenced.is_some())
}

/// Whether the group of this node has lost a member, this node included, or loses one within a second. True if that
/// cannot be found out.
pub(super) async fn is_collateral(handler: &EtcdRendezvousHandler) -> bool {
    let mut changes = handler.changes();
    let decided = changes.wait_for(|status| !matches!(known(status), FailureOrigin::Undecided(_)));
    let _ = timeout(DETECTION_TIMEOUT, decided).await;
    match known(&handler.status()) {
        FailureOrigin::Collateral => true,
        FailureOrigin::Own => false,
        FailureOrigin::Undecided(round) => {
            let members = round_members(handler, round).await;
            members.map_or(true, RoundMembers::lost_a_member)
        }
    }
}

async fn round_members(
    handler: &EtcdRendezvousHandler,
    round: u64,
) -> Result<RoundMembers, ClientError> {
    let (client, keys) = (handler.client(), handler.keys());
    let count = async |range: KeyRange| {
        let found = client.range(Range { count_only: true, ..Range::new(range) }).await?;
        Ok::<_, ClientError>(u64::try_from(found.count).unwrap_or(0))
    };
    let (there, all) = (count(keys.members(round)).await?, count(keys.ranks(round)).await?);
    let reports = client.range(Range { keys_only: true, ..Range::new(keys.suspects()) }).await?;
    let mut suspects = 0;
    for suspect in reports.kvs.iter().filter_map(|kv| Keys::id_of(&kv.key)) {
        // Suspects of earlier groups may still have keys.
        suspects += count(KeyRange::key(keys.member(round, suspect))).await?;
    }
    Ok(RoundMembers { there, all, suspects })
}
