//! Small tools that several modules share.

pub(crate) mod backoff;
pub(crate) mod blocking;
pub(crate) mod boot_note;
pub(crate) mod clock;
pub(crate) mod error_chain;
pub(crate) mod file_lock;
pub(crate) mod follow;
pub(crate) mod host;
pub(crate) mod optional;
pub(crate) mod program;
pub(crate) mod random;
pub(crate) mod reminder;
pub(crate) mod retry;
