//! What one node has seen of the others, by its own clock.
//!
//! Clocks of different hosts are never compared: a node's heartbeat is a number, and the observer notes
//! how long it has watched that number stand still. Only what was watched counts. An observer that was
//! stopped, or cut off from the store, has not seen the others fail to write; they may have been cut off
//! by the same fault. So a gap between two looks counts as one interval at most, and a new observer gives
//! everybody their full time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::document::SharedState;
use super::settings::DynamicSettings;
use crate::kv::Time;
use crate::rendezvous::window::JoinWindow;

/// What one node has seen of the others.
#[derive(Debug, Clone)]
pub struct Observer {
    me: String,
    settings: DynamicSettings,
    seen: BTreeMap<String, HeartbeatRecord>,
    looked: Option<Time>,
    /// When the own heartbeat last changed.
    pub(super) beat: Option<Time>,
    /// The last call that was seen, by its name, and the gate that counts it from that moment.
    pub(super) gate: Option<(u64, JoinWindow)>,
    /// Until when a group is waited for.
    pub(super) deadline: Option<Time>,
}

#[derive(Debug, Clone)]
struct HeartbeatRecord {
    heartbeat: u64,
    /// For how long it was watched standing still.
    silent: Duration,
}

impl Observer {
    /// The node `me`, which has seen nothing yet.
    pub fn new(me: impl Into<String>, settings: DynamicSettings) -> Self {
        let me = me.into();
        Self {
            me,
            settings,
            seen: BTreeMap::new(),
            looked: None,
            beat: None,
            gate: None,
            deadline: None,
        }
    }

    /// Whose eyes these are.
    pub fn me(&self) -> &str {
        &self.me
    }

    /// The settings in force.
    pub fn settings(&self) -> &DynamicSettings {
        &self.settings
    }

    /// From now on a group is waited for.
    pub fn begin_waiting(&mut self, now: Time) {
        self.deadline = Some(now.saturating_add(self.settings.join));
    }

    /// Takes note of a state that was in force at `now`: just read, or just written.
    pub fn look(&mut self, now: Time, state: &SharedState) {
        let gap = self.looked.map_or(Duration::ZERO, |looked| now.saturating_sub(looked));
        let counted = gap.min(self.settings.keep_alive_interval);
        self.looked = Some(now);
        self.seen.retain(|id, _| state.nodes.contains_key(id));
        for (id, node) in &state.nodes {
            let fresh = HeartbeatRecord { heartbeat: node.heartbeat, silent: Duration::ZERO };
            let sight = self.seen.entry(id.clone()).or_insert_with(|| {
                if *id == self.me {
                    self.beat = Some(now);
                }
                fresh.clone()
            });
            if sight.heartbeat == node.heartbeat {
                sight.silent = sight.silent.saturating_add(counted);
            } else {
                *sight = fresh;
                if *id == self.me {
                    self.beat = Some(now);
                }
            }
        }
        match (state.last_call, &self.gate) {
            (Some(call), Some((known, _))) if call == *known => {}
            (Some(call), _) => {
                self.gate = Some((call, JoinWindow::new(state.limits, self.settings.last_call)));
            }
            (None, _) => self.gate = None,
        }
    }

    /// The nodes of `state` that count as dead. Never this one: it can only be wrong about itself.
    pub fn dead<'a>(&'a self, state: &'a SharedState) -> impl Iterator<Item = &'a str> {
        let silence = self.settings.silence();
        let dead = move |id: &&String| {
            **id != self.me && self.seen.get(*id).is_some_and(|sight| sight.silent >= silence)
        };
        state.nodes.keys().filter(dead).map(String::as_str)
    }

    /// The state as this node believes it to be: without the dead.
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
