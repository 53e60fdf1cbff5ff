//! The documents that nodes share, and their events: what was read is read again from what is written for it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rallypoint_core::agent::stacks::NodeStacks;
use rallypoint_core::events::RunEvent;
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
    // Outputs in a record may have numbers that are not written as they were read.
    if let Some(event) = std::str::from_utf8(bytes).ok().and_then(|line| RunEvent::parse(line).ok())
    {
        assert!(RunEvent::parse(&event.to_line()).is_ok());
    }
    // Names are bounded as they are read, and frames as they are written.
    if let Some(read) = NodeStacks::decode(bytes) {
        assert!(NodeStacks::decode(read.encode().as_bytes()).is_some());
        let _ = read.describe();
    }
});
