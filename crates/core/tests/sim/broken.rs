//! Proof that the simulator sees: the same machines, with one thing done wrong on the way.

use rallypoint_core::kv::{Event, Txn, TxnResult};
use rallypoint_core::rendezvous::Purpose;
use rallypoint_core::rendezvous::keys::Keys;

use crate::random::Random;

/// What is done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
}

pub(crate) fn request(_broken: Broken, _keys: &Keys, _purpose: Purpose, _txn: &mut Txn) {}

pub(crate) fn answer(_broken: Broken, _purpose: Purpose, _result: &mut TxnResult) {}

pub(crate) fn active_events(_broken: Broken, _random: &mut Random, _events: &mut Vec<Event>) {}

pub(crate) fn watched_events(_broken: Broken, _watch: usize, _events: &mut Vec<Event>) {}

pub(crate) fn believes_too_long(_broken: Broken) -> bool {
    false
}
