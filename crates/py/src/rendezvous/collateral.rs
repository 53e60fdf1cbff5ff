//! Gathers what the core needs to decide whether what failed here failed because of another node.

use rallypoint::client::ClientError;
use rallypoint::rendezvous::{EtcdRendezvousHandler, Standing};
use rallypoint_core::agent::collateral::{Fault, MISSED_WITHIN, RollCall, fault};
use rallypoint_core::kv::{KeyRange, Range};
use rallypoint_core::rendezvous::keys::Keys;
use tokio::time::timeout;

fn known(standing: &Standing) -> Fault {
    fault(&standing.view, standing.fenced.is_some())
}

/// Whether the group of this node has lost a member, this one included, or has within a second. If nobody can
/// tell, it is taken for true.
pub(super) async fn is_collateral(handler: &EtcdRendezvousHandler) -> bool {
    let mut changes = handler.changes();
    let decided = changes.wait_for(|standing| !matches!(known(standing), Fault::Open(_)));
    let _ = timeout(MISSED_WITHIN, decided).await;
    match known(&handler.standing()) {
        Fault::Collateral => true,
        Fault::Own => false,
        Fault::Open(round) => {
            let call = roll_call(handler, round).await;
            call.map_or(true, RollCall::lost_a_member)
        }
    }
}

async fn roll_call(handler: &EtcdRendezvousHandler, round: u64) -> Result<RollCall, ClientError> {
    let (client, keys) = (handler.client(), handler.keys());
    let count = async |range: KeyRange| {
        let found = client.range(Range { count_only: true, ..Range::new(range) }).await?;
        Ok::<_, ClientError>(u64::try_from(found.count).unwrap_or(0))
    };
    let (there, all) = (count(keys.members(round)).await?, count(keys.ranks(round)).await?);
    let reports = client.range(Range { keys_only: true, ..Range::new(keys.suspects()) }).await?;
    let mut suspects = 0;
    for suspect in reports.kvs.iter().filter_map(|kv| Keys::id_of(&kv.key)) {
        // Reports of members of earlier groups may still be there.
        suspects += count(KeyRange::key(keys.member(round, suspect))).await?;
    }
    Ok(RollCall { there, all, suspects })
}
