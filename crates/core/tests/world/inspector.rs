//! The content of the store and the groups that have formed, as an inspector sees them that reads every write in order
//! and trusts no node.

use std::collections::{BTreeMap, BTreeSet};

use rallypoint_core::kv::{Event, EventKind, LeaseId, Op, Revision, Txn};
use rallypoint_core::rendezvous::NodeConfig;
use rallypoint_core::rendezvous::documents::Limits;
use rallypoint_core::rendezvous::documents::{Active, Address, Ranked, Status, decode};
use rallypoint_core::rendezvous::sizes::SizeRules;

use super::events::At;
use super::invariants::{Verdict, violation};
use super::plan::Millis;

/// The round that a key belongs to.
pub(crate) fn round_of(key: &str) -> Option<u64> {
    key.split("/v_").nth(1).and_then(|rest| rest.split('/').next())?.parse().ok()
}

/// Groups in the order in which they became final, over all servers.
pub(crate) type GroupId = usize;

/// The inspector's record of a round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) opener: String,
    /// Nodes that joined, and since when.
    pub(crate) members: BTreeMap<String, Revision>,
    pub(crate) ranks: BTreeMap<String, Ranked>,
    /// Nodes that confirmed, and their leases.
    pub(crate) ready: BTreeMap<String, LeaseId>,
    pub(crate) status: Option<Status>,
    /// When it stopped taking nodes.
    pub(crate) frozen_at: Millis,
    pub(crate) group: Option<GroupId>,
    /// When its group had formed.
    pub(crate) formed_at: Millis,
}

/// A group that has formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The server, and how often it had lost its state.
    pub(crate) at: At,
    pub(crate) era: u64,
    pub(crate) round: u64,
    pub(crate) ranks: BTreeMap<String, u32>,
    /// The address of the bootstrap store, unique to the group.
    pub(crate) store: Option<Address>,
}

/// The content of one store.
#[derive(Debug, Default)]
pub(crate) struct StoreContent {
    pub(crate) rounds: BTreeMap<u64, Round>,
    pub(crate) active: Option<Active>,
    /// The run is closed.
    pub(crate) closed: bool,
    pub(crate) latest: u64,
    /// The last round that was swept.
    pub(crate) swept: Option<u64>,
    pub(crate) waiting: BTreeSet<String>,
    pub(crate) spares: BTreeSet<String>,
}

impl StoreContent {
    /// The group of a round of this era, if it has formed.
    pub(crate) fn group_of(&self, round: u64) -> Option<GroupId> {
        self.rounds.get(&round).and_then(|round| round.group)
    }

    /// The rounds that a sweep deletes must not come back.
    pub(crate) fn swept(&mut self, sweep: &Txn) {
        for op in &sweep.success {
            let Op::Delete(delete) = op else { continue };
            let key = String::from_utf8_lossy(delete.range.start()).into_owned();
            self.swept = self.swept.max(round_of(&key));
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inspector {
    root: String,
    pub(crate) limits: Limits,
    pub(crate) sizes: SizeRules,
    /// The content of each server's store.
    pub(crate) stores: Vec<StoreContent>,
    /// The groups of all servers.
    pub(crate) groups: Vec<Group>,
    pub(crate) now: Millis,
    /// When each node last gave its group a reason to meet again.
    upset: BTreeMap<String, Millis>,
    /// When every group last had a reason to meet again.
    all_upset: Option<Millis>,
}

impl Inspector {
    pub(crate) fn new(config: &NodeConfig, servers: usize) -> Self {
        Self {
            root: format!("{}rdzv/", config.keys.root()),
            limits: config.limits,
            sizes: config.sizes.clone(),
            stores: (0..servers).map(|_| StoreContent::default()).collect(),
            groups: Vec::new(),
            now: 0,
            upset: BTreeMap::new(),
            all_upset: None,
        }
    }

    /// A server has lost its state. The inspector keeps the groups.
    pub(crate) fn forgets(&mut self, at: At) {
        self.stores[at] = StoreContent::default();
        self.upset_all();
    }

    /// From here on the group of this node has a reason to meet again.
    pub(crate) fn upset(&mut self, id: &str) {
        self.upset.insert(id.to_owned(), self.now);
    }

    /// From here on every group has a reason to meet again.
    pub(crate) fn upset_all(&mut self) {
        self.all_upset = Some(self.now);
    }

    /// Whether the group of `round` at this server was given a reason to meet again.
    pub(crate) fn has_reason(&self, at: At, round: u64) -> bool {
        let Some(round) = self.stores[at].rounds.get(&round) else { return true };
        let since = |when: &Millis| *when >= round.frozen_at;
        self.all_upset.as_ref().is_some_and(since)
            || round.ranks.keys().any(|id| self.upset.get(id).is_some_and(since))
    }

    pub(crate) fn group(&self, group: GroupId) -> &Group {
        &self.groups[group]
    }

    /// The group whose rank 0 listens there.
    pub(crate) fn group_at(&self, store: &Address) -> Option<GroupId> {
        (0..self.groups.len()).rev().find(|group| self.groups[*group].store.as_ref() == Some(store))
    }

    pub(crate) fn follow(&mut self, at: At, event: &Event) -> Verdict {
        let key = std::str::from_utf8(&event.kv.key).unwrap_or_default();
        let Some(path) = key.strip_prefix(&self.root) else {
            return violation("keys", format!("{key} is none of the run's keys"));
        };
        let put = event.kind == EventKind::Put;
        if put && event.kv.lease == 0 {
            return violation("keys", format!("{key} is on no lease"));
        }
        let mut parts = path.split('/');
        let first = parts.next().unwrap_or_default();
        let second = parts.next().unwrap_or_default();
        let store = &mut self.stores[at];
        let list = match first {
            "waiting" => Some(&mut store.waiting),
            "spare" => Some(&mut store.spares),
            _ => None,
        };
        if let Some(list) = list {
            match put {
                true => drop(list.insert(second.to_owned())),
                false => drop(list.remove(second)),
            }
            // Only enough late nodes for a larger size are a reason.
            let world = store.active.as_ref().map_or(0, |active| active.world as usize);
            let late = store.waiting.union(&store.spares).count();
            if put && self.sizes.size(self.limits, world + late).size > world {
                self.all_upset = Some(self.now);
            }
            return Ok(());
        }
        let number = first.strip_prefix("v_").and_then(|number| number.parse::<u64>().ok());
        let (Some(number), Some(id)) = (number, parts.next()) else { return Ok(()) };
        let latest = store.latest;
        let round = store.rounds.entry(number).or_default();
        match (second, put) {
            ("member", true) => {
                round.members.insert(id.to_owned(), event.kv.mod_revision);
            }
            ("member", false) => {
                round.members.remove(id);
                if number == latest {
                    self.upset.insert(id.to_owned(), self.now);
                }
            }
            ("rank", true) => match decode::<Ranked>(&event.kv.key, &event.kv.value) {
                Ok(ranked) => drop(round.ranks.insert(id.to_owned(), ranked)),
                Err(corrupt) => return violation("sound", corrupt.to_string()),
            },
            ("ready", true) => drop(round.ready.insert(id.to_owned(), event.kv.lease)),
            _ => {}
        }
        if round.group.is_some() && second == "rank" && put {
            return violation("R1", format!("a rank of round {number} changed after it was final"));
        }
        Ok(())
    }
}
