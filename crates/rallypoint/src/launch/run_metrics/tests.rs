//! Events go in, metrics come out.

use rallypoint_core::events::RunEvent;

use super::*;
use crate::metrics::page;

/// The page after these events of round 3: each at a time in milliseconds, with a kind and fields.
fn after(events: &[(u64, &str)]) -> String {
    let metrics = RunMetrics::new(RunFacts {
        run_id: "job".to_owned(),
        min_nodes: 2,
        max_nodes: 4,
        planned_nodes: Some(3),
        max_restarts: Some(3),
        lease_ttl: Duration::from_secs(10),
    });
    for (ms, body) in events {
        let line = format!(
            r#"{{"format":1,"seq":1,"time":"","ms":{ms},"run_id":"job","node_id":"a","round":3,{body}}}"#
        );
        let event = RunEvent::parse(&line).unwrap();
        assert_ne!(event.body, EventBody::Unknown, "{line}");
        let RunEvent { ms, round, body, why, .. } = event;
        metrics.take(Time::from_millis(ms), &Observation { round, body, why });
    }
    // Each series has the label.
    let page = page(metrics.families(Time::ZERO, None));
    page.replace("{run=\"job\"}", "").replace(",run=\"job\"", "")
}

#[track_caller]
fn has(page: &str, lines: &[&str]) {
    for line in lines {
        assert!(page.lines().any(|found| found == *line), "{line} in {page}");
    }
}

const BEGAN: (u64, &str) = (100, r#""kind":"rendezvous_began""#);
const FINAL: (u64, &str) =
    (400, r#""kind":"round_final","size":2,"rank0":"a","coordinator":"a","confirm_ms":20"#);
const FORMED: (u64, &str) = (
    500,
    r#""kind":"group_formed","rank":0,"size":2,"restarts":1,"store":{"host":"a","port":1},"rendezvous_ms":400"#,
);
const STARTED: (u64, &str) = (750, r#""kind":"workers_started","attempt":0,"start_ms":250"#);
const FAILED: (u64, &str) = (
    10_750,
    r#""kind":"worker_exited","attempt":0,"local_rank":0,"rank":0,"exit":{"code":7},"stopping":false"#,
);
const STOPPING: (u64, &str) =
    (10_800, r#""kind":"workers_stopping","attempt":0,"signal":15,"left_ms":30000"#);
const STOPPED: (u64, &str) = (11_800, r#""kind":"workers_stopped","attempt":0,"stop_ms":1000"#);

#[test]
fn before_the_first_event_everything_is_known_to_be_nothing() {
    has(
        &after(&[]),
        &[
            r#"rallypoint_run_state{state="final"} 0"#,
            r#"rallypoint_node_state{state="out"} 1"#,
            r#"rallypoint_nodes_wanted{bound="min"} 2"#,
            r#"rallypoint_nodes_wanted{bound="max"} 4"#,
            r#"rallypoint_nodes_wanted{bound="planned"} 3"#,
            "rallypoint_restarts_left 3",
            "rallypoint_restarts_max 3",
            "rallypoint_lease_ttl_seconds 10",
            r#"rallypoint_rounds_total{reason="node_lost"} 0"#,
            r#"rallypoint_recovery_seconds_count{reason="worker_failed"} 0"#,
            r#"rallypoint_seconds_total{phase="training"} 0"#,
        ],
    );
}

#[test]
fn a_group_that_fails_and_forms_again() {
    let again = [(12_000, BEGAN.1), (12_300, FINAL.1), (12_400, FORMED.1), (12_750, STARTED.1)];
    let events = [&[BEGAN, FINAL, FORMED, STARTED, FAILED, STOPPING, STOPPED], &again[..]].concat();
    has(
        &after(&events),
        &[
            r#"rallypoint_run_state{state="final"} 1"#,
            r#"rallypoint_run_state{state="joinable"} 0"#,
            "rallypoint_run_round 3",
            r#"rallypoint_node_state{state="member"} 1"#,
            r#"rallypoint_nodes{state="member"} 2"#,
            "rallypoint_restarts_left 2",
            r#"rallypoint_rounds_total{reason="begin"} 1"#,
            r#"rallypoint_rounds_total{reason="worker_failed"} 1"#,
            r#"rallypoint_rounds_total{reason="other"} 0"#,
            r#"rallypoint_worker_exits_total{code="7"} 1"#,
            r#"rallypoint_recovery_seconds_count{reason="worker_failed"} 1"#,
            r#"rallypoint_recovery_seconds_sum{reason="worker_failed"} 2"#,
            r#"rallypoint_stage_seconds_count{stage="confirm"} 2"#,
            r#"rallypoint_stage_seconds_sum{stage="stop"} 1"#,
            r#"rallypoint_seconds_total{phase="stopping"} 1"#,
            r#"rallypoint_seconds_total{phase="meeting"} 0.8"#,
        ],
    );
}

#[test]
fn the_first_sign_is_the_reason() {
    let lost = (900, r#""kind":"members_lost","count":1,"nodes":["b"]"#);
    let page = after(&[BEGAN, FINAL, FORMED, STARTED, lost, FAILED, STOPPING, (11_900, BEGAN.1)]);
    has(
        &page,
        &[
            r#"rallypoint_rounds_total{reason="node_lost"} 1"#,
            r#"rallypoint_rounds_total{reason="worker_failed"} 0"#,
            r#"rallypoint_nodes{state="missing"} 1"#,
            "rallypoint_members_lost_total 1",
        ],
    );
}

#[test]
fn losses_are_counted_once() {
    let lost = |ms, count| (ms, format!(r#""kind":"members_lost","count":{count},"nodes":[]"#));
    let opened = (920, r#""kind":"round_opened","coordinator":"a","previous":3"#.to_owned());
    let events = [lost(900, 1), lost(910, 3), opened, lost(930, 2)];
    let events: Vec<(u64, &str)> = events.iter().map(|(ms, body)| (*ms, body.as_str())).collect();
    let page = after(&events);
    has(&page, &["rallypoint_members_lost_total 5", r#"rallypoint_nodes{state="missing"} 2"#]);
}

#[test]
fn the_margin_of_the_lease_and_the_progress_of_the_workers_are_there_once_they_are_known() {
    let metrics = RunMetrics::new(RunFacts::default());
    let before = page(metrics.families(Time::ZERO, None));
    for name in ["rallypoint_lease_margin_seconds", "rallypoint_progress_age_seconds"] {
        assert!(!before.contains(name), "{before}");
    }
    for seconds in [6, 2, 7] {
        metrics.renewed(Time::from_secs(100), Duration::from_secs(seconds));
    }
    let progress = Progress { age: Duration::from_secs(7), limit: Duration::from_secs(600) };
    has(
        &page(metrics.families(Time::from_secs(101), Some(progress))),
        &[
            r#"rallypoint_lease_margin_seconds{run=""} 2"#,
            r#"rallypoint_progress_age_seconds{run=""} 7"#,
            r#"rallypoint_progress_limit_seconds{run=""} 600"#,
        ],
    );
}

#[test]
fn exits_have_few_names() {
    assert_eq!(code(&Exit::Code(-1)), "-1");
    assert_eq!(code(&Exit::Signal(9)), "SIGKILL");
    assert_eq!(code(&Exit::Signal(40)), "signal 40");
    assert_eq!(code(&Exit::Unknown("lost".to_owned())), "unknown");
}
