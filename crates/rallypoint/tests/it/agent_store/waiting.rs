//! Those who wait: who is released when, who gives up, who vanishes.

use super::raw::{
    CANCEL_WAIT, Raw, STOP_WAITING, WAIT_CANCELED, add, barrier, get, number, ping, queue_pop,
    queue_push, request, set, string, wait,
};
use super::{has_clients, start};

/// Every request that writes.
#[tokio::test]
async fn whatever_writes_releases() {
    let store = start();
    let mut writer = Raw::connect(store.address()).await;
    let key = string("/k");
    let writes = [
        (set("/k", "1"), vec![]),
        (request(2, &[&key, &string(""), &string("1")]), string("1")),
        (add("/k", 1), number(1).to_vec()),
        (request(9, &[&key, &string("1")]), vec![]),
        (request(11, &[&number(1), &key, &string("1")]), vec![]),
        (barrier("/k", 1), vec![0]),
    ];
    for (write, reply) in writes {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(wait(&["/k", "/other"])).await;
        raw.settles().await;
        writer.say(set("/other", "")).await;
        writer.settles().await;
        raw.settles().await;
        writer.asks(write, reply).await;
        raw.hears(STOP_WAITING).await;
        writer.asks(request(8, &[&key]), number(1)).await;
        writer.asks(request(8, &[&string("/other")]), number(1)).await;
    }
}

#[tokio::test]
async fn a_comparison_that_fails_releases_no_waiter() {
    let store = start();
    let (mut raw, mut other) =
        (Raw::connect(store.address()).await, Raw::connect(store.address()).await);
    raw.say(wait(&["/k"])).await;
    raw.settles().await;
    other.asks(request(2, &[&string("/k"), &string("x"), &string("y")]), string("x")).await;
    raw.hears_nothing().await;
}

#[tokio::test]
async fn giving_up_has_one_answer() {
    let store = start();
    let mut writer = Raw::connect(store.address()).await;
    let mut raw = Raw::connect(store.address()).await;
    raw.asks(CANCEL_WAIT, WAIT_CANCELED).await;
    for wait in [wait(&["/never"]), barrier("/b", 1000)] {
        raw.say(wait).await;
        raw.asks(CANCEL_WAIT, WAIT_CANCELED).await;
        writer.say(set("/never", "")).await;
        writer.settles().await;
        raw.settles().await;
        writer.asks(request(8, &[&string("/never")]), number(1)).await;
    }
    // The race: it is over just before it is given up.
    raw.say(wait(&["/k"])).await;
    raw.settles().await;
    writer.say(set("/k", "")).await;
    writer.settles().await;
    raw.asks(CANCEL_WAIT, [STOP_WAITING, WAIT_CANCELED].concat()).await;
    raw.settles().await;
}

/// On one connection the order is plain, whatever comes in one piece.
#[tokio::test]
async fn a_release_comes_before_what_follows_it() {
    let store = start();
    let mut raw = Raw::connect(store.address()).await;
    let all = [wait(&["/k"]), set("/k", ""), CANCEL_WAIT.to_vec(), ping(9)].concat();
    raw.asks(all, [STOP_WAITING, WAIT_CANCELED, &9_u32.to_le_bytes()].concat()).await;
}

/// Releases and cancellations cross, many times; each wait has one answer and each cancellation one.
#[tokio::test]
async fn races_leave_no_doubt() {
    let store = start();
    let mut writer = Raw::connect(store.address()).await;
    let mut raw = Raw::connect(store.address()).await;
    for round in 0..300 {
        let key = format!("/k{round}");
        raw.say(wait(&[&key])).await;
        let (cancel, set) = (CANCEL_WAIT, set(&key, ""));
        tokio::join!(raw.say(cancel), writer.say(&set));
        let mut first = [0];
        tokio::io::AsyncReadExt::read_exact(&mut raw.0, &mut first).await.unwrap();
        if first == STOP_WAITING {
            raw.hears(WAIT_CANCELED).await;
        }
        raw.settles().await;
    }
}

#[tokio::test]
async fn a_second_wait_before_the_first_is_over_is_refused() {
    let store = start();
    for second in [wait(&["/other"]), barrier("/b", 2)] {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(wait(&["/never"])).await;
        raw.say(second).await;
        raw.is_closed().await;
    }
    has_clients(&store, 0).await;
}

#[tokio::test]
async fn other_requests_are_answered_while_one_waits() {
    let store = start();
    let mut raw = Raw::connect(store.address()).await;
    raw.say(wait(&["/k"])).await;
    raw.asks(add("/n", 1), number(1)).await;
    raw.asks(add("/k", 1), [number(1).to_vec(), STOP_WAITING.to_vec()].concat()).await;
}

#[tokio::test]
async fn a_push_wakes_one_after_the_other() {
    let store = start();
    let mut pusher = Raw::connect(store.address()).await;
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(wait(&["/q"])).await;
        raw.settles().await;
        waiters.push(raw);
    }
    for round in ["a", "b", "c"] {
        pusher.say(queue_push("/q", round)).await;
        let mut woken = waiters.remove(0);
        woken.hears(STOP_WAITING).await;
        for raw in &mut waiters {
            raw.settles().await;
        }
        woken.asks(queue_pop("/q"), [number(1).to_vec(), string(round)].concat()).await;
    }
}

/// A client that was woken for an element and does not take it, for whatever reason, passes the wake-up on.
#[tokio::test]
async fn no_element_is_left_while_somebody_waits_for_it() {
    let store = start();
    let mut pusher = Raw::connect(store.address()).await;
    let mut waiters = Vec::new();
    for _ in 0..4 {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(wait(&["/q"])).await;
        raw.settles().await;
        waiters.push(raw);
    }
    let [mut vanishes, mut gives_up, mut asks, mut takes] =
        <[Raw; 4]>::try_from(waiters).ok().unwrap();
    pusher.say(queue_push("/q", "x")).await;
    vanishes.hears(STOP_WAITING).await;
    drop(vanishes);
    gives_up.hears(STOP_WAITING).await;
    gives_up.asks(CANCEL_WAIT, WAIT_CANCELED).await;
    asks.hears(STOP_WAITING).await;
    asks.asks(get("/other"), string("")).await;
    takes.hears(STOP_WAITING).await;
    takes.asks(queue_pop("/q"), [number(1).to_vec(), string("x")].concat()).await;
}

/// A client that was woken for an element and is then disconnected must not take the wake-up with it.
#[tokio::test]
async fn a_wake_up_is_passed_on_by_who_is_turned_away() {
    for refused in [add("/word", 1), barrier("/word", 2), vec![99]] {
        let store = start();
        let mut good = Raw::connect(store.address()).await;
        good.say(set("/word", "seven")).await;
        good.settles().await;
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let mut client = Raw::connect(store.address()).await;
            client.settles().await;
            client.say(wait(&["/queue"])).await;
            client.settles().await;
            waiting.push(client);
        }
        let (mut second, mut first) = (waiting.remove(1), waiting.remove(0));
        good.say(queue_push("/queue", "element")).await;
        first.hears(STOP_WAITING).await;
        first.say(refused).await;
        first.is_closed().await;
        second.hears(STOP_WAITING).await;
        // And everyone goes on.
        drop(second);
        good.settles().await;
    }
}

#[tokio::test]
async fn a_barrier_opens_for_all_at_once() {
    let store = start();
    let mut members = Vec::new();
    for _ in 0..199 {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(barrier("/b", 200)).await;
        raw.settles().await;
        members.push(raw);
    }
    members[0].hears_nothing().await;
    // A client that gave up still counts.
    members[7].asks(CANCEL_WAIT, WAIT_CANCELED).await;
    let mut left = members.remove(7);
    Raw::connect(store.address()).await.asks(barrier("/b", 200), STOP_WAITING).await;
    for raw in &mut members {
        raw.hears(STOP_WAITING).await;
    }
    left.asks(get("/b"), string("200")).await;
}

#[tokio::test]
async fn waiters_who_vanish_are_forgotten() {
    let store = start();
    let mut writer = Raw::connect(store.address()).await;
    for round in 0..20 {
        let mut waiters = Vec::new();
        for _ in 0..10 {
            let mut raw = Raw::connect(store.address()).await;
            raw.say(wait(&["/a", "/b", &format!("/{round}")])).await;
            raw.settles().await;
            waiters.push(raw);
        }
        drop(waiters);
        has_clients(&store, 1).await;
    }
    writer.say(set("/a", "")).await;
    writer.settles().await;
    writer.asks([7], number(1)).await;
}
