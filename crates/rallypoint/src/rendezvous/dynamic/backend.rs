//! The interface of a store that holds the state of a dynamic rendezvous.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::rendezvous::RendezvousError;

/// The polling interval for a backend that cannot report changes, as in PyTorch.
const POLL: Duration = Duration::from_secs(1);

/// An opaque fencing token: the name of one version of a state.
///
/// A write carries the token of the version that it replaces, and the backend refuses it if that version
/// is no longer the newest. Only the backend that issued a token can interpret it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencingToken(String);

impl FencingToken {
    /// Makes a token from its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text of the token.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A store for one state that changes only by compare-and-set.
///
/// Dropping a call's future gives up on it; a write may still be executed.
///
/// ```
/// use rallypoint::rendezvous::RendezvousError;
/// use rallypoint::rendezvous::dynamic::{MemoryRendezvousBackend, RendezvousBackend, FencingToken};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RendezvousError> {
/// let backend = MemoryRendezvousBackend::default();
/// assert!(backend.get_state().await?.is_none());
/// let (_, token, written) = backend.set_state("one".into(), None).await?.unwrap();
/// assert!(written);
/// // A second node that expects no state is refused, and gets the present state.
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

    /// Where the state is stored, for messages to users: `key "/a/b"`.
    fn place(&self) -> String {
        format!("backend {:?}", self.name())
    }

    /// Reads the state and its fencing token; `None` if there is no state.
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if the store did not answer.
    async fn get_state(&self) -> Result<Option<(Bytes, FencingToken)>, RendezvousError>;

    /// Writes `state` if the stored state is still the version that `token` names or, without a token, if
    /// there is no stored state.
    ///
    /// Returns the state that is stored afterwards, its token, and whether this call wrote it; `None` if
    /// no state is stored. A stale token, or one of another backend, is not an error: nothing is written.
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if the store did not answer.
    async fn set_state(
        &self,
        state: Bytes,
        token: Option<&FencingToken>,
    ) -> Result<Option<(Bytes, FencingToken, bool)>, RendezvousError>;

    /// Waits until the stored state may differ from the version that `token` names or, without a token,
    /// until a state may exist.
    ///
    /// An implementation may return early, but must not return at once every time. A backend that can
    /// watch its state should override this method; the default waits for one second.
    async fn changed(&self, token: Option<&FencingToken>) {
        let _ = token;
        tokio::time::sleep(POLL).await;
    }
}
