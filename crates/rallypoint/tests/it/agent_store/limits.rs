//! Limits: what is exactly as large as it may be, and what is one larger.

use super::raw::{Raw, add, get, list, number, request, set, string};
use super::start;

const MAX_KEY: usize = 8192;
const MAX_VALUE: usize = 8 << 20;
const MAX_KEYS: usize = 131_072;

#[tokio::test]
async fn a_key_may_have_8192_bytes() {
    let store = start();
    let mut raw = Raw::connect(store.address()).await;
    raw.asks(add(&"k".repeat(MAX_KEY), 1), number(1)).await;
    raw.asks([7], number(1)).await;
    for opcode in [1, 2, 3, 4, 8, 9, 14, 15, 16, 18] {
        let mut raw = Raw::connect(store.address()).await;
        // Its length is enough; the store does not wait for the rest.
        raw.say(request(opcode, &[&number(MAX_KEY as i64 + 1)])).await;
        raw.is_closed().await;
    }
    for opcode in [5, 6, 10, 11] {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(request(opcode, &[&number(1), &number(MAX_KEY as i64 + 1)])).await;
        raw.is_closed().await;
    }
    raw.asks([7], number(1)).await;
}

#[tokio::test]
async fn a_value_may_have_8_mebibytes() {
    let store = start();
    let mut raw = Raw::connect(store.address()).await;
    let value: Vec<u8> = (0..MAX_VALUE).map(|place| place as u8 ^ (place >> 8) as u8).collect();
    raw.say(set("/large", &value)).await;
    raw.asks(get("/large"), string(&value)).await;
    let too_long = number(MAX_VALUE as i64 + 1);
    for opcode in [1, 2, 9, 14] {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(request(opcode, &[&string("/k"), &too_long])).await;
        raw.is_closed().await;
    }
    let desired = request(2, &[&string("/k"), &string(""), &too_long]);
    let multi = request(11, &[&number(2), &string("/a"), &string("1"), &string("/b"), &too_long]);
    for request in [desired, multi] {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(request).await;
        raw.is_closed().await;
    }
    raw.asks([7], number(1)).await;
}

#[tokio::test]
async fn a_request_may_have_131072_keys() {
    let store = start();
    let mut raw = Raw::connect(store.address()).await;
    raw.say(set("/k", "v")).await;
    let keys = vec!["/k"; MAX_KEYS];
    raw.asks(list(5, &keys), [0]).await;
    raw.asks(list(6, &keys), [0]).await;
    raw.asks(list(10, &keys), string("v").repeat(MAX_KEYS)).await;
    let pairs = [string("/k"), string("w")].concat().repeat(MAX_KEYS);
    raw.say(request(11, &[&number(MAX_KEYS as i64), &pairs])).await;
    raw.asks(get("/k"), string("w")).await;
    for opcode in [5, 6, 10, 11] {
        for count in [MAX_KEYS as i64 + 1, i64::MAX, -1] {
            let mut raw = Raw::connect(store.address()).await;
            raw.say(request(opcode, &[&number(count)])).await;
            raw.is_closed().await;
        }
    }
}

#[tokio::test]
async fn what_is_no_number_ends_the_connection_that_adds_to_it() {
    let store = start();
    let mut other = Raw::connect(store.address()).await;
    other.say(set("/text", "seven")).await;
    other.say(set("/most", i64::MAX.to_string())).await;
    other.settles().await;
    let barrier = request(18, &[&string("/text"), &number(3)]);
    for refused in [add("/text", 1), add("/most", 1), barrier] {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(refused).await;
        raw.is_closed().await;
    }
    other.asks(get("/text"), string("seven")).await;
    other.asks(add("/most", 0), number(i64::MAX)).await;
}
