//! The hash of all pairs at one revision, by which administrators compare copies.

use rallypoint_core::kv::{KeyRange, KeyValue, KvError, Range, Revision};

use super::engine::Engine;
use crate::util::blocking::blocking;

/// A hash, and what it is of.
pub(super) struct StoreHash {
    /// The same for the same pairs. It says nothing of the hash of an etcd, which is one of its files and its history.
    pub(super) hash: u32,
    /// The revision that it is of.
    pub(super) of: Revision,
    /// The store's revision at the time of the read.
    pub(super) revision: Revision,
    pub(super) compacted: Revision,
}

/// The hash of all pairs at `asked`; 0 for the newest revision.
pub(super) async fn store_hash(engine: &Engine, asked: Revision) -> Result<StoreHash, KvError> {
    let all = Range { revision: asked, ..Range::new(KeyRange::all()) };
    let (pairs, compacted) =
        engine.read(|store| Ok::<_, KvError>((store.range(&all)?, store.compacted())))?;
    let revision = pairs.revision;
    let of = if asked > 0 { asked } else { revision };
    let hash = blocking(move || hash(&pairs.kvs)).await;
    Ok(StoreHash { hash, of, revision, compacted })
}

fn hash(pairs: &[KeyValue]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for KeyValue { key, value, create_revision, mod_revision, version, lease } in pairs {
        for number in [*create_revision, *mod_revision, *version, *lease] {
            hasher.update(&number.to_be_bytes());
        }
        for bytes in [key, value] {
            hasher.update(&bytes.len().to_be_bytes());
            hasher.update(bytes);
        }
    }
    hasher.finalize()
}
