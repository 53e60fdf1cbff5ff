//! Hosts that succeed each other as servers: the plans of these runs, and what must hold when all faults are over.

use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::documents::Limits;
use rallypoint_core::rendezvous::sizes::SizeRules;
use rallypoint_core::rendezvous::succession::Succession;
use rallypoint_core::rendezvous::succession::claims::Claims;
use rallypoint_core::rendezvous::succession::quorum::{Ancestors, Claimant};

use crate::world::events::{Who, World};
use crate::world::invariants::Verdict;
use crate::world::plan::{Death, Fault, FaultFilter, Millis, Plan};
use crate::world::random::Random;
use crate::world::succession::Split;

/// The time within which the run must become stable after the last fault, besides that of a few stops.
const PATIENCE: Millis = 90_000;

/// The plan of a run.
pub(crate) fn plan(random: &mut Random) -> Plan {
    let plan = Plan::of(random, FaultFilter::Kind, fault);
    let nodes = random.pick(&[3, 3, 4, 5, 5, 6, 7]);
    let hosts = random.pick(&[3, 3, 3, 4, 5]).min(nodes);
    let min = random.pick(&[1, 1, 2, nodes / 2, nodes / 2 + 1]).max(1);
    let max = random.pick(&[nodes, nodes, nodes, nodes - 1, nodes + 1]).max(hosts).max(min);
    let chaos = random.between(4_000, 25_000);
    let mut faults = Vec::new();
    for _ in 0..random.between(1, 7) {
        let fault = fault(random, u64::MAX);
        faults.push((random.between(0, chaos), fault));
    }
    let mut config = plan.config;
    config.limits = Limits { min, max };
    // A group that shrinks to its next size may have less than a quorum of the last one.
    let planned = config.sizes.planned.map(|_| min.midpoint(max));
    config.sizes = SizeRules { planned, ..SizeRules::default() };
    config.succession = Some(Succession { hosts: hosts as u32, votes: false });
    config.timeout = std::time::Duration::from_secs(600);
    config.server_timeout = std::time::Duration::from_secs(600);
    Plan {
        config,
        nodes,
        servers: hosts,
        chaos,
        faults,
        deaf: 0,
        steps: 200_000 + 40_000 * nodes as u64,
        funeral: false,
        farewell: false,
        ..plan
    }
}

/// One fault.
fn fault(random: &mut Random, _: u64) -> Fault {
    let who = random.below(1 << 20);
    let long = random.pick(&[300, 1_500, 2_500, 6_000, 12_000]);
    let back = random.chance(600).then(|| random.between(1, 6_000));
    let death = if random.chance(600) { Death::Killed } else { Death::Silent };
    let seed = random.next();
    match random.below(16) {
        0..=2 => Fault::HeadCrash(death, back),
        3 | 4 => Fault::Split(Split::Head(random.below(4)), seed, long),
        5 => Fault::Split(Split::Parts(2), seed, long),
        6 => Fault::Split(Split::Parts(3), seed, long),
        7 => Fault::Split(Split::OneWay, seed, long),
        8 => Fault::Crash(who, death, back),
        9 => Fault::Standstill(who, long),
        10 => Fault::Sleep(who, long),
        11 => Fault::Arrive,
        12 => Fault::WorkersFail(who),
        13 => Fault::Finish(who),
        14 => Fault::Return(who),
        _ => Fault::Reset(who),
    }
}

impl World {
    pub(crate) fn whole_succession(&mut self) -> Verdict {
        self.run_until(self.plan.chaos.max(self.plan.gathering))?;
        self.heal()?;
        self.settle_unless(PATIENCE, |world| !world.must_go_on())
    }

    /// Whether a group has to form: a quorum lives, and its nodes know of which group.
    fn must_go_on(&self) -> bool {
        self.has_quorum() && !self.is_undecided()
    }

    /// Whether the job waits although a quorum of its last group lives: a later round may have formed a group, and only
    /// dead nodes, or a response that was lost, could tell.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.inspector.groups.is_empty() && self.has_quorum() && self.is_undecided()
    }

    /// Whether the living nodes, if all of them met, would be too few of a group that has formed, or may have.
    fn is_undecided(&self) -> bool {
        let living = self.living();
        let node = |who: &Who| (self.nodes[*who].id.as_str(), self.nodes[*who].rendezvous.claims());
        let claims: Vec<(&str, Claims)> = living.iter().map(node).collect();
        let all: Vec<Claimant<'_>> = claims
            .iter()
            .map(|(id, claims)| Claimant { id, claims, since: Time::ZERO, chosen: true })
            .collect();
        let ttl = self.plan.config.lease_ttl;
        Ancestors::of(&all, None, None, 0).quorum(&all, ttl).lack.is_some()
    }

    /// Whether more than half of the last group lives, and a host that may serve.
    fn has_quorum(&self) -> bool {
        let living = self.living();
        let serves = living.iter().any(|who| self.nodes[*who].host < self.servers.len());
        if living.len() < self.plan.config.limits.min || !serves {
            return false;
        }
        match self.inspector.groups.len().checked_sub(1) {
            Some(last) => {
                let group = self.inspector.group(last);
                let of_it = |who: &&Who| self.nodes[**who].claim == Some(last);
                2 * living.iter().filter(of_it).count() > group.ranks.len()
            }
            None => {
                let votes = |who: &&Who| self.nodes[**who].host < self.servers.len();
                living.iter().any(|who| self.nodes[*who].host == 0)
                    && 2 * living.iter().filter(votes).count() > self.servers.len()
            }
        }
    }
}
