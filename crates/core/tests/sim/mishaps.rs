//! What goes wrong, and how it ends.

use rallypoint_core::rendezvous::Input;

use crate::invariants::Verdict;
use crate::node::Agent;
use crate::plan::Mishap;
use crate::world::{Delivery, Happening, Who, World, tell};

impl World {
    /// One of the live nodes, by any number.
    fn someone(&self, number: usize) -> Option<Who> {
        let alive: Vec<Who> = (0..self.nodes.len()).filter(|who| self.nodes[*who].alive).collect();
        alive.get(number % alive.len().max(1)).copied()
    }

    pub(crate) fn goes(&mut self, mishap: Mishap) -> Verdict {
        if self.healed {
            return Ok(());
        }
        tell!(self, "--- {mishap:?}");
        match mishap {
            Mishap::Arrive => drop(self.comes()),
            Mishap::Restart(away, forgetful) => self.server_down(away, forgetful),
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
            Mishap::Pause(who, time) => {
                if let Some(who) = self.someone(who) {
                    self.nodes[who].paused = true;
                    self.after(time, Happening::Resumes(who));
                }
            }
            Mishap::Crash(who, back) => {
                if let Some(who) = self.someone(who) {
                    tell!(self, "{} crashes", self.nodes[who].id);
                    self.dies(who);
                    if let Some(delay) = back {
                        self.after(delay, Happening::Comes);
                    }
                }
            }
            Mishap::Finish(who) => return self.takes_leave(who, false),
            Mishap::Return(who) => return self.takes_leave(who, true),
            Mishap::WorkersFail(who) => {
                if let Some(who) = self.awake(who)
                    && let Agent::Running(_) = self.nodes[who].agent
                {
                    self.enters_after(who, 0);
                }
            }
            Mishap::Suspect(who, whom) => {
                if let (Some(who), Some(whom)) = (self.awake(who), self.someone(whom))
                    && let Agent::Running(_) = self.nodes[who].agent
                    && who != whom
                {
                    let node = self.nodes[whom].id.clone();
                    tell!(self, "{} suspects {node}", self.nodes[who].id);
                    return self.give(who, Input::Suspect { node });
                }
            }
            Mishap::Break(who) => {
                if let Some(who) = self.someone(who) {
                    for peer in self.drops(who) {
                        self.after(0, Happening::Delivered(who, Delivery::Dropped { peer }));
                    }
                }
            }
            Mishap::Close(who, again) => {
                if let Some(who) = self.awake(who) {
                    tell!(self, "{} closes the run", self.nodes[who].id);
                    return self.close_run(who, again);
                }
            }
        }
        Ok(())
    }

    /// The node dies without a word. Whoever holds a connection to it sees that break.
    pub(crate) fn dies(&mut self, who: Who) {
        if self.plan.connected {
            self.drops(who);
        }
        self.ends(who, false);
    }

    /// Breaks the node's connections, and lets the others know. Returns who they are.
    fn drops(&mut self, who: Who) -> Vec<Who> {
        let peers: Vec<Who> =
            (0..self.nodes.len()).filter(|peer| self.are_connected(who, *peer)).collect();
        for peer in &peers {
            let delay = self.delay();
            self.after(delay, Happening::Delivered(*peer, Delivery::Dropped { peer: who }));
        }
        peers
    }

    /// Rank 0 keeps its store until it is in another group; the others hold on to it until they enter.
    fn are_connected(&self, one: Who, other: Who) -> bool {
        let round = self.nodes[one].last_formed;
        let Some(group) = self.inspector.group(round) else { return false };
        let leads = |who: Who| group.ranks.get(&self.nodes[who].id) == Some(&0);
        let holds = |who: Who| self.nodes[who].agent == Agent::Running(round);
        let serves = |who: Who| {
            let node = &self.nodes[who];
            leads(who) && node.alive && node.last_formed == round && !node.is_leaving()
        };
        (serves(one) && holds(other) && !leads(other))
            || (serves(other) && holds(one) && !leads(one))
    }

    fn awake(&self, number: usize) -> Option<Who> {
        self.someone(number).filter(|who| !self.nodes[*who].paused)
    }

    fn takes_leave(&mut self, number: usize, returns: bool) -> Verdict {
        let Some(who) = self.awake(number) else { return Ok(()) };
        self.leaves(who, returns)
    }

    pub(crate) fn leaves(&mut self, who: Who, returns: bool) -> Verdict {
        if matches!(self.nodes[who].agent, Agent::Leaving { .. }) {
            self.nodes[who].agent = Agent::Leaving { returns };
            return Ok(());
        }
        tell!(self, "{} leaves", self.nodes[who].id);
        self.nodes[who].agent = Agent::Leaving { returns };
        self.give(who, Input::Leave)
    }

    /// From now on nothing goes wrong.
    pub(crate) fn heal(&mut self) -> Verdict {
        tell!(self, "--- all is well from now on");
        self.healed = true;
        self.server_up(false)?;
        for who in 0..self.nodes.len() {
            self.mends(who);
            self.resumes(who)?;
        }
        Ok(())
    }
}
