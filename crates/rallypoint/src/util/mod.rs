//! Small tools that several modules share.

pub(crate) mod blocking;
pub(crate) mod clock;
pub(crate) mod error_chain;
pub(crate) mod file_lock;
pub(crate) mod random;
