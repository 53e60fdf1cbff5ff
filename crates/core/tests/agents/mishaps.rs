//! What happens to nodes.

use std::time::Duration;

use rallypoint_core::agent::{Closing, Input};

use crate::invariants::Verdict;
use crate::plan::{Millis, Mishap};
use crate::world::{Happening, Node, Who, World};

impl World {
    pub(crate) fn goes(&mut self, mishap: Mishap) -> Verdict {
        let someone = |number: usize, world: &Self| {
            let there: Vec<Who> =
                (0..world.nodes.len()).filter(|who| world.nodes[*who].takes_part()).collect();
            there.get(number % there.len().max(1)).copied()
        };
        match mishap {
            Mishap::Arrive => return self.arrives(),
            Mishap::Close => {
                self.closes("an operator".into(), Closing::from_reason("enough"));
            }
            Mishap::Crash(number) => {
                if let Some(who) = someone(number, self) {
                    self.crashes(who);
                }
            }
            Mishap::Cut(number, time) => {
                if let Some(who) = someone(number, self) {
                    self.is_cut_off(who, time);
                }
            }
            Mishap::Signal(number, signal, twice) => {
                if let Some(who) = someone(number, self) {
                    self.nodes[who].signalled = true;
                    if twice {
                        self.after(20, Happening::Told(who, Input::Signal(signal)));
                    }
                    return self.give(who, Input::Signal(signal));
                }
            }
        }
        Ok(())
    }

    fn arrives(&mut self) -> Verdict {
        self.nodes.push(Node::new(self.plan.settings.clone()));
        self.give(self.nodes.len() - 1, Input::Begin)
    }

    /// The process is killed, and its workers die with it. The others learn it when its lease is over.
    fn crashes(&mut self, who: Who) {
        let round = self.round_of(who);
        let node = &mut self.nodes[who];
        node.alive = false;
        node.joined = false;
        node.crew = None;
        self.loses_session(who);
        self.shakes(who, round);
    }

    fn is_cut_off(&mut self, who: Who, time: Millis) {
        let deadline = self.now + self.plan.fence;
        let node = &mut self.nodes[who];
        node.cut_until = self.now + time;
        node.fenced = Some(deadline);
        node.joined = false;
        let again = node.meeting;
        let deadline = Duration::from_millis(deadline);
        self.loses_session(who);
        self.tell(who, Input::SessionLost { deadline, reason: "silence".into() });
        if let Some(visit) = again {
            // A meeting sees to its own session.
            self.nodes[who].fenced = None;
            self.after(time, Happening::Joins(who, visit));
        }
        let round = self.round_of(who);
        self.shakes(who, round);
    }

    fn loses_session(&mut self, who: Who) {
        self.nodes[who].leased_until = Some(self.now + self.plan.fence);
        let round = self.round_of(who);
        self.after(self.plan.fence, Happening::Lost(who, round));
    }
}
