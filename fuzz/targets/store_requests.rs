//! The wire of PyTorch's TCPStore, whole and in pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rallypoint::fuzzing::store_requests;

fuzz_target!(|input: (u8, &[u8])| store_requests(input.1, usize::from(input.0)));
