//! Transactions: what a condition is and when it holds.

use bytes::Bytes;
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use rallypoint::proto::etcd as pb;

use crate::ask::{absent, compare, exists};
use crate::cases;
use crate::context::Context;
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: by_version, by_create_revision, by_mod_revision, by_value, by_lease,
            a_missing_key_counts_as_zero, a_missing_key_has_no_value, a_value_of_nothing,
            a_deleted_key_is_missing, no_conditions_hold, all_must_hold, a_range_must_hold_throughout,
            an_empty_range_counts_as_zero, an_empty_range_has_no_value, a_range_of_values,
            without_a_value_it_is_zero, a_value_of_another_kind_is_zero, an_inverted_range,
            large_and_negative_numbers;
        Fresh: a_range_to_the_end;
    ]
}

async fn holds(t: &Context, compare: pb::Compare) -> bool {
    let txn = pb::TxnRequest { compare: vec![compare], ..Default::default() };
    t.txn(txn).await.unwrap().succeeded
}

const RELATIONS: [CompareResult; 4] =
    [CompareResult::Equal, CompareResult::NotEqual, CompareResult::Greater, CompareResult::Less];

/// All four relations with something smaller than, the same as, and larger than what is stored.
async fn twelve(t: &Context, key: Bytes, [small, same, large]: [TargetUnion; 3]) {
    let expected = [
        (small, [false, true, true, false]),
        (same, [true, false, false, false]),
        (large, [false, true, false, true]),
    ];
    for (with, results) in expected {
        for (relation, result) in RELATIONS.into_iter().zip(results) {
            let condition = compare(key.clone(), relation, with.clone());
            assert_eq!(holds(t, condition).await, result, "stored {relation:?} {with:?}");
        }
    }
}

async fn by_version(t: Context) {
    t.set("a", "1").await;
    t.set("a", "2").await;
    twelve(&t, t.key("a"), [1, 2, 3].map(TargetUnion::Version)).await;
}

async fn by_create_revision(t: Context) {
    let made = t.set("a", "1").await;
    t.set("a", "2").await;
    twelve(&t, t.key("a"), [made - 1, made, made + 1].map(TargetUnion::CreateRevision)).await;
}

async fn by_mod_revision(t: Context) {
    t.set("a", "1").await;
    let made = t.set("a", "2").await;
    twelve(&t, t.key("a"), [made - 1, made, made + 1].map(TargetUnion::ModRevision)).await;
}

async fn by_value(t: Context) {
    t.set("a", "mm").await;
    twelve(&t, t.key("a"), ["m", "mm", "mma"].map(|v| TargetUnion::Value(v.into()))).await;
    // Bytes, not letters.
    twelve(&t, t.key("a"), ["Z", "mm", "~"].map(|v| TargetUnion::Value(v.into()))).await;
}

async fn by_lease(t: Context) {
    let lease = t.lease(60).await;
    t.set_on(lease, "a", "1").await;
    twelve(&t, t.key("a"), [lease - 1, lease, lease + 1].map(TargetUnion::Lease)).await;
    t.set("b", "1").await;
    twelve(&t, t.key("b"), [-1, 0, 1].map(TargetUnion::Lease)).await;
}

async fn a_missing_key_counts_as_zero(t: Context) {
    for kind in [
        TargetUnion::Version,
        TargetUnion::CreateRevision,
        TargetUnion::ModRevision,
        TargetUnion::Lease,
    ] {
        twelve(&t, t.key("none"), [-1, 0, 1].map(kind)).await;
    }
}

async fn a_missing_key_has_no_value(t: Context) {
    for relation in RELATIONS {
        for value in ["", "1"] {
            let condition = compare(t.key("none"), relation, TargetUnion::Value(value.into()));
            assert!(!holds(&t, condition).await, "{relation:?} {value:?}");
        }
    }
}

async fn a_value_of_nothing(t: Context) {
    t.set("a", "").await;
    let empty = |relation| compare(t.key("a"), relation, TargetUnion::Value(Bytes::new()));
    assert!(holds(&t, empty(CompareResult::Equal)).await);
    assert!(!holds(&t, empty(CompareResult::Greater)).await);
    assert!(!holds(&t, empty(CompareResult::NotEqual)).await);
}

async fn a_deleted_key_is_missing(t: Context) {
    t.set("a", "1").await;
    t.unset("a").await;
    assert!(holds(&t, absent(t.key("a"))).await);
    let equal = compare(t.key("a"), CompareResult::Equal, TargetUnion::ModRevision(0));
    assert!(holds(&t, equal).await);
}

async fn no_conditions_hold(t: Context) {
    let answer = t.txn(pb::TxnRequest::default()).await.unwrap();
    assert!(answer.succeeded);
    assert!(answer.responses.is_empty());
}

async fn all_must_hold(t: Context) {
    t.set("a", "1").await;
    let both =
        |second| pb::TxnRequest { compare: vec![exists(t.key("a")), second], ..Default::default() };
    assert!(t.txn(both(absent(t.key("b")))).await.unwrap().succeeded);
    assert!(!t.txn(both(exists(t.key("b")))).await.unwrap().succeeded);
}

async fn a_range_must_hold_throughout(t: Context) {
    let first = t.set("a", "x").await;
    t.set("b", "x").await;
    t.set("c", "x").await;
    let over = |relation, with| pb::Compare {
        range_end: t.key("d"),
        ..compare(t.key("a"), relation, with)
    };
    use TargetUnion::{CreateRevision, Version};
    assert!(holds(&t, over(CompareResult::Equal, Version(1))).await);
    assert!(holds(&t, over(CompareResult::Greater, CreateRevision(first - 1))).await);
    assert!(!holds(&t, over(CompareResult::Greater, CreateRevision(first))).await);
    t.set("b", "x").await;
    assert!(!holds(&t, over(CompareResult::Equal, Version(1))).await);
    // One key equal is enough to break "not equal" too.
    assert!(!holds(&t, over(CompareResult::NotEqual, Version(1))).await);
}

async fn an_empty_range_counts_as_zero(t: Context) {
    let over = |version| pb::Compare {
        range_end: t.key("z"),
        ..compare(t.key("a"), CompareResult::Equal, TargetUnion::Version(version))
    };
    assert!(holds(&t, over(0)).await);
    assert!(!holds(&t, over(1)).await);
}

async fn an_empty_range_has_no_value(t: Context) {
    for relation in RELATIONS {
        let condition = pb::Compare {
            range_end: t.key("z"),
            ..compare(t.key("a"), relation, TargetUnion::Value("1".into()))
        };
        assert!(!holds(&t, condition).await, "{relation:?}");
    }
}

async fn a_range_of_values(t: Context) {
    t.set("a", "same").await;
    t.set("b", "same").await;
    let over = |value: &'static str| pb::Compare {
        range_end: t.key("z"),
        ..compare(t.key("a"), CompareResult::Equal, TargetUnion::Value(value.into()))
    };
    assert!(holds(&t, over("same")).await);
    assert!(!holds(&t, over("other")).await);
}

async fn without_a_value_it_is_zero(t: Context) {
    t.set("a", "").await;
    let bare = |target: CompareTarget, result: CompareResult, key| pb::Compare {
        result: result.into(),
        target: target.into(),
        key,
        target_union: None,
        range_end: Bytes::new(),
    };
    let (equal, greater) = (CompareResult::Equal, CompareResult::Greater);
    assert!(holds(&t, bare(CompareTarget::Version, greater, t.key("a"))).await);
    assert!(holds(&t, bare(CompareTarget::Mod, equal, t.key("none"))).await);
    assert!(holds(&t, bare(CompareTarget::Lease, equal, t.key("a"))).await);
    assert!(holds(&t, bare(CompareTarget::Value, equal, t.key("a"))).await);
}

async fn a_value_of_another_kind_is_zero(t: Context) {
    t.set("a", "1").await;
    // The target says version, the value given is a revision: the version is compared with 0.
    let condition = |result: CompareResult| pb::Compare {
        target: CompareTarget::Version.into(),
        ..compare(t.key("a"), result, TargetUnion::ModRevision(1))
    };
    assert!(!holds(&t, condition(CompareResult::Equal)).await);
    assert!(holds(&t, condition(CompareResult::Greater)).await);
}

async fn an_inverted_range(t: Context) {
    t.set("a", "1").await;
    t.set("b", "1").await;
    let condition = pb::Compare { range_end: t.key("a"), ..absent(t.key("b")) };
    assert!(holds(&t, condition).await);
}

async fn large_and_negative_numbers(t: Context) {
    t.set("a", "1").await;
    twelve(&t, t.key("a"), [i64::MIN, 1, i64::MAX].map(TargetUnion::Version)).await;
}

async fn a_range_to_the_end(t: Context) {
    t.set("a", "1").await;
    t.put(crate::ask::put(Bytes::from_static(b"\xff"), "")).await.unwrap();
    let to_end = |version| pb::Compare {
        range_end: Bytes::from_static(b"\0"),
        ..compare(t.key("a"), CompareResult::Equal, TargetUnion::Version(version))
    };
    assert!(holds(&t, to_end(1)).await);
    t.put(crate::ask::put(Bytes::from_static(b"\xff"), "")).await.unwrap();
    assert!(!holds(&t, to_end(1)).await);
}
