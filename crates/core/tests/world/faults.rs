//! Injects faults, and heals them.

use rallypoint_core::rendezvous::NodeInput;

use super::events::{Memory, SimEvent, Who, World, tell};
use super::guard::Still;
use super::invariants::Verdict;
use super::plan::{Fault, Millis};

impl World {
    /// One of the live nodes, by any number.
    pub(crate) fn someone(&self, number: usize) -> Option<Who> {
        let alive: Vec<Who> = (0..self.nodes.len()).filter(|who| self.nodes[*who].alive).collect();
        alive.get(number % alive.len().max(1)).copied()
    }

    pub(crate) fn goes(&mut self, fault: Fault) -> Verdict {
        if self.healed {
            return Ok(());
        }
        tell!(self, "--- {fault:?}");
        match fault {
            Fault::Arrive => {
                self.hosts.count += 1;
                return self.comes(self.hosts.count - 1);
            }
            Fault::Split(split, seed, time) => self.splits(split, seed, time),
            Fault::HeadCrash(death, back) => return self.head_crashes(death, back),
            Fault::Restart(away, forgetful) => {
                let memory = if forgetful { Memory::Compacted } else { Memory::Whole };
                self.server_down(0, away, memory);
            }
            Fault::Forget(away) => self.server_down(0, away, Memory::None),
            Fault::Compact => {
                if !self.servers[0].down {
                    self.compact(0);
                    for who in 0..self.nodes.len() {
                        if self.nodes[who].alive && !self.nodes[who].cut {
                            self.break_streams(who);
                            self.reconnect(who);
                        }
                    }
                }
            }
            Fault::Cut(who, time) => {
                if let Some(who) = self.someone(who) {
                    self.cut(who);
                    self.after(time, SimEvent::Mends(who));
                }
            }
            Fault::Standstill(who, time) => self.stands_still(who, Still::Launcher, time),
            Fault::Sleep(who, time) => self.stands_still(who, Still::Everything, time),
            Fault::Crash(who, death, back) => {
                if let Some(delay) = back.filter(|_| !self.has_succession()) {
                    self.after(delay, SimEvent::Comes);
                }
                if let Some(who) = self.someone(who) {
                    if self.has_succession() {
                        self.comes_back_after(who, back);
                    }
                    tell!(self, "{} crashes: {death:?}", self.nodes[who].id);
                    return self.dies(who, death);
                }
            }
            Fault::Suspect(who, whom) => {
                if let (Some(who), Some(whom)) = (self.awake(who), self.someone(whom))
                    && self.top_workers(who).is_some()
                    && who != whom
                {
                    let node = self.nodes[whom].id.clone();
                    tell!(self, "{} suspects {node}", self.nodes[who].id);
                    return self.give(who, NodeInput::Suspect { node });
                }
            }
            Fault::Reset(who) => {
                if let Some(who) = self.someone(who) {
                    self.resets(who);
                }
            }
            fault @ (Fault::Finish(_)
            | Fault::Return(_)
            | Fault::WorkersFail(_)
            | Fault::Close(..)
            | Fault::Signal(..)) => return self.top_goes(fault),
        }
        Ok(())
    }

    fn stands_still(&mut self, who: usize, still: Still, time: Millis) {
        if let Some(who) = self.awake(who) {
            self.nodes[who].still = Some(still);
            self.after(time, SimEvent::Resumes(who));
        }
    }

    pub(crate) fn awake(&self, number: usize) -> Option<Who> {
        self.someone(number).filter(|who| !self.nodes[*who].stands_still())
    }

    /// Injects no more faults from now on.
    pub(crate) fn heal(&mut self) -> Verdict {
        tell!(self, "--- all is well from now on");
        self.healed = true;
        self.unblocks_all();
        for at in 0..self.servers.len() * usize::from(!self.has_succession()) {
            self.server_up(at, self.servers[at].memory)?;
        }
        for who in 0..self.nodes.len() {
            self.mends(who);
            self.resumes(who)?;
        }
        Ok(())
    }
}
