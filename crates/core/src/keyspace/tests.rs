use super::*;

/// What was written, who was released by it.
fn released(keyspace: &mut Keyspace<&'static str>) -> Vec<&'static str> {
    keyspace.take_released()
}

fn wait(keyspace: &mut Keyspace<&'static str>, keys: &[&str], who: &'static str) -> Option<Ticket> {
    keyspace.wait(keys.iter().map(|key| key.as_bytes()), who)
}

#[test]
fn a_number_is_decimal_digits() {
    let max = i64::MAX.to_string();
    let no_number = |text: &str| Err(AddError::NotANumber(text.to_owned()));
    let overflow = |before, amount| Err(AddError::Overflow { before, amount });
    let table: [(Option<&str>, i64, Result<i64, AddError>); 11] = [
        (None, 5, Ok(5)),
        (None, 0, Ok(0)),
        (None, -5, Ok(-5)),
        (Some("7"), 5, Ok(12)),
        (Some(" 7\n"), 5, Ok(12)),
        (Some("-7"), 5, Ok(-2)),
        (Some(""), 1, no_number("")),
        (Some("seven"), 1, no_number("seven")),
        (Some("7up"), 1, no_number("7up")),
        (Some(&max), 1, overflow(i64::MAX, 1)),
        (Some("-9"), i64::MIN, overflow(-9, i64::MIN)),
    ];
    for (before, amount, expected) in table {
        let mut keyspace = Keyspace::<()>::default();
        if let Some(before) = before {
            keyspace.set(b"n", Bytes::copy_from_slice(before.as_bytes()));
        }
        assert_eq!(keyspace.add(b"n", amount), expected, "{before:?} + {amount}");
        let after = expected.ok().map(|sum| sum.to_string());
        let stored = keyspace.get(b"n").map(|value| String::from_utf8_lossy(value).into_owned());
        assert_eq!(stored, after.or(before.map(str::to_owned)), "a refusal changes nothing");
    }
}

#[test]
fn compare_set_writes_only_over_what_was_expected() {
    let table = [
        (None, "", "new", Some("new")),
        (None, "old", "new", None),
        (Some("old"), "old", "new", Some("new")),
        (Some("old"), "other", "new", Some("old")),
        (Some("old"), "", "new", Some("old")),
        (Some(""), "", "new", Some("new")),
    ];
    for (before, expected, desired, after) in table {
        let mut keyspace = Keyspace::<()>::default();
        if let Some(before) = before {
            keyspace.set(b"k", before.into());
        }
        let got = keyspace.compare_set(b"k", expected.as_bytes(), desired.into()).cloned();
        assert_eq!(got, after.map(Bytes::from), "{before:?}, {expected:?}");
    }
}

#[test]
fn a_comparison_that_writes_nothing_releases_nobody() {
    let mut keyspace = Keyspace::default();
    wait(&mut keyspace, &["k"], "a");
    keyspace.compare_set(b"k", b"something", "else".into());
    assert!(released(&mut keyspace).is_empty());
    keyspace.compare_set(b"k", b"", "first".into());
    assert_eq!(released(&mut keyspace), ["a"]);
}

#[test]
fn what_was_read_stays_as_it_was_while_more_is_appended() {
    let mut keyspace = Keyspace::<()>::default();
    keyspace.append(b"log", b"one");
    let read = keyspace.get(b"log").cloned().unwrap();
    keyspace.append(b"log", b", two");
    keyspace.append(b"log", b", three");
    assert_eq!(
        (read, keyspace.get(b"log").cloned().unwrap()),
        ("one".into(), "one, two, three".into())
    );
}

#[test]
fn each_key_counts_once_it_was_written_also_if_it_is_gone_again() {
    let mut keyspace = Keyspace::default();
    wait(&mut keyspace, &["a", "b", "b"], "both");
    keyspace.set(b"a", "".into());
    assert!(keyspace.delete(b"a"));
    assert!(!keyspace.delete(b"a"));
    keyspace.append(b"b", b"");
    assert_eq!(released(&mut keyspace), ["both"]);
    assert!(wait(&mut keyspace, &["b"], "later").is_none(), "it exists");
    assert!(wait(&mut keyspace, &[], "for nothing").is_none());
    assert!(keyspace.waiters.is_empty());
}

#[test]
fn a_push_wakes_one_and_each_once() {
    let mut keyspace = Keyspace::default();
    let tickets = ["a", "b", "c"].map(|who| wait(&mut keyspace, &["q"], who).unwrap());
    keyspace.queue_push(b"q", "1".into());
    assert_eq!(released(&mut keyspace), ["a"]);
    keyspace.queue_push(b"q", "2".into());
    assert_eq!(released(&mut keyspace), ["b"]);
    assert_eq!(keyspace.queue_pop(b"q", Some(tickets[0])).unwrap(), "1");
    assert_eq!(keyspace.queue_pop(b"q", Some(tickets[1])).unwrap(), "2");
    assert_eq!(keyspace.queue_pop(b"q", None), None);
    assert!(released(&mut keyspace).is_empty());
    assert!(keyspace.cancel(tickets[2]).is_some());
    assert!(keyspace.waiters.is_empty() && keyspace.queues.is_empty());
}

#[test]
fn a_push_goes_past_those_who_wait_for_more() {
    let mut keyspace = Keyspace::default();
    wait(&mut keyspace, &["q", "x"], "more");
    wait(&mut keyspace, &["q"], "only");
    wait(&mut keyspace, &["q"], "next");
    keyspace.queue_push(b"q", "1".into());
    assert_eq!(released(&mut keyspace), ["only"]);
    keyspace.set(b"x", "".into());
    assert_eq!(released(&mut keyspace), ["more"], "it has seen the queue");
}

/// Whatever the one who was woken does instead of taking the element, the next is woken for it.
#[test]
fn a_wake_up_is_not_lost() {
    type Deed = fn(&mut Keyspace<&'static str>, Ticket);
    let deeds: [(&str, Deed); 3] = [
        ("vanishes", |keyspace, ticket| assert_eq!(keyspace.cancel(ticket), None)),
        ("does something else", |keyspace, ticket| keyspace.pass_on(ticket)),
        ("asks another queue", |keyspace, ticket| {
            assert_eq!(keyspace.queue_pop(b"other", Some(ticket)), None);
        }),
    ];
    for (what, deed) in deeds {
        let mut keyspace = Keyspace::default();
        let first = wait(&mut keyspace, &["q"], "first").unwrap();
        let second = wait(&mut keyspace, &["q"], "second").unwrap();
        keyspace.queue_push(b"q", "1".into());
        assert_eq!(released(&mut keyspace), ["first"]);
        deed(&mut keyspace, first);
        assert_eq!(released(&mut keyspace), ["second"], "who {what}");
        assert_eq!(keyspace.queue_pop(b"q", Some(second)).unwrap(), "1");
        assert!(keyspace.waiters.is_empty());
    }
}

#[test]
fn nobody_is_woken_for_an_element_that_another_took() {
    let mut keyspace = Keyspace::default();
    let first = wait(&mut keyspace, &["q"], "first").unwrap();
    wait(&mut keyspace, &["q"], "second").unwrap();
    keyspace.queue_push(b"q", "1".into());
    assert_eq!(keyspace.queue_pop(b"q", None).unwrap(), "1");
    assert_eq!(released(&mut keyspace), ["first"]);
    keyspace.pass_on(first);
    assert!(released(&mut keyspace).is_empty());
}

#[test]
fn a_barrier_opens_when_enough_have_come() {
    let mut keyspace = Keyspace::default();
    let first = keyspace.barrier(b"b", 3, "first").unwrap().unwrap();
    keyspace.barrier(b"b", 4, "patient").unwrap().unwrap();
    assert!(keyspace.cancel(first).is_some(), "it gives up, but it has come");
    assert_eq!(keyspace.barrier(b"b", 3, "third"), Ok(None));
    assert!(released(&mut keyspace).is_empty());
    assert_eq!(keyspace.barrier(b"b", 3, "fourth"), Ok(None));
    assert_eq!(released(&mut keyspace), ["patient"]);
    assert_eq!(keyspace.get(b"b").unwrap(), "4");
    keyspace.set(b"b", "full".into());
    assert!(keyspace.barrier(b"b", 3, "fifth").is_err());
    assert!(keyspace.waiters.is_empty());
}

#[test]
fn waiters_who_vanish_leave_nothing() {
    let mut keyspace = Keyspace::default();
    let mut tickets = Vec::new();
    for _ in 0..100 {
        tickets.extend(wait(&mut keyspace, &["a", "b", "c"], "w"));
        tickets.extend(keyspace.barrier(b"x", 1000, "w").unwrap());
    }
    for ticket in tickets {
        assert!(keyspace.cancel(ticket).is_some());
        assert!(keyspace.cancel(ticket).is_none());
    }
    assert!(keyspace.waiters.is_empty());
}
