//! What goes wrong, and how it ends.

use rallypoint_core::rendezvous::NodeInput;

use super::guard::Still;
use super::happening::{Happening, Memory, Who, World, tell};
use super::invariants::Verdict;
use super::plan::{Millis, Mishap};

impl World {
    /// One of the live nodes, by any number.
    pub(crate) fn someone(&self, number: usize) -> Option<Who> {
        let alive: Vec<Who> = (0..self.nodes.len()).filter(|who| self.nodes[*who].alive).collect();
        alive.get(number % alive.len().max(1)).copied()
    }

    pub(crate) fn goes(&mut self, mishap: Mishap) -> Verdict {
        if self.healed {
            return Ok(());
        }
        tell!(self, "--- {mishap:?}");
        match mishap {
            Mishap::Arrive => return self.comes(),
            Mishap::Restart(away, forgetful) => {
                let memory = if forgetful { Memory::Compacted } else { Memory::Whole };
                self.server_down(away, memory);
            }
            Mishap::Forget(away) => self.server_down(away, Memory::None),
            Mishap::Compact => {
                if !self.server.down {
                    self.compact();
                    for who in 0..self.nodes.len() {
                        if self.nodes[who].alive && !self.nodes[who].cut {
                            self.break_streams(who);
                            self.reconnect(who);
                        }
                    }
                }
            }
            Mishap::Cut(who, time) => {
                if let Some(who) = self.someone(who) {
                    self.cut(who);
                    self.after(time, Happening::Mends(who));
                }
            }
            Mishap::Standstill(who, time) => self.stands_still(who, Still::Launcher, time),
            Mishap::Sleep(who, time) => self.stands_still(who, Still::Everything, time),
            Mishap::Crash(who, death, back) => {
                if let Some(delay) = back {
                    self.after(delay, Happening::Comes);
                }
                if let Some(who) = self.someone(who) {
                    tell!(self, "{} crashes: {death:?}", self.nodes[who].id);
                    return self.dies(who, death);
                }
            }
            Mishap::Suspect(who, whom) => {
                if let (Some(who), Some(whom)) = (self.awake(who), self.someone(whom))
                    && self.top_workers(who).is_some()
                    && who != whom
                {
                    let node = self.nodes[whom].id.clone();
                    tell!(self, "{} suspects {node}", self.nodes[who].id);
                    return self.give(who, NodeInput::Suspect { node });
                }
            }
            Mishap::Reset(who) => {
                if let Some(who) = self.someone(who) {
                    self.resets(who);
                }
            }
            mishap @ (Mishap::Finish(_)
            | Mishap::Return(_)
            | Mishap::WorkersFail(_)
            | Mishap::Close(..)
            | Mishap::Signal(..)) => return self.top_goes(mishap),
        }
        Ok(())
    }

    fn stands_still(&mut self, who: usize, still: Still, time: Millis) {
        if let Some(who) = self.awake(who) {
            self.nodes[who].still = Some(still);
            self.after(time, Happening::Resumes(who));
        }
    }

    pub(crate) fn awake(&self, number: usize) -> Option<Who> {
        self.someone(number).filter(|who| !self.nodes[*who].stands_still())
    }

    /// From now on nothing goes wrong.
    pub(crate) fn heal(&mut self) -> Verdict {
        tell!(self, "--- all is well from now on");
        self.healed = true;
        self.server_up(self.server.memory)?;
        for who in 0..self.nodes.len() {
            self.mends(who);
            self.resumes(who)?;
        }
        Ok(())
    }
}
