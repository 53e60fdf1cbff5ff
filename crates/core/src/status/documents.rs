//! The documents of a run, by kind.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use crate::agent::stacks::HangDocument;
use crate::agent::{FailureOutput, NodeExit, RestartBudget};
use crate::events::RunEvent;
use crate::kv::{KeyValue, LeaseId, Revision};
use crate::rendezvous::documents::{
    Active, Joined, NodeDocument, Objection, Ranked, Rounds, Status, Unreached, decode,
};
use crate::rendezvous::keys::{Keys, RunKey};

/// The documents of a run, as one read found them. A document that cannot be read is a problem, and is left out.
#[derive(Debug, Default)]
pub(super) struct Documents {
    pub(super) active: Option<Active>,
    pub(super) rounds: Option<Rounds>,
    pub(super) budget: RestartBudget,
    pub(super) exits: Vec<NodeExit>,
    pub(super) failure: Option<FailureOutput>,
    pub(super) hang: Option<HangDocument>,
    pub(super) nodes: BTreeMap<String, LiveNode>,
    pub(super) waiting: BTreeMap<String, Revision>,
    pub(super) spare: BTreeMap<String, Revision>,
    pub(super) objectors: BTreeMap<String, Objection>,
    pub(super) suspects: BTreeMap<String, Revision>,
    pub(super) joined: BTreeMap<u64, BTreeMap<String, JoinedAt>>,
    pub(super) ranks: BTreeMap<u64, BTreeMap<String, u32>>,
    /// The nodes that confirmed in each round, and whom they do not reach.
    pub(super) ready: BTreeMap<u64, BTreeMap<String, Option<String>>>,
    /// The last events of the run, by number.
    pub(super) events: BTreeMap<u64, RunEvent>,
    pub(super) problems: Vec<String>,
}

/// A live node.
#[derive(Debug)]
pub(super) struct LiveNode {
    pub(super) document: NodeDocument,
    pub(super) lease: LeaseId,
    pub(super) since: Revision,
}

/// A node that joined a round.
#[derive(Debug)]
pub(super) struct JoinedAt {
    pub(super) joined: Joined,
    pub(super) at: Revision,
}

impl Documents {
    pub(super) fn new<'a>(keys: &Keys, kvs: impl IntoIterator<Item = &'a KeyValue>) -> Self {
        let mut found = Self::default();
        for kv in kvs {
            found.take(keys, kv);
        }
        found
    }

    fn take(&mut self, keys: &Keys, kv: &KeyValue) {
        let at = kv.mod_revision;
        match keys.parse(&kv.key) {
            None | Some(RunKey::Left(..)) => {}
            Some(RunKey::Active) => self.active = self.read(kv),
            Some(RunKey::Round) => self.rounds = self.read(kv),
            Some(RunKey::Restarts) => self.budget = self.read(kv).unwrap_or_default(),
            Some(RunKey::Failure) => self.failure = self.read(kv),
            Some(RunKey::Hang) => self.hang = self.read(kv),
            Some(RunKey::Event(_)) => match event(&kv.value) {
                Ok(event) => drop(self.events.insert(event.seq, event)),
                Err(why) => {
                    let key = String::from_utf8_lossy(&kv.key);
                    self.problems.push(format!("the event at {key:?} cannot be read: {why}"));
                }
            },
            Some(RunKey::Node(id)) => {
                if let Some(document) = self.read(kv) {
                    let live = LiveNode { document, lease: kv.lease, since: kv.create_revision };
                    self.nodes.insert(id.to_owned(), live);
                }
            }
            Some(RunKey::Exit(_)) => {
                let exit = self.read(kv);
                self.exits.extend(exit);
            }
            Some(RunKey::Waiting(id)) => drop(self.waiting.insert(id.to_owned(), at)),
            Some(RunKey::Spare(id)) => drop(self.spare.insert(id.to_owned(), at)),
            Some(RunKey::Suspect(id)) => drop(self.suspects.insert(id.to_owned(), at)),
            Some(RunKey::Objector(id)) => {
                if let Some(objection) = self.read(kv) {
                    self.objectors.insert(id.to_owned(), objection);
                }
            }
            Some(RunKey::Member(round, id)) => {
                if let Some(joined) = self.read(kv) {
                    let joined = JoinedAt { joined, at };
                    self.joined.entry(round).or_default().insert(id.to_owned(), joined);
                }
            }
            Some(RunKey::Rank(round, id)) => {
                if let Some(Ranked { rank, .. }) = self.read(kv) {
                    self.ranks.entry(round).or_default().insert(id.to_owned(), rank);
                }
            }
            Some(RunKey::Ready(round, id)) => {
                // A confirmation is empty, or rank 0's store, or says that rank 0 is not reached.
                let says = (!kv.value.is_empty()).then(|| decode::<Unreached>(&kv.key, &kv.value));
                let unreached = says.and_then(Result::ok).map(|unreached| unreached.unreached);
                self.ready.entry(round).or_default().insert(id.to_owned(), unreached);
            }
        }
    }

    /// The last hang of the run, with its report if there is one.
    pub(super) fn last_hang(&mut self) -> Option<HangDocument> {
        let asked = self.budget.hang.as_ref().map(HangDocument::asked);
        let reported = self.hang.take();
        asked.into_iter().chain(reported).max_by_key(HangDocument::order)
    }

    /// Whether it is a hang of the group in progress: workers have not made progress since, and the job does not restart.
    pub(super) fn goes_on(&self, hang: &HangDocument) -> bool {
        let is_of_group =
            |active: &Active| active.status == Status::Final && active.round == hang.round;
        let is_over = self.budget.hang_over.is_some_and(|over| over.ends(hang.order()));
        let restarts = self.budget.last.as_ref().is_some_and(|last| last.round == hang.round);
        self.active.as_ref().is_some_and(is_of_group) && !is_over && !restarts
    }

    fn read<T: DeserializeOwned>(&mut self, kv: &KeyValue) -> Option<T> {
        match decode(&kv.key, &kv.value) {
            Ok(document) => Some(document),
            Err(error) => {
                self.problems.push(error.to_string());
                None
            }
        }
    }
}

fn event(value: &[u8]) -> Result<RunEvent, String> {
    let line = std::str::from_utf8(value).map_err(|_| "it is no UTF-8 text".to_owned())?;
    RunEvent::parse(line).map_err(|error| error.to_string())
}
