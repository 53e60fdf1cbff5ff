//! What a store has to do to hold the state of a rendezvous.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::rendezvous::RendezvousError;

/// How often a state is looked at that nobody tells of, as in PyTorch.
const POLL: Duration = Duration::from_secs(1);

/// Names one version of a state. Only the backend that gave it can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Holds one state, which changes only under a compare.
///
/// Dropping a call's future gives up on it; a write may still be executed.
///
/// ```
/// use rallypoint::rendezvous::RendezvousError;
/// use rallypoint::rendezvous::dynamic::{MemoryRendezvousBackend, RendezvousBackend, Token};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RendezvousError> {
/// let backend = MemoryRendezvousBackend::default();
/// assert!(backend.get_state().await?.is_none());
/// let (_, token, written) = backend.set_state("one".into(), None).await?.unwrap();
/// assert!(written);
/// // A second node that believes it is the first learns what there is.
/// let (state, _, written) = backend.set_state("two".into(), None).await?.unwrap();
/// assert!(!written && state == "one");
/// let (_, _, written) = backend.set_state("two".into(), Some(&token)).await?.unwrap();
/// assert!(written);
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait RendezvousBackend: Send + Sync {
    /// The name of the backend.
    fn name(&self) -> &str;

    /// Where the state lies, for those who have to look at it: `key "/a/b"`.
    fn place(&self) -> String {
        format!("backend {:?}", self.name())
    }

    /// The state, and the token of this version; nothing if there is none.
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if the store could not be asked.
    async fn get_state(&self) -> Result<Option<(Bytes, Token)>, RendezvousError>;

    /// Writes the state if it is still the one that `token` names; without a token, if there is none.
    /// Returns what is there afterwards, and whether that was written by this call; nothing if there is
    /// no state. A token that is wrong, or not even one of this backend's, is no error: nothing was
    /// written.
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if the store could not be asked.
    async fn set_state(
        &self,
        state: Bytes,
        token: Option<&Token>,
    ) -> Result<Option<(Bytes, Token, bool)>, RendezvousError>;

    /// Waits until the state may be another than the one that `token` names, or there may be one if there
    /// was none. May return too early, but not without pause. A store that can tell of changes should;
    /// by itself this waits for one second.
    async fn changed(&self, token: Option<&Token>) {
        let _ = token;
        tokio::time::sleep(POLL).await;
    }
}
