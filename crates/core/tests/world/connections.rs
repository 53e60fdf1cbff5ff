//! The liveness connections between members and rank 0, by which each side detects the death of the other long before
//! its lease expires, and how a death is proved.

use rallypoint_core::kv::LeaseId;

use super::broken;
use super::events::{Delivery, Message, SimEvent, Who, World, tell};
use super::invariants::Verdict;
use super::plan::{Death, Millis};

/// How long the guard takes to kill the workers of a dead launcher.
const KILLING: Millis = 50;

/// How long it takes to prove a death, once the workers are dead.
const PROVING: (Millis, Millis) = (5, 60);

impl World {
    /// The node dies without leaving. Its peers see their connections close, unless the host has vanished.
    pub(crate) fn dies(&mut self, who: Who, death: Death) -> Verdict {
        let lease = self.nodes[who].session.as_ref().map(|session| session.lease);
        let seen = self.plan.connected && death == Death::Killed;
        let peers = if seen { self.drops(who) } else { Vec::new() };
        let slept = self.nodes[who].has_still_workers();
        self.ends(who, false);
        if death == Death::Silent {
            return self.top_killed(who);
        }
        // Workers do not die before their launcher.
        let killed = self.random.between(0, KILLING);
        if slept {
            // They do not run before their guard does, which kills them first.
            self.top_killed(who)?;
        }
        self.after(killed, SimEvent::GuardKills(who));
        let provable = self.proofs() && !peers.is_empty();
        if let Some(lease) = lease.filter(|_| provable) {
            let proved = self.random.between(PROVING.0, PROVING.1);
            self.after(killed + proved, SimEvent::Proves(who, lease, peers));
        }
        Ok(())
    }

    /// Whether deaths are proved in this run.
    pub(crate) fn proofs(&self) -> bool {
        self.plan.proofs && !broken::has_no_proofs(self.broken)
    }

    /// One of the peers finds that the guard's socket refuses connections, and revokes the lease of the dead node, once a
    /// peer can reach the server.
    pub(crate) fn proves(&mut self, dead: Who, lease: LeaseId, peers: Vec<Who>) -> Verdict {
        self.hear_of_death(dead, &peers)?;
        let able = |who: &Who| {
            let node = &self.nodes[*who];
            node.alive && !node.cut && !node.stands_still()
        };
        let at = self.nodes[dead].at.filter(|at| !self.servers[*at].down);
        if let Some(at) = at.filter(|_| peers.iter().any(able)) {
            tell!(self, "{} is proved dead", self.nodes[dead].id);
            return self.arrives(dead, at, Message::Revoke { lease });
        }
        if peers.iter().any(|who| self.nodes[*who].alive) {
            self.after(100, SimEvent::Proves(dead, lease, peers));
        }
        Ok(())
    }

    /// The node's connections are reset, and both ends suspect each other.
    pub(crate) fn resets(&mut self, who: Who) {
        for peer in self.drops(who) {
            self.after(0, SimEvent::Delivered(who, Delivery::Dropped { peer }));
        }
    }

    /// Breaks the node's connections, which its peers notice. Returns the peers.
    fn drops(&mut self, who: Who) -> Vec<Who> {
        let peers: Vec<Who> =
            (0..self.nodes.len()).filter(|peer| self.are_connected(who, *peer)).collect();
        for peer in &peers {
            let delay = self.delay();
            self.after(delay, SimEvent::Delivered(*peer, Delivery::Dropped { peer: who }));
        }
        peers
    }

    /// Rank 0 serves its store until it is a member of another group; the members hold their connections until they
    /// enter.
    fn are_connected(&self, one: Who, other: Who) -> bool {
        let Some(group) = self.nodes[one].last_group else { return false };
        let ranks = &self.inspector.group(group).ranks;
        let leads = |who: Who| ranks.get(&self.nodes[who].id) == Some(&0);
        let of_it = |who: Who| self.nodes[who].alive && self.nodes[who].last_group == Some(group);
        let serves = |who: Who| of_it(who) && leads(who) && !self.top_is_leaving(who);
        let holds = |who: Who| of_it(who) && !leads(who) && self.top_holds(who);
        (serves(one) && holds(other)) || (serves(other) && holds(one))
    }
}
