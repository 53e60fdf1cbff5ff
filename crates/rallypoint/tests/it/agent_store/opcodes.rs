//! Every opcode, byte by byte.

use tokio::io::AsyncWriteExt;

use super::raw::{
    CANCEL_WAIT, Raw, STOP_WAITING, VALIDATE, WAIT_CANCELED, add, barrier, get, list, number, ping,
    queue_pop, queue_push, request, set, string, wait,
};
use super::start;

/// Requests in order, each with its reply.
fn conversation() -> Vec<(Vec<u8>, Vec<u8>)> {
    let none = Vec::new;
    let key = |opcode, key: &str| request(opcode, &[&string(key)]);
    let compare_set = |key: &str, expected: &str, desired: &str| {
        request(2, &[&string(key), &string(expected), &string(desired)])
    };
    let append = |value: &str| request(9, &[&string("/log"), &string(value)]);
    let multi_set =
        request(11, &[&number(2), &string("/m1"), &string("one"), &string("/m2"), &string("")]);
    vec![
        (VALIDATE.to_vec(), none()),
        (ping(0x0102_0304), vec![4, 3, 2, 1]),
        (set("/k", "v"), none()),
        (get("/k"), string("v")),
        (get("/missing"), string("")),
        (set("/k", b"\x00\xff".as_slice()), none()),
        (get("/k"), string(b"\x00\xff".as_slice())),
        (compare_set("/c", "wrong", "new"), string("wrong")),
        (compare_set("/c", "", "new"), string("new")),
        (compare_set("/c", "old", "newer"), string("new")),
        (compare_set("/c", "new", "newer"), string("newer")),
        (add("init/", 1), number(1).to_vec()),
        (add("init/", -3), number(-2).to_vec()),
        (get("init/"), string("-2")),
        (list(5, &["/k", "/c"]), vec![0]),
        (list(5, &["/k", "/missing"]), vec![1]),
        (list(5, &[]), vec![0]),
        (wait(&["/k", "/c"]), STOP_WAITING.to_vec()),
        (wait(&[]), STOP_WAITING.to_vec()),
        (vec![7], number(3).to_vec()),
        (key(8, "/c"), number(1).to_vec()),
        (key(8, "/c"), number(0).to_vec()),
        (append("one"), none()),
        (append(", two"), none()),
        (get("/log"), string("one, two")),
        (multi_set, none()),
        (list(10, &["/m1", "/missing", "/m2"]), [string("one"), string(""), string("")].concat()),
        (list(10, &[]), none()),
        (CANCEL_WAIT.to_vec(), WAIT_CANCELED.to_vec()),
        (queue_push("/q", "first"), none()),
        (queue_push("/q", "second"), none()),
        (key(16, "/q"), number(2).to_vec()),
        (list(5, &["/q"]), vec![0]),
        (wait(&["/q"]), STOP_WAITING.to_vec()),
        (queue_pop("/q"), [number(2).to_vec(), string("first")].concat()),
        (queue_pop("/q"), [number(1).to_vec(), string("second")].concat()),
        (queue_pop("/q"), number(0).to_vec()),
        (key(16, "/q"), number(0).to_vec()),
        (list(5, &["/q"]), vec![1]),
        (barrier("/b", 1), STOP_WAITING.to_vec()),
        (barrier("/b", 2), STOP_WAITING.to_vec()),
        (get("/b"), string("2")),
        (
            vec![17],
            [number(6).to_vec(), ["/b", "/k", "/log", "/m1", "/m2", "init/"].map(string).concat()]
                .concat(),
        ),
    ]
}

#[tokio::test]
async fn each_request_has_its_reply() {
    let store = start();
    let mut raw = Raw::stranger(store.address()).await;
    for (request, reply) in conversation() {
        raw.asks(request, reply).await;
    }
    raw.settles().await;
}

#[tokio::test]
async fn requests_may_come_byte_by_byte() {
    let store = start();
    let mut raw = Raw::stranger(store.address()).await;
    for (request, reply) in conversation() {
        for byte in request {
            raw.0.write_u8(byte).await.unwrap();
        }
        raw.hears(reply).await;
    }
    raw.settles().await;
}

#[tokio::test]
async fn requests_may_come_all_at_once() {
    let store = start();
    let mut raw = Raw::stranger(store.address()).await;
    let (requests, replies): (Vec<_>, Vec<_>) = conversation().into_iter().unzip();
    raw.asks(requests.concat(), replies.concat()).await;
    raw.settles().await;
}

/// Wherever the stream is cut in two, the replies are the same.
#[tokio::test]
async fn requests_may_be_cut_anywhere() {
    let (requests, replies): (Vec<_>, Vec<_>) = conversation().into_iter().unzip();
    let (requests, replies) = (requests.concat(), replies.concat());
    for cut in (1..requests.len()).step_by(5) {
        let store = start();
        let mut raw = Raw::stranger(store.address()).await;
        raw.say(&requests[..cut]).await;
        tokio::task::yield_now().await;
        raw.asks(&requests[cut..], &replies).await;
    }
}

/// The example in the description of the wire.
#[tokio::test]
async fn captured_bytes_are_understood() {
    let store = start();
    let mut raw = Raw::connect(store.address()).await;
    raw.asks(b"\x04\x05\0\0\0\0\0\0\0init/\x01\0\0\0\0\0\0\0", b"\x01\0\0\0\0\0\0\0").await;
    raw.say(b"\x01\x02\0\0\0\0\0\0\0/k\x01\0\0\0\0\0\0\0v").await;
    raw.asks(b"\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k", STOP_WAITING).await;
}

#[tokio::test]
async fn each_store_has_keys_of_its_own() {
    let (one, other) = (start(), start());
    let mut raw = Raw::connect(one.address()).await;
    raw.say(set("/k", "v")).await;
    raw.settles().await;
    Raw::connect(other.address()).await.asks([7], number(0)).await;
}
