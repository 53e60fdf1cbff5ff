//! Reaps what others have left to us, where we are the first process of a container, or a subreaper.
//!
//! A child that ends stays in the list of processes until its parent has asked how it ended. Children whose
//! parent is gone are given to the first process, which in a container is often us, and nobody else would ask.

use std::collections::HashSet;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, child_subreaper, getpid, waitid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::{guard, table};
use crate::util::blocking::blocking;

/// Whoever was not asked for in this time is a stranger: our own are, as soon as they end.
const STRANGE: Duration = Duration::from_secs(1);

/// Whether the children of others become ours.
pub(crate) fn is_needed() -> bool {
    getpid().is_init() || child_subreaper().is_ok_and(|set| set.is_some())
}

/// Reaps strangers, until it is dropped. For a program whose own children are all of this module.
pub(crate) async fn reap_strangers() {
    let Ok(mut ended) = signal(SignalKind::child()) else { return };
    let mut known = HashSet::new();
    loop {
        known = blocking(move || look(&known)).await;
        if known.is_empty() {
            ended.recv().await;
        }
        sleep(STRANGE).await;
    }
}

/// Reaps those who were there at the last look. Returns those who were not.
fn look(known: &HashSet<Pid>) -> HashSet<Pid> {
    let keeper = guard::program();
    let here = getpid().as_raw_nonzero().get();
    let has_ended =
        |pid: &Pid| table::stat(*pid).is_some_and(|stat| stat.parent == here && stat.has_ended());
    let strange = |pid: &Pid| has_ended(pid) && !keeper.waits_for(*pid);
    let (old, new) = table::pids().into_iter().filter(strange).partition(|pid| known.contains(pid));
    let old: HashSet<Pid> = old;
    for pid in old {
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
    new
}
