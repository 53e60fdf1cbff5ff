//! `rallypoint serve --engine etcd`: real etcds, which end with this command.

use super::{Common, shutdown};
use crate::cli::AnyError;
use crate::etcd_server::{EtcdCluster, EtcdOutput, EtcdServerError, EtcdServerOptions};
use crate::log_target::CLI;

pub(super) async fn serve(members: usize, common: Common) -> Result<(), AnyError> {
    let options = EtcdServerOptions {
        listen: common.listen,
        data_dir: common.data_dir.clone(),
        output: EtcdOutput::Inherit,
        ..EtcdServerOptions::default()
    };
    let shutdown = shutdown(common.stop_at_eof)?;
    tokio::pin!(shutdown);
    // The start may take minutes, and a signal must end it.
    let mut cluster = tokio::select! {
        started = EtcdCluster::start(members, options) => started?,
        () = &mut shutdown => return Ok(()),
    };
    common.announce("http", &cluster.endpoints())?;
    let ended = tokio::select! {
        ended = majority_lost(&mut cluster) => Err(ended),
        () = &mut shutdown => Ok(()),
    };
    cluster.stop().await?;
    Ok(ended?)
}

/// Waits until the members have lost their quorum. Returns the end of the last one.
async fn majority_lost(cluster: &mut EtcdCluster) -> EtcdServerError {
    loop {
        let (member, ended) = cluster.exited().await;
        let pids = cluster.pids();
        let (left, of) = (pids.iter().flatten().count(), pids.len());
        if left * 2 <= of {
            return ended;
        }
        // Its last messages are in the log, which this command shows.
        let ended = ended.to_string();
        let ended = ended.lines().next();
        tracing::warn!(target: CLI, member, left, of, ended, "a member has exited; the remaining members continue");
    }
}
