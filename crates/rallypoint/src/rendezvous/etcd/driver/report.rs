//! What a handler's callers, its guard and the log are told of the node.

use super::NodeDriver;
use crate::log_target::RENDEZVOUS;
use crate::rendezvous::etcd::peer_liveness::UNREACHED_ADVICE;

impl NodeDriver {
    /// Sets the fencing deadline from the session. The deadline stays as it is while the node has no place in a
    /// group: workers that are being stopped get no more time.
    pub(super) fn set_fence(&mut self) {
        if !self.node.holds_place() || self.config.sole {
            return;
        }
        let Some((session, _)) = &self.session else { return };
        let at = Some(*session.fence_at().borrow());
        self.fence.send_if_modified(|fence| std::mem::replace(fence, at) != at);
    }

    pub(super) fn publish(&mut self) {
        let view = self.node.view(self.now());
        self.wait_log.update(&view);
        self.log_unreached(&view.unreached);
        self.status.send_if_modified(|status| {
            let changed = status.view != view;
            status.view = view;
            changed
        });
    }

    /// Logs which other members have no connection to rank 0, once each.
    fn log_unreached(&self, unreached: &[String]) {
        let status = self.status.borrow();
        let is_news = |says: &&String| {
            !says.starts_with(&self.node_id) && !status.view.unreached.contains(says)
        };
        for says in unreached.iter().filter(is_news) {
            tracing::warn!(target: RENDEZVOUS, run_id = self.run_id, "{says}; {UNREACHED_ADVICE}");
        }
    }
}
