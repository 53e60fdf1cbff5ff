//! The store.
mod record;
pub use record::Record;
/// A
#[derive(Default)]
pub struct Store;
