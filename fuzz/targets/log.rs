//! The write-ahead log: bytes as a file, and as the content of a frame that may have been written in part.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rallypoint::fuzzing::{log_file, log_frame};

fuzz_target!(|input: (bool, u64, &[u8])| {
    let (is_file, unwritten, bytes) = input;
    if is_file { log_file(bytes) } else { log_frame(bytes, unwritten) }
});
