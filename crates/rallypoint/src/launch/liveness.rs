//! What others see of this node when it is gone, and what becomes of its workers when it stands still.

use rallypoint_core::kv::Time;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::LaunchError;
use crate::blocking::blocking;
use crate::process::{self, LivenessSocket, fence_at, reap_strangers, start_guard};
use crate::rendezvous::RendezvousParameters;

/// The guard, the socket that it holds until the last worker is gone, and the fence.
pub(super) struct Liveness {
    /// Without it the others learn of our end by our lease alone.
    _socket: Option<LivenessSocket>,
    /// When the workers end, if nothing is said before. Never, until somebody says so.
    _fence: watch::Sender<Option<Time>>,
    _fencing: AbortOnDropHandle<()>,
    _reaping: Option<AbortOnDropHandle<()>>,
}

impl Liveness {
    /// Starts the guard, which everything else depends on.
    ///
    /// # Errors
    /// [`LaunchError::System`], if there is no guard.
    pub(super) async fn start(parameters: &RendezvousParameters) -> Result<Self, LaunchError> {
        let RendezvousParameters { endpoint, local_addr, .. } = parameters;
        let socket = match LivenessSocket::for_node(endpoint, local_addr.as_deref()) {
            Ok(socket) => Some(socket),
            Err(error) => {
                let words = "others will learn that this node is gone only when its lease is over";
                tracing::warn!(%error, "{words}; --local-addr names another address");
                None
            }
        };
        blocking(start_guard).await?;
        let (fence, fenced) = watch::channel(None);
        let reaping =
            process::is_needed().then(|| AbortOnDropHandle::new(tokio::spawn(reap_strangers())));
        Ok(Self {
            _socket: socket,
            _fence: fence,
            _fencing: AbortOnDropHandle::new(tokio::spawn(keep_fence(fenced))),
            _reaping: reaping,
        })
    }
}

/// Tells the guard of each new moment at which the workers are to end. Ends with whoever says them.
pub(super) async fn keep_fence(mut fence: watch::Receiver<Option<Time>>) {
    loop {
        fence_at(*fence.borrow_and_update());
        if fence.changed().await.is_err() {
            return;
        }
    }
}
