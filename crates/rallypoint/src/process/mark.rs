//! Workers that were not started by us, known by what stands in their environment.

use std::io;
use std::sync::Arc;

use super::guard::{self, GuardEntry, GuardHandle};

/// Every process that began with a certain variable of a certain value in its environment, and all of their
/// descendants, for as long as this is there: they end when this process does, and when the [fence](super::fence_at)
/// passes. Neither this process nor its guard is meant, nor a child that this library has started for other ends.
///
/// Dropping it leaves them alone. A process that nobody else may look at, as one that has changed its user,
/// is not seen.
#[derive(Debug)]
pub struct Mark {
    entry: GuardEntry,
    keeper: Arc<GuardHandle>,
}

impl Mark {
    /// From now on. The value must be one that no other process has.
    ///
    /// # Errors
    /// The name or the value says nothing, or there is no [guard](super::start_guard).
    pub fn new(name: &str, value: &str) -> io::Result<Self> {
        let entry = GuardEntry::marked(name, value)?;
        let keeper = guard::program();
        keeper.add(&entry)?;
        Ok(Self { entry, keeper })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.keeper.forget(&self.entry);
    }
}
