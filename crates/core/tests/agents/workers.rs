//! The model of processes: they work, fail, are stubborn, and end in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use rallypoint_core::agent::{AgentInput, Exit, Exited, SIGKILL, Start};

use crate::plan::Wrong;
use crate::top::{Alarm, Process};
use crate::world::events::{Timer, Who, World, tell};
use crate::world::inspector::GroupId;
use crate::world::invariants::Verdict;
use crate::world::plan::Millis;

/// How long killed workers may take to be gone before the launcher gives up.
const DEATH: Millis = 1_000;

/// Before every limit of a time without progress.
const LONG_AGO: Duration = Duration::from_secs(10);

/// The processes of one start.
#[derive(Debug)]
pub(crate) struct ModelWorkers {
    pub(crate) attempt: u64,
    pub(crate) round: u64,
    pub(crate) group: GroupId,
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

impl ModelWorkers {
    pub(crate) fn lives(&self) -> bool {
        !self.alive.is_empty()
    }

    /// They were told to go, and have had their time.
    pub(crate) fn is_being_killed(&self, now: Millis) -> bool {
        self.kill_at.is_some_and(|kill_at| kill_at <= now)
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
    /// The group whose workers live at this node. Those that nothing can kill do not count.
    pub(crate) fn top_workers(&self, who: Who) -> Option<GroupId> {
        let workers = self.nodes[who].top.workers.as_ref();
        workers.filter(|workers| workers.lives() && !workers.undying).map(|workers| workers.group)
    }

    pub(crate) fn starts(&mut self, who: Who, start: &Start) -> Verdict {
        let (attempt, round) = (start.attempt, start.group.round);
        let all = self.job.work.settings.local_workers;
        let undying = self.troubled(self.job.work.undying);
        let alive: BTreeSet<u32> = (0..all).collect();
        for local_rank in &alive {
            let failing = self.troubled(self.job.work.failing);
            let exit = if failing { self.some_failure() } else { Exit::Code(0) };
            let work = self.random.between(0, self.job.work.work);
            self.works_after(who, work, Process::Ends(attempt, *local_rank, exit));
        }
        let (ended, noticed, kill_at) = (Vec::new(), false, None);
        let node = &mut self.nodes[who];
        let group = node.last_group.unwrap_or_default();
        node.top.workers = Some(ModelWorkers {
            attempt,
            round,
            group,
            alive,
            all,
            ended,
            noticed,
            kill_at,
            undying,
        });
        if self.troubled(self.job.work.trouble) {
            let reason = "no program".into();
            let not_started = Alarm::Process(AgentInput::NotStarted { attempt, reason });
            self.alarm_in_order(who, 0, not_started);
        }
        self.guard_begins(who)?;
        self.check_running(who)
    }

    fn some_failure(&mut self) -> Exit {
        if self.random.chance(self.job.work.non_retryable) {
            return Exit::Code(78);
        }
        if self.random.chance(300) { Exit::Signal(11) } else { Exit::Code(7) }
    }

    /// One of the node's workers fails now.
    pub(crate) fn fails(&mut self, who: Who) {
        let exit = self.some_failure();
        let workers = self.nodes[who].top.workers.as_ref();
        if let Some((workers, first)) =
            workers.and_then(|workers| Some((workers, *workers.alive.first()?)))
        {
            self.works_after(who, 0, Process::Ends(workers.attempt, first, exit));
        }
    }

    pub(crate) fn top_works(&mut self, who: Who, process: Process) -> Verdict {
        let Process::Ends(attempt, local_rank, exit) = process;
        self.worker_ends(who, attempt, local_rank, exit);
        Ok(())
    }

    /// A process ends by itself, or is killed.
    fn worker_ends(&mut self, who: Who, attempt: u64, local_rank: u32, exit: Exit) {
        let Some(workers) = self.workers_of(who, attempt) else { return };
        if !workers.alive.remove(&local_rank) {
            return;
        }
        let told = workers.kill_at.is_some() || workers.noticed;
        if !told {
            workers.ended.push(exit.clone());
        }
        let round = workers.round;
        tell!(self, "{}: worker {local_rank} ends: {exit:?}", self.nodes[who].id);
        if !exit.is_success() && !told {
            self.shakes(who, round);
        }
        let exited = AgentInput::Exited(Exited { attempt, local_rank, exit, message: None });
        self.alarm_in_order(who, 0, Alarm::Process(exited));
        self.perhaps_stopped(who, attempt);
    }

    /// A worker is gone, and those of other nodes may fail for it.
    fn shakes(&mut self, gone: Who, round: u64) {
        for who in (0..self.nodes.len()).filter(|who| *who != gone) {
            let workers = self.nodes[who].top.workers.as_ref();
            let Some(workers) = workers.filter(|workers| workers.round == round) else { continue };
            let (attempt, ranks) = (workers.attempt, workers.alive.clone());
            for local_rank in ranks {
                if !self.healed && self.random.chance(400) {
                    let delay = self.random.between(0, 300);
                    self.works_after(who, delay, Process::Ends(attempt, local_rank, Exit::Code(1)));
                }
            }
        }
    }

    /// The launcher looks whether its workers make progress.
    pub(crate) fn looks_for_progress(&mut self, who: Who, attempt: u64) {
        let now = self.time();
        let latest = match self.troubled(self.job.work.hanging) {
            true => self.random.chance(500).then(|| now.saturating_sub(LONG_AGO)),
            false => Some(now),
        };
        self.alarm(who, Alarm::Process(AgentInput::Progress { attempt, latest }));
    }

    pub(crate) fn notified(&mut self, who: Who, attempt: u64, stops_at: Millis) {
        let left = stops_at.saturating_sub(self.now);
        let Some(workers) = self.workers_of(who, attempt) else { return };
        workers.noticed = true;
        for local_rank in workers.alive.clone() {
            if self.random.chance(600) {
                let exit = Exit::Code(self.random.pick(&[0, 3]));
                let delay = self.random.between(0, left);
                self.works_after(who, delay, Process::Ends(attempt, local_rank, exit));
            }
        }
    }

    pub(crate) fn stops(&mut self, who: Who, attempt: u64, signal: i32, kill_at: Millis) {
        let forgets = self.job.wrong == Wrong::ForgetsEarlierKill;
        let Some(workers) = self.workers_of(who, attempt) else { return };
        if workers.kill_at.is_some() && forgets {
            return;
        }
        workers.kill_at = Some(kill_at);
        for local_rank in workers.alive.clone() {
            if !self.random.chance(self.job.work.stubborn) {
                let exit =
                    if self.random.chance(200) { Exit::Code(1) } else { Exit::Signal(signal) };
                let delay = self.random.between(0, 60) + self.random.pick(self.plan.stops);
                self.works_after(who, delay, Process::Ends(attempt, local_rank, exit));
            }
        }
        let delay = kill_at.saturating_sub(self.now);
        self.ring(who, delay, Timer::Top(Alarm::Kill(attempt)));
        if self.job.wrong == Wrong::StopsTooSoon {
            self.alarm_in_order(who, 0, Alarm::Process(AgentInput::Stopped { attempt }));
        }
        self.perhaps_stopped(who, attempt);
    }

    /// The launcher kills what is left of its workers, if their time is over.
    pub(crate) fn kills(&mut self, who: Who, attempt: u64) {
        let now = self.now;
        let Some(workers) = self.workers_of(who, attempt) else { return };
        if workers.kill_at.is_none_or(|kill_at| kill_at > now) || !workers.lives() {
            return;
        }
        if workers.undying {
            let last = &mut self.nodes[who].top.workers;
            if let Some(workers) =
                last.as_mut().filter(|workers| workers.kill_at != Some(Millis::MAX))
            {
                workers.kill_at = Some(Millis::MAX);
                let not_stopped =
                    AgentInput::NotStopped { attempt, reason: "in the kernel".into() };
                self.ring(who, DEATH, Timer::Top(Alarm::Process(not_stopped)));
            }
            return;
        }
        for local_rank in workers.alive.clone() {
            self.worker_ends(who, attempt, local_rank, Exit::Signal(SIGKILL));
        }
    }

    /// The guard kills the workers, since the launcher was silent for too long, and lets it know.
    pub(crate) fn top_fenced(&mut self, who: Who) -> Verdict {
        let deadline = self.time();
        let reason = "the guard has killed the workers".to_owned();
        self.alarm_in_order(who, 0, Alarm::Process(AgentInput::SessionLost { deadline, reason }));
        self.top_killed(who)
    }

    /// The guard kills the workers, or they are gone with their host.
    pub(crate) fn top_killed(&mut self, who: Who) -> Verdict {
        let workers = self.nodes[who].top.workers.as_ref().filter(|workers| !workers.undying);
        if let Some((attempt, alive)) =
            workers.map(|workers| (workers.attempt, workers.alive.clone()))
        {
            for local_rank in alive {
                self.worker_ends(who, attempt, local_rank, Exit::Signal(SIGKILL));
            }
        }
        Ok(())
    }

    fn perhaps_stopped(&mut self, who: Who, attempt: u64) {
        let Some(workers) = self.workers_of(who, attempt) else { return };
        if workers.kill_at.is_some() && !workers.lives() {
            self.alarm_in_order(who, 0, Alarm::Process(AgentInput::Stopped { attempt }));
        }
    }

    /// The processes of a start.
    fn workers_of(&mut self, who: Who, attempt: u64) -> Option<&mut ModelWorkers> {
        self.nodes[who].top.workers.as_mut().filter(|workers| workers.attempt == attempt)
    }
}
