//! Reaps orphans where this process is the init process of a container, or a subreaper.
//!
//! A process that ends stays a zombie until its parent reads its exit status. Orphans are reparented to the init
//! process, which in a container is often this one.

use std::collections::HashSet;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, child_subreaper, getpid, waitid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::{guard, table};
use crate::util::blocking::blocking;

/// The age of a zombie after which it counts as an orphan: children of this module are reaped as soon as they end.
const ORPHAN_AGE: Duration = Duration::from_secs(1);

/// Whether orphans are reparented to this process.
pub(crate) fn adopts_orphans() -> bool {
    getpid().is_init() || child_subreaper().is_ok_and(|set| set.is_some())
}

/// Reaps orphans, until the future is dropped. For a program whose own children are all of this module.
pub(crate) async fn reap_orphans() {
    let Ok(mut ended) = signal(SignalKind::child()) else { return };
    let mut known = HashSet::new();
    loop {
        known = blocking(move || reap_known(&known)).await;
        if known.is_empty() {
            ended.recv().await;
        }
        sleep(ORPHAN_AGE).await;
    }
}

/// Reaps the zombies in `known`. Returns the new ones.
fn reap_known(known: &HashSet<Pid>) -> HashSet<Pid> {
    let handle = guard::program();
    let here = getpid().as_raw_nonzero().get();
    let has_ended =
        |pid: &Pid| table::stat(*pid).is_some_and(|stat| stat.parent == here && stat.has_ended());
    let is_orphan = |pid: &Pid| has_ended(pid) && !handle.waits_for(*pid);
    let (old, new) =
        table::pids().into_iter().filter(is_orphan).partition(|pid| known.contains(pid));
    let old: HashSet<Pid> = old;
    for pid in old {
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
    new
}
