//! Marks: workers that another program started, recognized by a variable in their environment.

use std::io;
use std::sync::Arc;

use super::guard::{self, GuardEntry, GuardHandle};

/// Guards every process that started with this variable and value in its environment, and all of their descendants: the
/// guard kills them when this process ends, and when the [fence](super::fence_at)
/// passes. This process, its guard, and children that this library started for other purposes are exempt.
///
/// Dropping the mark stops guarding these processes. A process whose environment cannot be read, such as one that
/// changed its user, is not recognized.
#[derive(Debug)]
pub struct Mark {
    entry: GuardEntry,
    handle: Arc<GuardHandle>,
}

impl Mark {
    /// Guards marked processes from now on. The value must be unique to them.
    ///
    /// # Errors
    /// The name or the value is empty, or the [guard](super::start_guard) cannot be started.
    pub fn new(name: &str, value: &str) -> io::Result<Self> {
        let entry = GuardEntry::marked(name, value)?;
        let handle = guard::program();
        handle.add(&entry)?;
        Ok(Self { entry, handle })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.handle.forget(&self.entry);
    }
}
