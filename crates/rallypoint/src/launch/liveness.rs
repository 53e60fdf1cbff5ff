//! This node's liveness: the socket by which peers detect its death, and the fence that kills its workers.

use rallypoint_core::rendezvous::documents::LivenessAddress;
use tokio_util::task::AbortOnDropHandle;

use super::LaunchError;
use super::peers::Peers;
use crate::log_target::LAUNCH;
use crate::process::{self, LivenessSocket, follow_fence, reap_orphans, start_guard};
use crate::rendezvous::RendezvousParameters;
use crate::util::blocking::blocking;

/// The guard, the socket that it holds until the last worker is gone, and the fence.
pub(super) struct Liveness {
    /// Without it, peers detect the death of this node by lease expiry alone.
    _socket: Option<LivenessSocket>,
    fencing: Option<AbortOnDropHandle<()>>,
    _reaping: Option<AbortOnDropHandle<()>>,
}

impl Liveness {
    /// Starts the guard, which everything else depends on, and puts its socket into the parameters.
    ///
    /// # Errors
    /// [`LaunchError::System`], if the guard cannot be started.
    pub(super) async fn start(parameters: &mut RendezvousParameters) -> Result<Self, LaunchError> {
        let RendezvousParameters { endpoint, local_addr, .. } = parameters;
        let socket = match LivenessSocket::for_node(endpoint, local_addr.as_deref()) {
            Ok(socket) => Some(socket),
            Err(error) => {
                let words = "peers will detect the death of this node by lease expiry alone";
                tracing::warn!(
                    target: LAUNCH,
                    %error, "{words}; --local-addr names another address"
                );
                None
            }
        };
        parameters.liveness = socket.as_ref().map(|socket| LivenessAddress {
            host: String::new(),
            port: socket.port(),
            token: socket.token().to_owned(),
        });
        blocking(start_guard).await?;
        let reaping =
            process::adopts_orphans().then(|| AbortOnDropHandle::new(tokio::spawn(reap_orphans())));
        Ok(Self { _socket: socket, fencing: None, _reaping: reaping })
    }

    /// From now on the guard kills the workers when the lease is not renewed in time.
    pub(super) fn follow(&mut self, peers: &Peers) {
        let fencing = tokio::spawn(follow_fence(peers.run().fence_at.clone()));
        self.fencing = Some(AbortOnDropHandle::new(fencing));
    }
}
