//! The failure detector of one node, by its own clock.
//!
//! Clocks of different hosts are never compared: a node's heartbeat is a count, and the observer measures for how
//! long the count has not changed. Only time in which the observer watched counts. An observer that was stopped, or
//! cut off from the store, has not seen other nodes miss their heartbeats; the same fault may have cut them off. So a
//! gap between two reads counts as one interval at most, and a new observer allows every node its full time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::document::SharedState;
use super::settings::DynamicSettings;
use crate::kv::Time;
use crate::rendezvous::window::JoinWindow;

/// The failure detector of one node: the heartbeats that it has seen of every node.
#[derive(Debug, Clone)]
pub struct Observer {
    me: String,
    settings: DynamicSettings,
    seen: BTreeMap<String, HeartbeatRecord>,
    looked: Option<Time>,
    /// When this node's own heartbeat last changed.
    pub(super) beat: Option<Time>,
    /// The number of the last call that was seen, and the join window that counts from then on.
    pub(super) window: Option<(u64, JoinWindow)>,
    /// The end of the join timeout.
    pub(super) deadline: Option<Time>,
}

#[derive(Debug, Clone)]
struct HeartbeatRecord {
    heartbeat: u64,
    /// For how long the observer has watched the count without a change.
    silent: Duration,
}

impl Observer {
    /// The failure detector of the node `me`, which has seen no heartbeat yet.
    pub fn new(me: impl Into<String>, settings: DynamicSettings) -> Self {
        let me = me.into();
        Self {
            me,
            settings,
            seen: BTreeMap::new(),
            looked: None,
            beat: None,
            window: None,
            deadline: None,
        }
    }

    /// The id of this node.
    pub fn me(&self) -> &str {
        &self.me
    }

    /// The settings of this node.
    pub fn settings(&self) -> &DynamicSettings {
        &self.settings
    }

    /// Begins the join timeout.
    pub fn begin_waiting(&mut self, now: Time) {
        self.deadline = Some(now.saturating_add(self.settings.join));
    }

    /// Records a state that was just read or just written.
    pub fn look(&mut self, now: Time, state: &SharedState) {
        let gap = self.looked.map_or(Duration::ZERO, |looked| now.saturating_sub(looked));
        let counted = gap.min(self.settings.keep_alive_interval);
        self.looked = Some(now);
        self.seen.retain(|id, _| state.nodes.contains_key(id));
        for (id, node) in &state.nodes {
            let fresh = HeartbeatRecord { heartbeat: node.heartbeat, silent: Duration::ZERO };
            let record = self.seen.entry(id.clone()).or_insert_with(|| {
                if *id == self.me {
                    self.beat = Some(now);
                }
                fresh.clone()
            });
            if record.heartbeat == node.heartbeat {
                record.silent = record.silent.saturating_add(counted);
            } else {
                *record = fresh;
                if *id == self.me {
                    self.beat = Some(now);
                }
            }
        }
        match (state.last_call, &self.window) {
            (Some(call), Some((known, _))) if call == *known => {}
            (Some(call), _) => {
                self.window = Some((call, JoinWindow::new(state.limits, self.settings.last_call)));
            }
            (None, _) => self.window = None,
        }
    }

    /// The nodes of `state` whose heartbeats have stopped for too long. This node is never among them.
    pub fn dead<'a>(&'a self, state: &'a SharedState) -> impl Iterator<Item = &'a str> {
        let silence = self.settings.silence();
        let dead = move |id: &&String| {
            **id != self.me && self.seen.get(*id).is_some_and(|record| record.silent >= silence)
        };
        state.nodes.keys().filter(dead).map(String::as_str)
    }

    /// The state without dead nodes.
    pub fn without_dead(&self, state: &SharedState) -> SharedState {
        let dead: BTreeSet<&str> = self.dead(state).collect();
        let mut living = state.clone();
        for id in dead {
            living.remove(id);
        }
        living
    }

    /// When the next heartbeat is due.
    pub(super) fn next_beat(&self, now: Time) -> Time {
        self.beat.map_or(now, |beat| beat.saturating_add(self.settings.keep_alive_interval))
    }
}
