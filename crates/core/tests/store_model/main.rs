//! The store from the outside.
//!
//! - `regressions`: bugs that were.

mod regressions;
