//! A state in the memory of one process, for tests and for jobs that live in one.

use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::watch;

use super::backend::{RendezvousBackend, Token};
use crate::rendezvous::RendezvousError;

/// A state in the memory of one process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryRendezvousBackend {
    cell: Arc<watch::Sender<Cell>>,
}

#[derive(Debug, Default)]
struct Cell {
    version: u64,
    state: Option<Bytes>,
}

impl Cell {
    fn token(&self) -> Token {
        Token::new(self.version.to_string())
    }

    fn is_at(&self, token: Option<&Token>) -> bool {
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

    async fn get_state(&self) -> Result<Option<(Bytes, Token)>, RendezvousError> {
        let cell = self.cell.borrow();
        Ok(cell.state.clone().map(|state| (state, cell.token())))
    }

    async fn set_state(
        &self,
        state: Bytes,
        token: Option<&Token>,
    ) -> Result<Option<(Bytes, Token, bool)>, RendezvousError> {
        let mut after = None;
        self.cell.send_if_modified(|cell| {
            let right = cell.is_at(token);
            if right {
                *cell = Cell { version: cell.version + 1, state: Some(state) };
            }
            after = cell.state.clone().map(|state| (state, cell.token(), right));
            right
        });
        Ok(after)
    }

    async fn changed(&self, token: Option<&Token>) {
        // The sender is ours, so the wait ends only with a change.
        let _ = self.cell.subscribe().wait_for(|cell| !cell.is_at(token)).await;
    }
}
