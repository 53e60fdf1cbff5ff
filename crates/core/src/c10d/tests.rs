use super::*;

/// Who was released since this was last asked.
fn released(state: &mut StoreState<&'static str>) -> Vec<&'static str> {
    state.take_released()
}

fn wait(state: &mut StoreState<&'static str>, keys: &[&str], who: &'static str) -> Option<Ticket> {
    state.wait(keys.iter().map(|key| key.as_bytes()), who)
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
        let mut state = StoreState::<()>::default();
        if let Some(before) = before {
            state.set(b"n", Bytes::copy_from_slice(before.as_bytes()));
        }
        assert_eq!(state.add(b"n", amount), expected, "{before:?} + {amount}");
        let after = expected.ok().map(|sum| sum.to_string());
        let stored = state.get(b"n").map(|value| String::from_utf8_lossy(value).into_owned());
        assert_eq!(
            stored,
            after.or_else(|| before.map(str::to_owned)),
            "a refusal changes nothing"
        );
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
        let mut state = StoreState::<()>::default();
        if let Some(before) = before {
            state.set(b"k", before.into());
        }
        let got = state.compare_set(b"k", expected.as_bytes(), desired.into()).cloned();
        assert_eq!(got, after.map(Bytes::from), "{before:?}, {expected:?}");
    }
}

#[test]
fn a_comparison_that_writes_nothing_releases_no_waiter() {
    let mut state = StoreState::default();
    wait(&mut state, &["k"], "a");
    state.compare_set(b"k", b"something", "else".into());
    assert!(released(&mut state).is_empty());
    state.compare_set(b"k", b"", "first".into());
    assert_eq!(released(&mut state), ["a"]);
}

#[test]
fn what_was_read_stays_as_it_was_while_more_is_appended() {
    let mut state = StoreState::<()>::default();
    state.append(b"log", b"one");
    let read = state.get(b"log").cloned().unwrap();
    state.append(b"log", b", two");
    state.append(b"log", b", three");
    assert_eq!(
        (read, state.get(b"log").cloned().unwrap()),
        ("one".into(), "one, two, three".into())
    );
}

#[test]
fn each_key_counts_once_it_was_written_also_if_it_is_gone_again() {
    let mut state = StoreState::default();
    wait(&mut state, &["a", "b", "b"], "both");
    state.set(b"a", "".into());
    assert!(state.delete(b"a"));
    assert!(!state.delete(b"a"));
    state.append(b"b", b"");
    assert_eq!(released(&mut state), ["both"]);
    assert!(wait(&mut state, &["b"], "later").is_none(), "it exists");
    assert!(wait(&mut state, &[], "for nothing").is_none());
    assert!(state.waiters.is_empty());
}

#[test]
fn a_push_wakes_one_and_each_once() {
    let mut state = StoreState::default();
    let tickets = ["a", "b", "c"].map(|who| wait(&mut state, &["q"], who).unwrap());
    state.queue_push(b"q", "1".into());
    assert_eq!(released(&mut state), ["a"]);
    state.queue_push(b"q", "2".into());
    assert_eq!(released(&mut state), ["b"]);
    assert_eq!(state.queue_pop(b"q", Some(tickets[0])).unwrap(), "1");
    assert_eq!(state.queue_pop(b"q", Some(tickets[1])).unwrap(), "2");
    assert_eq!(state.queue_pop(b"q", None), None);
    assert!(released(&mut state).is_empty());
    assert!(state.cancel(tickets[2]).is_some());
    assert!(state.waiters.is_empty() && state.queues.is_empty());
}

#[test]
fn a_push_goes_past_those_who_wait_for_more() {
    let mut state = StoreState::default();
    wait(&mut state, &["q", "x"], "more");
    wait(&mut state, &["q"], "only");
    wait(&mut state, &["q"], "next");
    state.queue_push(b"q", "1".into());
    assert_eq!(released(&mut state), ["only"]);
    state.set(b"x", "".into());
    assert_eq!(released(&mut state), ["more"], "it has seen the queue");
}

/// Whatever the one who was woken does instead of taking the element, the next is woken for it.
#[test]
fn a_wake_up_is_not_lost() {
    type Deed = fn(&mut StoreState<&'static str>, Ticket);
    let deeds: [(&str, Deed); 3] = [
        ("vanishes", |state, ticket| assert_eq!(state.cancel(ticket), None)),
        ("does something else", |state, ticket| state.pass_on(ticket)),
        ("asks another queue", |state, ticket| {
            assert_eq!(state.queue_pop(b"other", Some(ticket)), None);
        }),
    ];
    for (what, deed) in deeds {
        let mut state = StoreState::default();
        let first = wait(&mut state, &["q"], "first").unwrap();
        let second = wait(&mut state, &["q"], "second").unwrap();
        state.queue_push(b"q", "1".into());
        assert_eq!(released(&mut state), ["first"]);
        deed(&mut state, first);
        assert_eq!(released(&mut state), ["second"], "who {what}");
        assert_eq!(state.queue_pop(b"q", Some(second)).unwrap(), "1");
        assert!(state.waiters.is_empty());
    }
}

#[test]
fn no_waiter_is_woken_for_an_element_that_another_client_took() {
    let mut state = StoreState::default();
    let first = wait(&mut state, &["q"], "first").unwrap();
    wait(&mut state, &["q"], "second").unwrap();
    state.queue_push(b"q", "1".into());
    assert_eq!(state.queue_pop(b"q", None).unwrap(), "1");
    assert_eq!(released(&mut state), ["first"]);
    state.pass_on(first);
    assert!(released(&mut state).is_empty());
}

#[test]
fn a_barrier_opens_when_enough_have_come() {
    let mut state = StoreState::default();
    let first = state.barrier(b"b", 3, "first").unwrap().unwrap();
    state.barrier(b"b", 4, "patient").unwrap().unwrap();
    assert!(state.cancel(first).is_some(), "it gives up, but it has come");
    assert_eq!(state.barrier(b"b", 3, "third"), Ok(None));
    assert!(released(&mut state).is_empty());
    assert_eq!(state.barrier(b"b", 3, "fourth"), Ok(None));
    assert_eq!(released(&mut state), ["patient"]);
    assert_eq!(state.get(b"b").unwrap(), "4");
    state.set(b"b", "full".into());
    assert!(state.barrier(b"b", 3, "fifth").is_err());
    assert!(state.waiters.is_empty());
}

#[test]
fn waiters_who_vanish_leave_nothing() {
    let mut state = StoreState::default();
    let mut tickets = Vec::new();
    for _ in 0..100 {
        tickets.extend(wait(&mut state, &["a", "b", "c"], "w"));
        tickets.extend(state.barrier(b"x", 1000, "w").unwrap());
    }
    for ticket in tickets {
        assert!(state.cancel(ticket).is_some());
        assert!(state.cancel(ticket).is_none());
    }
    assert!(state.waiters.is_empty());
}
