//! The documents that nodes share: what was read is read again from what is written for it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rallypoint_core::rendezvous::documents::{
    Active, BootstrapStore, Joined, NodeDocument, Objection, Predecessor, Ranked, Rounds, decode,
    encode,
};

macro_rules! round_trips {
    ($bytes:expr, $($document:ty),+ $(,)?) => {$(
        if let Ok(read) = decode::<$document>(b"key", $bytes) {
            assert_eq!(decode::<$document>(b"key", &encode(&read)).as_ref(), Ok(&read));
        }
    )+};
}

fuzz_target!(|bytes: &[u8]| {
    round_trips!(
        bytes,
        Active,
        BootstrapStore,
        Joined,
        NodeDocument,
        Objection,
        Predecessor,
        Ranked,
        Rounds
    );
});
