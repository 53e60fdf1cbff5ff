//! Entry points of the fuzz targets in `fuzz/` to decoders that are private. No part of the interface of this crate.

pub use crate::server::wal::fuzzing::{log_file, log_frame};
pub use crate::store::agent::fuzzing::store_requests;
