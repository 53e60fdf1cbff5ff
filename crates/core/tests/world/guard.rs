//! The guard of a node's workers: a separate process, which goes on when the launcher is suspended.
//!
//! It kills the workers when the launcher is dead, and when its deadline passes: a part of the lease's time to live,
//! counted from the sending of the last acknowledged renewal. When the whole node was suspended, the guard checks the
//! deadline before anything else runs.

use super::broken;
use super::events::{SimEvent, Who, World, tell};
use super::invariants::Verdict;
use super::plan::Millis;

/// How long a guard that was suspended waits for another deadline.
const HOLDING: Millis = 1_000;

/// Which part of a node is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Still {
    /// The launcher alone: its guard and its workers go on.
    Launcher,
    /// Launcher, guard and workers.
    Everything,
}

/// The state of a guard.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    /// The deadline: the workers must be dead by then.
    pub(crate) deadline: Option<Millis>,
    /// The guard was suspended past its deadline, and has stopped the workers: until then the launcher may set another
    /// deadline.
    pub(crate) holds: Option<Millis>,
    looks: bool,
}

impl World {
    /// The workers of a node start, guarded with the present deadline.
    pub(crate) fn guard_begins(&mut self, who: Who) -> Verdict {
        self.nodes[who].guard.holds = None;
        self.tell_guard(who)?;
        let guard = &mut self.nodes[who].guard;
        if let Some(deadline) = guard.deadline
            && !std::mem::replace(&mut guard.looks, true)
        {
            self.at(deadline, SimEvent::GuardLooks(who));
        }
        Ok(())
    }

    /// The launcher tells its guard how long the session lives, as long as the node is a member. Where no other node can
    /// replace it, there is no deadline.
    pub(crate) fn tell_guard(&mut self, who: Who) -> Verdict {
        let (fence, now) = (self.span(self.nodes[who].host, self.plan.fence()), self.now);
        let node = &mut self.nodes[who];
        if !node.rendezvous.holds_place() || self.plan.config.sole {
            return Ok(());
        }
        let Some(session) = &node.session else { return Ok(()) };
        let deadline = session.sent + fence;
        node.guard.deadline = Some(deadline);
        if deadline > now && node.guard.holds.take().is_some() {
            tell!(self, "{} slept, and goes on", self.nodes[who].id);
            if !std::mem::replace(&mut self.nodes[who].guard.looks, true) {
                self.at(deadline, SimEvent::GuardLooks(who));
            }
            return self.check_running(who);
        }
        Ok(())
    }

    /// The guard checks its deadline.
    pub(crate) fn guard_looks(&mut self, who: Who) -> Verdict {
        let guard = &mut self.nodes[who].guard;
        guard.looks = false;
        let Some(deadline) = guard.deadline else { return Ok(()) };
        if self.top_workers(who).is_none() {
            return Ok(());
        }
        let next = deadline.max(self.nodes[who].guard.holds.unwrap_or(0));
        if next > self.now {
            self.nodes[who].guard.looks = true;
            self.at(next, SimEvent::GuardLooks(who));
            return Ok(());
        }
        if broken::has_no_guard(self.broken) {
            return Ok(());
        }
        tell!(self, "the guard of {} kills its workers", self.nodes[who].id);
        self.nodes[who].guard.holds = None;
        self.top_fenced(who)
    }

    /// The whole node resumes. The guard checks its deadline before anything else runs.
    pub(crate) fn wakes_up(&mut self, who: Who) -> Verdict {
        let overdue = self.nodes[who].guard.deadline.is_some_and(|deadline| deadline <= self.now);
        if overdue && self.top_workers(who).is_some() {
            tell!(self, "{} slept past its lease: its workers are held", self.nodes[who].id);
            let until = self.now + HOLDING;
            self.nodes[who].guard.holds = Some(until);
            self.at(until, SimEvent::GuardLooks(who));
            return Ok(());
        }
        self.check_running(who)
    }
}
