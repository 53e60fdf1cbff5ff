//! A backend in the memory of one process, for tests and for jobs of a single process.

use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::watch;

use super::backend::{FencingToken, RendezvousBackend};
use crate::rendezvous::RendezvousError;

/// A backend that keeps the state in the memory of one process. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct MemoryRendezvousBackend {
    cell: Arc<watch::Sender<VersionedState>>,
}

/// The state and the number of writes, which is its fencing token.
#[derive(Debug, Default)]
struct VersionedState {
    version: u64,
    state: Option<Bytes>,
}

impl VersionedState {
    fn token(&self) -> FencingToken {
        FencingToken::new(self.version.to_string())
    }

    fn is_at(&self, token: Option<&FencingToken>) -> bool {
        match (&self.state, token) {
            (None, None) => true,
            (Some(_), Some(token)) => self.token() == *token,
            _ => false,
        }
    }
}

#[async_trait]
impl RendezvousBackend for MemoryRendezvousBackend {
    fn name(&self) -> &str {
        "memory"
    }

    async fn get_state(&self) -> Result<Option<(Bytes, FencingToken)>, RendezvousError> {
        let cell = self.cell.borrow();
        Ok(cell.state.clone().map(|state| (state, cell.token())))
    }

    async fn set_state(
        &self,
        state: Bytes,
        token: Option<&FencingToken>,
    ) -> Result<Option<(Bytes, FencingToken, bool)>, RendezvousError> {
        let mut after = None;
        self.cell.send_if_modified(|cell| {
            let right = cell.is_at(token);
            if right {
                *cell = VersionedState { version: cell.version + 1, state: Some(state) };
            }
            after = cell.state.clone().map(|state| (state, cell.token(), right));
            right
        });
        Ok(after)
    }

    async fn changed(&self, token: Option<&FencingToken>) {
        // This backend owns the sender, so the wait ends only with a change.
        let _ = self.cell.subscribe().wait_for(|cell| !cell.is_at(token)).await;
    }
}
