//! Reading: limits, filters, orders, and what they do to each other.

use pb::range_request::{SortOrder, SortTarget};
use rallypoint::proto::etcd as pb;

use crate::cases;
use crate::context::Context;
use crate::differences;
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: a_limit_cuts_and_says_so, a_limit_that_is_just_enough, a_limit_that_is_too_large,
            a_limit_of_nothing_is_none, a_limit_at_an_old_revision, count_only, count_only_with_a_limit,
            count_only_with_a_filter, keys_only, keys_only_and_count_only, sort_by_key,
            sort_by_version, sort_by_create_revision, sort_by_mod_revision, sort_by_value,
            a_target_without_an_order_ascends,
            a_target_without_an_order_is_limited_first, an_order_without_a_target_is_by_key,
            sort_then_limit, min_mod_revision, max_mod_revision, min_create_revision,
            max_create_revision, filters_together, filter_then_limit, filter_sort_and_limit,
            negative_bounds, the_count_ignores_filters, sort_without_values, sort_one_key;
    ]
}

/// Five keys whose order differs by every measure. Gives the revisions of their creation.
///
/// | key | version | created | changed | value |
/// |-----|---------|---------|---------|-------|
/// | a   | 3       | 2nd     | 4th     | m     |
/// | b   | 1       | 5th     | 3rd     | z     |
/// | c   | 5       | 1st     | 5th     | k     |
/// | d   | 2       | 4th     | 2nd     | a     |
/// | e   | 4       | 3rd     | 1st     | q     |
async fn five(t: &Context) -> [i64; 5] {
    let mut created = [0; 5];
    for (index, name) in ["c", "a", "e", "d"].into_iter().enumerate() {
        created[index] = t.set(name, "").await;
    }
    for name in ["e", "e", "c", "c", "c", "a"] {
        t.set(name, "").await;
    }
    t.set("e", "q").await;
    t.set("d", "a").await;
    created[4] = t.set("b", "z").await;
    t.set("a", "m").await;
    t.set("c", "k").await;
    created
}

async fn names(t: &Context, request: pb::RangeRequest) -> Vec<String> {
    t.names(&t.range(request).await.unwrap().kvs)
}

fn sorted(t: &Context, target: SortTarget, order: SortOrder) -> pb::RangeRequest {
    pb::RangeRequest { sort_target: target.into(), sort_order: order.into(), ..t.all() }
}

async fn a_limit_cuts_and_says_so(t: Context) {
    five(&t).await;
    let answer = t.range(pb::RangeRequest { limit: 2, ..t.all() }).await.unwrap();
    assert_eq!(t.names(&answer.kvs), ["a", "b"]);
    assert_eq!((answer.more, answer.count), (true, 5));
}

async fn a_limit_that_is_just_enough(t: Context) {
    five(&t).await;
    let answer = t.range(pb::RangeRequest { limit: 5, ..t.all() }).await.unwrap();
    assert_eq!((answer.kvs.len(), answer.more, answer.count), (5, false, 5));
    let answer = t.range(pb::RangeRequest { limit: 4, ..t.all() }).await.unwrap();
    assert_eq!((answer.kvs.len(), answer.more, answer.count), (4, true, 5));
}

async fn a_limit_that_is_too_large(t: Context) {
    five(&t).await;
    // Not the largest number of all: etcd adds one to it.
    let answer = t.range(pb::RangeRequest { limit: i64::MAX - 1, ..t.all() }).await.unwrap();
    assert_eq!((answer.kvs.len(), answer.more, answer.count), (5, false, 5));
}

async fn a_limit_of_nothing_is_none(t: Context) {
    five(&t).await;
    for limit in [0, -1, -7] {
        let answer = t.range(pb::RangeRequest { limit, ..t.all() }).await.unwrap();
        assert_eq!((answer.kvs.len(), answer.more, answer.count), (5, false, 5), "limit {limit}");
    }
}

async fn a_limit_at_an_old_revision(t: Context) {
    let created = five(&t).await;
    let request = pb::RangeRequest { limit: 1, revision: created[1], ..t.all() };
    let answer = t.range(request).await.unwrap();
    assert_eq!(t.names(&answer.kvs), ["a"]);
    assert_eq!((answer.more, answer.count), (true, 2));
}

async fn count_only(t: Context) {
    five(&t).await;
    let answer = t.range(pb::RangeRequest { count_only: true, ..t.all() }).await.unwrap();
    assert_eq!((answer.kvs.len(), answer.more, answer.count), (0, false, 5));
}

async fn count_only_with_a_limit(t: Context) {
    five(&t).await;
    let request = pb::RangeRequest { count_only: true, limit: 2, ..t.all() };
    let answer = t.range(request).await.unwrap();
    assert_eq!((answer.kvs.len(), answer.more, answer.count), (0, false, 5));
}

async fn count_only_with_a_filter(t: Context) {
    let created = five(&t).await;
    let request = pb::RangeRequest { count_only: true, min_create_revision: created[4], ..t.all() };
    let answer = t.range(request).await.unwrap();
    assert_eq!((answer.kvs.len(), answer.more, answer.count), (0, false, 5));
}

async fn keys_only(t: Context) {
    let lease = t.lease(60).await;
    t.set("a", "first").await;
    t.set_on(lease, "a", "second").await;
    let full = t.pair("a").await.unwrap();
    let answer = t.range(pb::RangeRequest { keys_only: true, ..t.all() }).await.unwrap();
    let lease = if differences::of(t.arm).keys_alone_have_leases { lease } else { 0 };
    assert_eq!(answer.kvs, [pb::KeyValue { value: Default::default(), lease, ..full }]);
    assert_eq!((answer.kvs[0].version, answer.count), (2, 1));
}

async fn keys_only_and_count_only(t: Context) {
    five(&t).await;
    let request = pb::RangeRequest { keys_only: true, count_only: true, ..t.all() };
    let answer = t.range(request).await.unwrap();
    assert_eq!((answer.kvs.len(), answer.count), (0, 5));
}

async fn both_ways(t: &Context, target: SortTarget, ascending: [&str; 5]) {
    five(t).await;
    assert_eq!(names(t, sorted(t, target, SortOrder::Ascend)).await, ascending);
    let mut descending = ascending;
    descending.reverse();
    assert_eq!(names(t, sorted(t, target, SortOrder::Descend)).await, descending);
}

async fn sort_by_key(t: Context) {
    both_ways(&t, SortTarget::Key, ["a", "b", "c", "d", "e"]).await;
}

async fn sort_by_version(t: Context) {
    both_ways(&t, SortTarget::Version, ["b", "d", "a", "e", "c"]).await;
}

async fn sort_by_create_revision(t: Context) {
    both_ways(&t, SortTarget::Create, ["c", "a", "e", "d", "b"]).await;
}

async fn sort_by_mod_revision(t: Context) {
    both_ways(&t, SortTarget::Mod, ["e", "d", "b", "a", "c"]).await;
}

async fn sort_by_value(t: Context) {
    both_ways(&t, SortTarget::Value, ["d", "c", "a", "e", "b"]).await;
}

async fn a_target_without_an_order_ascends(t: Context) {
    five(&t).await;
    let by_value = sorted(&t, SortTarget::Value, SortOrder::None);
    assert_eq!(names(&t, by_value).await, ["d", "c", "a", "e", "b"]);
    let by_mod = sorted(&t, SortTarget::Mod, SortOrder::None);
    assert_eq!(names(&t, by_mod).await, ["e", "d", "b", "a", "c"]);
}

async fn an_order_without_a_target_is_by_key(t: Context) {
    five(&t).await;
    let request = pb::RangeRequest { sort_order: SortOrder::Descend.into(), ..t.all() };
    assert_eq!(names(&t, request).await, ["e", "d", "c", "b", "a"]);
}

async fn a_target_without_an_order_is_limited_first(t: Context) {
    five(&t).await;
    // etcd sorts by the target, but does not read more keys for it than the limit and one: here the
    // values of a, b and c, not the smallest of all, which is d's.
    let request = pb::RangeRequest { limit: 2, ..sorted(&t, SortTarget::Value, SortOrder::None) };
    let answer = t.range(request.clone()).await.unwrap();
    assert_eq!(t.names(&answer.kvs), ["c", "a"]);
    assert_eq!((answer.more, answer.count), (true, 5));
    // With a filter, any filter, it reads them all.
    let request = pb::RangeRequest { min_mod_revision: 1, ..request };
    assert_eq!(names(&t, request).await, ["d", "c"]);
}

async fn sort_then_limit(t: Context) {
    five(&t).await;
    let last = pb::RangeRequest { limit: 1, ..sorted(&t, SortTarget::Mod, SortOrder::Descend) };
    let answer = t.range(last).await.unwrap();
    assert_eq!(t.names(&answer.kvs), ["c"]);
    assert_eq!((answer.more, answer.count), (true, 5));
    let last = pb::RangeRequest { limit: 2, ..sorted(&t, SortTarget::Key, SortOrder::Descend) };
    assert_eq!(names(&t, last).await, ["e", "d"]);
    let first = pb::RangeRequest { limit: 2, ..sorted(&t, SortTarget::Key, SortOrder::Ascend) };
    assert_eq!(names(&t, first).await, ["a", "b"]);
}

async fn min_mod_revision(t: Context) {
    five(&t).await;
    let bound = t.pair("b").await.unwrap().mod_revision;
    let request = pb::RangeRequest { min_mod_revision: bound, ..t.all() };
    assert_eq!(names(&t, request).await, ["a", "b", "c"]);
}

async fn max_mod_revision(t: Context) {
    five(&t).await;
    let bound = t.pair("b").await.unwrap().mod_revision;
    let request = pb::RangeRequest { max_mod_revision: bound, ..t.all() };
    assert_eq!(names(&t, request).await, ["b", "d", "e"]);
}

async fn min_create_revision(t: Context) {
    let created = five(&t).await;
    let request = pb::RangeRequest { min_create_revision: created[2], ..t.all() };
    assert_eq!(names(&t, request).await, ["b", "d", "e"]);
}

async fn max_create_revision(t: Context) {
    let created = five(&t).await;
    let request = pb::RangeRequest { max_create_revision: created[2], ..t.all() };
    assert_eq!(names(&t, request).await, ["a", "c", "e"]);
}

async fn filters_together(t: Context) {
    let created = five(&t).await;
    let request = pb::RangeRequest {
        min_create_revision: created[1],
        max_create_revision: created[3],
        min_mod_revision: t.pair("d").await.unwrap().mod_revision,
        max_mod_revision: t.pair("b").await.unwrap().mod_revision,
        ..t.all()
    };
    assert_eq!(names(&t, request).await, ["d"]);
}

async fn filter_then_limit(t: Context) {
    let created = five(&t).await;
    let request = pb::RangeRequest { min_create_revision: created[3], ..t.all() };
    let answer = t.range(pb::RangeRequest { limit: 1, ..request.clone() }).await.unwrap();
    assert_eq!(t.names(&answer.kvs), ["b"]);
    assert_eq!((answer.more, answer.count), (true, 5));
    // What the filter took does not count as more.
    let answer = t.range(pb::RangeRequest { limit: 2, ..request }).await.unwrap();
    assert_eq!(t.names(&answer.kvs), ["b", "d"]);
    assert_eq!((answer.more, answer.count), (false, 5));
}

async fn filter_sort_and_limit(t: Context) {
    let created = five(&t).await;
    let request = pb::RangeRequest {
        max_create_revision: created[3],
        limit: 2,
        ..sorted(&t, SortTarget::Value, SortOrder::Descend)
    };
    let answer = t.range(request).await.unwrap();
    assert_eq!(t.names(&answer.kvs), ["e", "a"]);
    assert_eq!((answer.more, answer.count), (true, 5));
}

async fn negative_bounds(t: Context) {
    five(&t).await;
    // Nothing is as old as that, and everything is newer.
    for request in [
        pb::RangeRequest { max_mod_revision: -1, ..t.all() },
        pb::RangeRequest { max_create_revision: -1, ..t.all() },
    ] {
        let answer = t.range(request).await.unwrap();
        assert_eq!((answer.kvs.len(), answer.count, answer.more), (0, 5, false));
    }
    for request in [
        pb::RangeRequest { min_mod_revision: -1, ..t.all() },
        pb::RangeRequest { min_create_revision: -1, ..t.all() },
    ] {
        assert_eq!(t.range(request).await.unwrap().kvs.len(), 5);
    }
}

async fn the_count_ignores_filters(t: Context) {
    five(&t).await;
    let request = pb::RangeRequest { min_mod_revision: i64::MAX, ..t.all() };
    let answer = t.range(request).await.unwrap();
    assert_eq!((answer.kvs.len(), answer.count, answer.more), (0, 5, false));
}

async fn sort_without_values(t: Context) {
    five(&t).await;
    // The values are left out after they have been sorted by.
    let request =
        pb::RangeRequest { keys_only: true, ..sorted(&t, SortTarget::Value, SortOrder::Ascend) };
    let answer = t.range(request).await.unwrap();
    assert_eq!(t.names(&answer.kvs), ["d", "c", "a", "e", "b"]);
    assert!(answer.kvs.iter().all(|kv| kv.value.is_empty()));
}

async fn sort_one_key(t: Context) {
    five(&t).await;
    let request = pb::RangeRequest {
        range_end: Default::default(),
        key: t.key("c"),
        ..sorted(&t, SortTarget::Version, SortOrder::Descend)
    };
    assert_eq!(names(&t, request).await, ["c"]);
}
