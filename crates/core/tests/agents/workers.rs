//! The model of processes: they work, fail, are stubborn, and end in the end.

use std::collections::BTreeSet;

use rallypoint_core::agent::{Exit, Exited, Input, Start};

use crate::plan::{Broken, Millis};
use crate::world::{Happening, Who, World};

/// The processes of one start.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) attempt: u64,
    pub(crate) round: u64,
    alive: BTreeSet<u32>,
    all: u32,
    /// Those that ended before they were told to go, in order.
    ended: Vec<Exit>,
    /// They were told that they will be stopped.
    noticed: bool,
    /// They were told to go, and what is left is killed then.
    kill_at: Option<Millis>,
    /// They cannot be killed.
    pub(crate) undying: bool,
}

impl Crew {
    pub(crate) fn lives(&self) -> bool {
        !self.alive.is_empty()
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.ended.len() == self.all as usize && self.ended.iter().all(Exit::is_success)
    }

    /// How the first one failed.
    pub(crate) fn failed(&self) -> Option<Exit> {
        self.ended.iter().find(|exit| !exit.is_success()).cloned()
    }
}

impl World {
    pub(crate) fn starts(&mut self, who: Who, start: &Start) {
        let (attempt, round) = (start.attempt, start.group.round);
        let all = self.plan.settings.local_workers;
        let undying = self.troubled(self.plan.undying);
        let alive: BTreeSet<u32> = (0..all).collect();
        for local_rank in &alive {
            let failing = self.troubled(self.plan.failing);
            let exit = if failing { self.some_failure() } else { Exit::Code(0) };
            let work = self.random.between(0, self.plan.work);
            self.after(work, Happening::Ends(who, attempt, *local_rank, exit));
        }
        let (ended, noticed, kill_at) = (Vec::new(), false, None);
        self.nodes[who].crew =
            Some(Crew { attempt, round, alive, all, ended, noticed, kill_at, undying });
        if self.troubled(self.plan.trouble) {
            self.tell(who, Input::NotStarted { attempt, reason: "no program".into() });
        }
    }

    fn some_failure(&mut self) -> Exit {
        if self.random.chance(self.plan.hopeless) {
            return Exit::Code(78);
        }
        if self.random.chance(300) { Exit::Signal(11) } else { Exit::Code(7) }
    }

    /// A process ends by itself.
    pub(crate) fn ends(&mut self, who: Who, attempt: u64, local_rank: u32, exit: Exit) {
        let Some(crew) = self.crew_of(who, attempt) else { return };
        if !crew.alive.remove(&local_rank) {
            return;
        }
        let told = crew.kill_at.is_some() || crew.noticed;
        if !told {
            crew.ended.push(exit.clone());
        }
        let round = crew.round;
        if !exit.is_success() && !told {
            self.shakes(who, round);
        }
        let message = None;
        self.tell(who, Input::Exited(Exited { attempt, local_rank, exit, message }));
        self.perhaps_stopped(who, attempt);
    }

    /// A worker is gone, and those of other nodes may fail for it.
    pub(crate) fn shakes(&mut self, gone: Who, round: u64) {
        for who in (0..self.nodes.len()).filter(|who| *who != gone) {
            let Some(crew) = self.nodes[who].crew.as_ref().filter(|crew| crew.round == round)
            else {
                continue;
            };
            let (attempt, ranks) = (crew.attempt, crew.alive.clone());
            for local_rank in ranks {
                if !self.healed && self.random.chance(400) {
                    let delay = self.random.between(0, 300);
                    self.after(delay, Happening::Ends(who, attempt, local_rank, Exit::Code(1)));
                }
            }
        }
    }

    pub(crate) fn notified(&mut self, who: Who, attempt: u64, stops_at: Millis) {
        let left = stops_at.saturating_sub(self.now);
        let Some(crew) = self.crew_of(who, attempt) else { return };
        crew.noticed = true;
        for local_rank in crew.alive.clone() {
            if self.random.chance(600) {
                let exit = Exit::Code(self.random.pick(&[0, 3]));
                let delay = self.random.between(0, left);
                self.after(delay, Happening::Ends(who, attempt, local_rank, exit));
            }
        }
    }

    pub(crate) fn stops(&mut self, who: Who, attempt: u64, signal: i32, kill_at: Millis) {
        let forgets = self.plan.broken == Broken::ForgetsHaste;
        let Some(crew) = self.crew_of(who, attempt) else { return };
        if crew.kill_at.is_some() && forgets {
            return;
        }
        crew.kill_at = Some(kill_at);
        for local_rank in crew.alive.clone() {
            if !self.random.chance(self.plan.stubborn) {
                let exit =
                    if self.random.chance(200) { Exit::Code(1) } else { Exit::Signal(signal) };
                let delay = self.random.between(0, 60);
                self.after(delay, Happening::Ends(who, attempt, local_rank, exit));
            }
        }
        let delay = kill_at.saturating_sub(self.now);
        self.after(delay, Happening::Killed(who, attempt));
        if self.plan.broken == Broken::StopsTooSoon {
            self.tell(who, Input::Stopped { attempt });
        }
        self.perhaps_stopped(who, attempt);
    }

    pub(crate) fn killed(&mut self, who: Who, attempt: u64) {
        let now = self.now;
        let Some(crew) = self.crew_of(who, attempt) else { return };
        if crew.kill_at.is_none_or(|kill_at| kill_at > now) {
            return;
        }
        if crew.undying && crew.lives() {
            self.tell(who, Input::NotStopped { attempt, reason: "in the kernel".into() });
            return;
        }
        for local_rank in crew.alive.clone() {
            self.ends(who, attempt, local_rank, Exit::Signal(9));
        }
    }

    fn perhaps_stopped(&mut self, who: Who, attempt: u64) {
        let Some(crew) = self.crew_of(who, attempt) else { return };
        if crew.kill_at.is_some() && !crew.lives() {
            self.tell(who, Input::Stopped { attempt });
        }
    }

    /// The processes of a start, of a launcher that lives. Others have died with it.
    fn crew_of(&mut self, who: Who, attempt: u64) -> Option<&mut Crew> {
        let node = &mut self.nodes[who];
        let crew = node.crew.as_mut().filter(|crew| crew.attempt == attempt);
        if node.alive { crew } else { None }
    }
}
