//! Metrics of the run as this node sees it. They follow from the events of the node; only the margin of its lease and the
//! progress of its workers are asked for.

mod margin;
mod phases;
mod signs;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts};
use rallypoint_core::agent::{Exit, signal_name};
use rallypoint_core::events::{EventBody, Observation, Registered};
use rallypoint_core::kv::Time;

use self::margin::LeastMargin;
use self::phases::{Phase, Phases};
use self::signs::{RoundReason, sign};
use crate::metrics::{VALID, counters, gauge, gauges, with_label};

/// From a stage that takes no time to a join window of an hour.
const STAGE_BUCKETS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0, 3600.0];

/// The states of a run, and of a node.
const RUN_STATES: [&str; 4] = ["joinable", "frozen", "final", "closed"];
const NODE_STATES: [&str; 6] = ["out", "joining", "member", "waiting", "spare", "objector"];

/// What does not change during the run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunFacts {
    pub(crate) run_id: String,
    pub(crate) min_nodes: usize,
    pub(crate) max_nodes: usize,
    pub(crate) planned_nodes: Option<usize>,
    /// The restarts of the job, if the agent knows them.
    pub(crate) max_restarts: Option<u32>,
    pub(crate) lease_ttl: Duration,
}

/// The progress of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The time since the last sign of progress, or since the start of the workers.
    pub(crate) age: Duration,
    /// The age at which the node counts as one that hangs.
    pub(crate) limit: Duration,
}

/// The metrics of the run.
pub(crate) struct RunMetrics {
    facts: RunFacts,
    rounds: IntCounterVec,
    stages: HistogramVec,
    recovery: HistogramVec,
    exits: IntCounterVec,
    lost: IntCounter,
    state: Mutex<MetricsState>,
}

/// What the events up to now say.
struct MetricsState {
    run: Option<&'static str>,
    round: u64,
    members: u32,
    waiting: usize,
    suspected: u32,
    lost: usize,
    node: &'static str,
    phases: Phases,
    /// The first sign that the group has to form again, and its time in milliseconds.
    sign: Option<(RoundReason, u64)>,
    has_met: bool,
    max_restarts: u32,
    restarts_left: u32,
    margin: LeastMargin,
}

impl RunMetrics {
    pub(crate) fn new(facts: RunFacts) -> Self {
        let max_restarts = facts.max_restarts.unwrap_or_default();
        let counters =
            |name, help, label| IntCounterVec::new(Opts::new(name, help), &[label]).expect(VALID);
        let times = |name, help, label| {
            let options = HistogramOpts::new(name, help).buckets(STAGE_BUCKETS.to_vec());
            HistogramVec::new(options, &[label]).expect(VALID)
        };
        let rounds = counters(
            "rallypoint_rounds_total",
            "Times that this node has asked for a group.",
            "reason",
        );
        let recovery = times(
            "rallypoint_recovery_seconds",
            "Time from the first sign of a change to workers that run again.",
            "reason",
        );
        for reason in RoundReason::ALL {
            // A series that begins with its first event has no rate for it.
            rounds.with_label_values(&[reason.name()]);
            recovery.with_label_values(&[reason.name()]);
        }
        Self {
            facts,
            rounds,
            stages: times("rallypoint_stage_seconds", "Time of the stages of a round.", "stage"),
            recovery,
            exits: counters(
                "rallypoint_worker_exits_total",
                "Workers of this node that have exited.",
                "code",
            ),
            lost: IntCounter::new(
                "rallypoint_members_lost_total",
                "Members that the groups of this node have lost.",
            )
            .expect(VALID),
            state: Mutex::new(MetricsState {
                run: None,
                round: 0,
                members: 0,
                waiting: 0,
                suspected: 0,
                lost: 0,
                node: "out",
                phases: Phases::new(),
                sign: None,
                has_met: false,
                max_restarts,
                restarts_left: max_restarts,
                margin: LeastMargin::default(),
            }),
        }
    }

    /// A renewal of the lease was acknowledged this long before the workers would have been stopped.
    pub(super) fn renewed(&self, now: Time, left: Duration) {
        self.state().margin.note(now, left);
    }

    /// Whether the workers run, by the events up to now.
    pub(super) fn is_training(&self) -> bool {
        self.state().phases.is_training()
    }

    /// Takes an event into account.
    pub(crate) fn take(&self, now: Time, event: &Observation) {
        let ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let mut state = self.state();
        if state.node == "member"
            && let Some(reason) = sign(&event.body)
        {
            state.sign.get_or_insert((reason, ms));
        }
        self.time(&event.body);
        match &event.body {
            EventBody::RendezvousBegan => {
                let other = if state.has_met { RoundReason::Other } else { RoundReason::Begin };
                let reason = state.sign.map_or(other, |(reason, _)| reason);
                self.rounds.with_label_values(&[reason.name()]).inc();
                state.has_met = true;
            }
            EventBody::WorkersStarted { .. } => {
                if let Some((reason, since)) = state.sign.take() {
                    let seconds = ms.saturating_sub(since) as f64 / 1e3;
                    self.recovery.with_label_values(&[reason.name()]).observe(seconds);
                }
            }
            EventBody::MembersLost { count, .. } => {
                self.lost.inc_by(count.saturating_sub(state.lost) as u64);
            }
            EventBody::WorkerExited { exit, .. } => {
                self.exits.with_label_values(&[code(exit).as_str()]).inc();
            }
            _ => {}
        }
        state.take(ms, event);
    }

    /// Takes the time of a stage that has ended.
    fn time(&self, body: &EventBody) {
        let observe = |stage: &str, millis: &Option<u64>| {
            if let Some(millis) = millis {
                self.stages.with_label_values(&[stage]).observe(*millis as f64 / 1e3);
            }
        };
        match body {
            EventBody::Joined { join_ms } => observe("join", join_ms),
            EventBody::RoundFrozen { gather_ms, last_call_ms, .. } => {
                observe("gather", gather_ms);
                observe("last_call", last_call_ms);
            }
            EventBody::RoundFinal { confirm_ms, .. } => observe("confirm", confirm_ms),
            EventBody::RanksAssigned { ranks_ms, .. } => observe("rank", ranks_ms),
            EventBody::WorkersStarted { start_ms, .. } => observe("start", start_ms),
            EventBody::WorkersStopped { stop_ms, .. } => observe("stop", stop_ms),
            EventBody::BarrierPassed { barrier_ms } => observe("barrier", barrier_ms),
            _ => {}
        }
    }

    /// The metrics as they are now. `now` is of the clock of [`renewed`](Self::renewed).
    pub(crate) fn families(&self, now: Time, progress: Option<Progress>) -> Vec<MetricFamily> {
        let mut state = self.state();
        let one_of = |all: &[&'static str], current: Option<&str>| -> Vec<(&'static str, f64)> {
            all.iter().map(|one| (*one, f64::from(u8::from(current == Some(*one))))).collect()
        };
        let nodes = [
            ("member", f64::from(state.members)),
            ("waiting", state.waiting as f64),
            ("suspect", f64::from(state.suspected)),
            ("missing", state.lost as f64),
        ];
        let RunFacts { run_id, min_nodes, max_nodes, planned_nodes, max_restarts, lease_ttl } =
            &self.facts;
        let planned = planned_nodes.map(|planned| ("planned", planned as f64));
        let limits = [("min", *min_nodes as f64), ("max", *max_nodes as f64)];
        let wanted: Vec<_> = limits.into_iter().chain(planned).collect();
        let run = one_of(&RUN_STATES, state.run);
        let node = one_of(&NODE_STATES, Some(state.node));
        let margin = state.margin.least(now).map(|left| {
            let help =
                "Least time, of late, that was left when a renewal of the lease was acknowledged.";
            gauge("rallypoint_lease_margin_seconds", help, left.as_secs_f64())
        });
        let progress = progress.map(|Progress { age, limit }| {
            let age_help = "Time since the workers of this node have last shown progress.";
            let limit_help = "Age of progress at which the workers of this node hang.";
            [
                gauge("rallypoint_progress_age_seconds", age_help, age.as_secs_f64()),
                gauge("rallypoint_progress_limit_seconds", limit_help, limit.as_secs_f64()),
            ]
            .concat()
        });
        let restarts = max_restarts.map(|max| {
            let left = f64::from(state.restarts_left);
            let max_help = "Restarts that the job has had in all.";
            [
                gauge("rallypoint_restarts_left", "Restarts that the job has left.", left),
                gauge("rallypoint_restarts_max", max_help, f64::from(max)),
            ]
            .concat()
        });
        let families = [
            gauges("rallypoint_run_state", "State of the round.", "state", &run),
            gauge("rallypoint_run_round", "Number of the round.", state.round as f64),
            gauges("rallypoint_node_state", "State of this node.", "state", &node),
            gauges("rallypoint_nodes", "Nodes of the group.", "state", &nodes),
            gauges(
                "rallypoint_nodes_wanted",
                "Limits of --nnodes, and --planned.",
                "bound",
                &wanted,
            ),
            restarts.unwrap_or_default(),
            margin.unwrap_or_default(),
            progress.unwrap_or_default(),
            gauge(
                "rallypoint_lease_ttl_seconds",
                "Time to live of the lease.",
                lease_ttl.as_secs_f64(),
            ),
            counters(
                "rallypoint_seconds_total",
                "Time of this node, by what it did.",
                "phase",
                &state.phases.seconds(),
            ),
            self.rounds.collect(),
            self.stages.collect(),
            self.recovery.collect(),
            self.exits.collect(),
            self.lost.collect(),
        ];
        with_label(families.concat(), "run", run_id)
    }

    fn state(&self) -> MutexGuard<'_, MetricsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricsState {
    fn take(&mut self, ms: u64, event: &Observation) {
        match &event.body {
            EventBody::RoundOpened { .. } => {
                (self.run, self.round) = (Some("joinable"), event.round);
                (self.members, self.waiting, self.suspected, self.lost) = (0, 0, 0, 0);
            }
            EventBody::RoundFrozen { .. } => {
                (self.run, self.round) = (Some("frozen"), event.round);
            }
            EventBody::RoundFinal { size, .. } => {
                (self.run, self.round) = (Some("final"), event.round);
                self.members = *size;
            }
            EventBody::MembersLost { count, .. } => self.lost = *count,
            EventBody::NodesWaiting { count } => self.waiting = *count,
            EventBody::MemberSuspected { .. } => self.suspected += 1,
            EventBody::RunClosed { .. } => self.run = Some("closed"),
            EventBody::RunReopened => self.run = None,
            EventBody::Registered { registered } => {
                self.node = match registered {
                    Registered::Waiting => "waiting",
                    Registered::Spare => "spare",
                    Registered::Objector => "objector",
                };
            }
            EventBody::RendezvousBegan | EventBody::Joined { .. } => self.node = "joining",
            EventBody::GroupFormed { restarts, .. } => {
                self.node = "member";
                self.restarts_left = self.max_restarts.saturating_sub(*restarts);
            }
            EventBody::PlaceLost { .. }
            | EventBody::Fenced { .. }
            | EventBody::Left
            | EventBody::NoGroup
            | EventBody::Finished { .. } => self.node = "out",
            EventBody::RestartGranted { .. } => {
                self.restarts_left = self.restarts_left.saturating_sub(1);
            }
            EventBody::RestartRefunded => {
                self.restarts_left = self.max_restarts.min(self.restarts_left.saturating_add(1));
            }
            EventBody::RestartRefused { .. } => self.restarts_left = 0,
            _ => {}
        }
        if let Some(phase) = Phase::after(&event.body) {
            self.phases.enter(phase, ms);
        }
    }
}

/// An exit as a label: a code, or the name of a signal.
fn code(exit: &Exit) -> String {
    match exit {
        Exit::Code(code) => code.to_string(),
        Exit::Signal(signal) => {
            signal_name(*signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
        }
        Exit::Unknown(_) => "unknown".to_owned(),
    }
}
