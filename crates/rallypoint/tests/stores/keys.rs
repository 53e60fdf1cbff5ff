//! Counting and listing keys.

use bytes::Bytes;

use crate::cases;
use crate::harness::{Case, Context, text};

pub fn cases() -> Vec<Case> {
    cases![counted, listed, a_queue_is_no_key, many_listed, a_part_lists_its_own]
}

async fn listed_by(t: &Context) -> Vec<Bytes> {
    let mut keys = t.other.list_keys().await.unwrap();
    keys.sort();
    keys
}

async fn counted(t: Context) {
    assert_eq!(t.store.num_keys().await.unwrap(), 0);
    t.store.set(b"a", text("1")).await.unwrap();
    t.store.set(b"a", text("2")).await.unwrap();
    t.store.add(b"b", 5).await.unwrap();
    t.store.append(b"c", text("1")).await.unwrap();
    t.store.multi_set(&[(b"d", text("1")), (b"e", text("1"))]).await.unwrap();
    t.store.compare_set(b"f", b"", text("1")).await.unwrap();
    assert_eq!(t.other.num_keys().await.unwrap(), 6);
    t.store.delete_key(b"b").await.unwrap();
    assert_eq!(t.other.num_keys().await.unwrap(), 5);
}

async fn listed(t: Context) {
    assert_eq!(listed_by(&t).await, Vec::<Bytes>::new());
    for key in [&b"b"[..], b"", b"\xff\0", b"a/b"] {
        t.store.set(key, text("1")).await.unwrap();
    }
    t.store.add(b"sum", 3).await.unwrap();
    assert_eq!(listed_by(&t).await, [&b""[..], b"a/b", b"b", b"sum", b"\xff\0"]);
    t.store.delete_key(b"a/b").await.unwrap();
    assert_eq!(listed_by(&t).await, [&b""[..], b"b", b"sum", b"\xff\0"]);
}

async fn a_queue_is_no_key(t: Context) {
    t.store.queue_push(b"queue", text("1")).await.unwrap();
    assert_eq!(t.other.num_keys().await.unwrap(), 0);
    assert_eq!(listed_by(&t).await, Vec::<Bytes>::new());
    assert!(!t.other.delete_key(b"queue").await.unwrap());
    assert_eq!(t.other.queue_len(b"queue").await.unwrap(), 1);
}

async fn many_listed(t: Context) {
    let names: Vec<String> = (0..2500).map(|number| format!("key {number:05}")).collect();
    let pairs: Vec<_> = names.iter().map(|name| (name.as_bytes(), text(""))).collect();
    t.store.multi_set(&pairs).await.unwrap();
    assert_eq!(listed_by(&t).await, names);
    assert_eq!(t.other.num_keys().await.unwrap(), 2500);
}

/// A part counts what the whole has, as in PyTorch, but lists only what is its own.
async fn a_part_lists_its_own(t: Context) {
    let Some(whole) = &t.whole else {
        // A whole store has nothing that is not its own.
        t.store.set(b"a", text("1")).await.unwrap();
        assert_eq!(listed_by(&t).await, ["a"]);
        return;
    };
    whole.set(b"elsewhere", text("1")).await.unwrap();
    whole.set(b"a part", text("1")).await.unwrap();
    t.store.set(b"inside", text("2")).await.unwrap();
    assert_eq!(t.other.num_keys().await.unwrap(), 3);
    assert_eq!(listed_by(&t).await, ["inside"]);
    assert_eq!(whole.get(b"a part/inside").await.unwrap(), "2");
}
