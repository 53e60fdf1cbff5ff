//! Hosts that succeed each other as servers: links between hosts, clocks, and how a node finds a server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::NodeInput;
use rallypoint_core::rendezvous::succession::order::{Course, HostAnswer, choose};

use super::broken::Broken;
use super::events::{At, SimEvent, Timer, Who, World, tell};
use super::invariants::Verdict;
use super::plan::{Death, Millis};
use super::random::Random;

/// A host, by its index. The first hosts may serve. Nodes that come later have hosts of their own, unless they come back.
pub(crate) type Host = usize;

/// How hosts are connected, and how fast their clocks run.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// Messages from the first host do not reach the second.
    blocked: BTreeSet<(Host, Host)>,
    /// The rates of the clocks, in thousandths of the true one.
    rates: Vec<u64>,
    /// Hosts on which a node has tried to confirm a rank.
    pub(crate) voted: BTreeSet<Host>,
    /// The latest group of which each process was told by nodes that asked it.
    told: BTreeMap<Who, u64>,
    /// The number of hosts.
    pub(crate) count: usize,
    /// The number of servers that were opened.
    pub(crate) opened: u64,
}

/// How hosts are separated from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// The host of the server, with this number of other hosts, from all remaining ones.
    Head(usize),
    /// All hosts, into this number of parts.
    Parts(usize),
    /// Some messages do not arrive, in one direction.
    OneWay,
}

impl World {
    /// The time on the clock of a host.
    pub(crate) fn clock(&self, host: Host) -> Time {
        Duration::from_micros(self.now * self.rate(host))
    }

    fn rate(&self, host: Host) -> u64 {
        self.hosts.rates.get(host).copied().unwrap_or(1_000)
    }

    /// When the clock of a host shows this time.
    pub(crate) fn when(&self, host: Host, time: Time) -> Millis {
        (time.as_nanos() as Millis).div_ceil(1_000 * self.rate(host))
    }

    /// The true length of a time that a host measures.
    pub(crate) fn span(&self, host: Host, time: Millis) -> Millis {
        (time * 1_000).div_ceil(self.rate(host))
    }

    pub(crate) fn draw_rates(&mut self, hosts: usize) {
        let rates = (0..hosts).map(|_| self.random.between(981, 1_019)).collect();
        self.hosts.rates = rates;
    }

    /// Whether messages from one host reach another one.
    pub(crate) fn reaches(&self, from: Host, to: Host) -> bool {
        from == to || !self.hosts.blocked.contains(&(from, to))
    }

    /// Whether two hosts reach each other.
    fn are_linked(&self, one: Host, other: Host) -> bool {
        self.reaches(one, other) && self.reaches(other, one)
    }

    /// Whether a node has a connection to a server.
    pub(crate) fn is_linked(&self, who: Who, at: At) -> bool {
        !self.nodes[who].cut
            && (!self.has_succession() || self.are_linked(self.nodes[who].host, at))
    }

    pub(crate) fn has_succession(&self) -> bool {
        self.plan.config.succession.is_some()
    }

    /// The live node on a host that may serve.
    pub(crate) fn server_process(&self, at: At) -> Option<Who> {
        (0..self.nodes.len()).find(|who| self.nodes[*who].alive && self.nodes[*who].host == at)
    }

    /// Whether the process of the server is suspended.
    pub(crate) fn server_stands_still(&self, at: At) -> Option<Who> {
        let process = self.has_succession().then(|| self.server_process(at)).flatten();
        process.filter(|who| self.nodes[*who].stands_still())
    }

    /// The last server that formed a group, or else the first one that is open.
    pub(crate) fn head(&self) -> Option<At> {
        let open = |at: &At| !self.servers[*at].down;
        let last = self.inspector.groups.last().map(|group| group.at).filter(open);
        last.or_else(|| (0..self.servers.len()).find(open))
    }

    pub(crate) fn splits(&mut self, split: Split, seed: u64, time: Millis) {
        let mut random = Random::new(seed);
        let mut hosts: Vec<Host> = (0..self.hosts.count).collect();
        for last in (1..hosts.len()).rev() {
            hosts.swap(last, random.below(last + 1));
        }
        let mut blocked = BTreeSet::new();
        let mut separate = |one: &[Host], other: &[Host]| {
            for (a, b) in one.iter().flat_map(|a| other.iter().map(move |b| (*a, *b))) {
                blocked.extend([(a, b), (b, a)]);
            }
        };
        match split {
            Split::Head(with) => {
                let head = self.head().unwrap_or(0);
                hosts.retain(|host| *host != head);
                hosts.insert(0, head);
                let (one, other) = hosts.split_at(hosts.len().min(1 + with));
                separate(one, other);
            }
            Split::Parts(parts) => {
                let part = |part: usize| -> Vec<Host> {
                    hosts.iter().skip(part).step_by(parts).copied().collect()
                };
                for (one, other) in
                    (0..parts).flat_map(|one| (0..one).map(move |other| (one, other)))
                {
                    separate(&part(one), &part(other));
                }
            }
            Split::OneWay => {
                for _ in 0..random.between(1, 6) {
                    blocked.insert((random.below(hosts.len()), random.below(hosts.len())));
                }
            }
        }
        for link in &blocked {
            self.hosts.blocked.insert(*link);
        }
        for who in 0..self.nodes.len() {
            let node = &self.nodes[who];
            if node.alive && node.at.is_some_and(|at| !self.is_linked(who, at)) {
                self.break_streams(who);
                self.reconnect(who);
            }
        }
        self.after(time, SimEvent::Unblocks(blocked.into_iter().collect()));
    }

    pub(crate) fn unblocks(&mut self, links: &[(Host, Host)]) {
        for link in links {
            self.hosts.blocked.remove(link);
        }
    }

    pub(crate) fn unblocks_all(&mut self) {
        self.hosts.blocked.clear();
    }

    /// The host of the present server crashes.
    pub(crate) fn head_crashes(&mut self, death: Death, back: Option<Millis>) -> Verdict {
        let Some(who) = self.head().and_then(|at| self.server_process(at)) else { return Ok(()) };
        self.comes_back_after(who, back);
        tell!(self, "the head, {}, crashes: {death:?}", self.nodes[who].id);
        self.dies(who, death)
    }

    /// Another process starts on the host of a node.
    pub(crate) fn comes_back_after(&mut self, who: Who, back: Option<Millis>) {
        if let Some(delay) = back {
            let host = self.nodes[who].host;
            self.after(delay, SimEvent::ComesBack(host));
        }
    }

    /// The node looks for a server from time to time, unless it is a member of a group.
    pub(crate) fn seeks_again(&mut self, who: Who) {
        let pause = self.random.between(150, 350);
        self.ring(who, pause, Timer::Seek);
    }

    fn needs_server(&self, who: Who) -> bool {
        let node = &self.nodes[who];
        node.alive && (node.session.is_none() || !node.rendezvous.holds_place())
    }

    /// Asks all hosts of the order.
    pub(crate) fn seeks(&mut self, who: Who) -> Verdict {
        self.seeks_again(who);
        if !self.needs_server(who) {
            return Ok(());
        }
        self.gives_up_right(who);
        let answers = (0..self.servers.len()).map(|at| self.answer(who, at)).collect();
        let delay = self.delay();
        self.after(delay, SimEvent::Sought(who, answers));
        Ok(())
    }

    /// The host learns of the latest group that the node knows of.
    fn answer(&mut self, who: Who, at: At) -> HostAnswer {
        let Some(process) = self.server_process(at) else { return HostAnswer::Silent };
        let own = self.nodes[who].host == at;
        if !own
            && (!self.are_linked(self.nodes[who].host, at) || self.nodes[process].stands_still())
        {
            return HostAnswer::Silent;
        }
        let server = &self.servers[at];
        if !server.down {
            return HostAnswer::Serves { formed: server.right.round() };
        }
        let remembers = |who: Who| self.nodes[who].rendezvous.view(Time::ZERO).remembers;
        let (asks, knows) = (remembers(who), remembers(process));
        let told = self.hosts.told.entry(process).or_default();
        *told = asks.max(*told);
        HostAnswer::StandsBy { remembers: knows.max(*told) }
    }

    pub(crate) fn sought(&mut self, who: Who, answers: &[HostAnswer]) -> Verdict {
        if !self.needs_server(who) {
            return Ok(());
        }
        let host = self.nodes[who].host;
        let own = (host < self.servers.len()).then_some(host);
        let mut course = choose(own, answers);
        if self.broken == Broken::OrderSkipped && own.is_some() {
            course = Course::Open;
        }
        let uses = match course {
            Course::Use(at) => at,
            Course::Open => {
                self.opens(host);
                host
            }
            Course::WaitFor(_) => return Ok(()),
        };
        if let Some(own) = own.filter(|own| *own != uses) {
            self.closes(own);
        }
        if self.nodes[who].at != Some(uses) {
            return self.moves(who, uses);
        }
        Ok(())
    }

    /// Opens the server of a host, without any memory.
    fn opens(&mut self, at: At) {
        if !self.servers[at].down {
            return;
        }
        tell!(self, "host {at} opens its server");
        self.hosts.opened += 1;
        self.inspector.now = self.now;
        self.inspector.forgets(at);
        let era = self.hosts.opened;
        self.servers[at].begins(era, self.plan.config.keys.clone(), self.plan.config.lease_ttl);
        for who in 0..self.nodes.len() {
            if self.nodes[who].alive && self.nodes[who].at == Some(at) {
                self.reconnect(who);
            }
        }
        self.after(self.plan.ttl_millis() / 4, SimEvent::LooksAtRight(at, era));
    }

    /// The server of a host ends, and with it its history.
    pub(crate) fn closes(&mut self, at: At) {
        if self.servers[at].down {
            return;
        }
        tell!(self, "the server of host {at} ends");
        self.servers[at].down = true;
        for who in 0..self.nodes.len() {
            if self.nodes[who].alive && self.nodes[who].at == Some(at) {
                self.break_streams(who);
                self.reconnect(who);
            }
        }
    }

    /// A server that has lost its right ends as soon as its own node has no session.
    fn gives_up_right(&mut self, who: Who) {
        let (at, broken) = (self.nodes[who].host, self.broken);
        if at < self.servers.len() && self.nodes[who].session.is_none() {
            let now = self.clock(at);
            if !self.servers[at].down && !self.servers[at].has_right(broken, now) {
                self.closes(at);
            }
        }
    }

    /// A server ends that has lost its right for too long.
    pub(crate) fn looks_at_right(&mut self, at: At, era: u64) {
        let now = self.clock(at);
        let server = &mut self.servers[at];
        if server.down || server.era != era {
            return;
        }
        if self.broken != Broken::NoSteppingDown && server.right.is_over(now) {
            return self.closes(at);
        }
        self.after(self.plan.ttl_millis() / 4, SimEvent::LooksAtRight(at, era));
    }

    /// The node goes to another server.
    fn moves(&mut self, who: Who, to: At) -> Verdict {
        tell!(self, "{} goes to the server of host {to}", self.nodes[who].id);
        self.leaves_session(who)?;
        let node = &mut self.nodes[who];
        if !node.alive {
            return Ok(());
        }
        node.at = Some(to);
        node.opening = false;
        self.resyncs(who, true);
        Ok(())
    }

    /// Peers have proof that a node is dead: its host refuses a connection to its guard.
    pub(crate) fn hear_of_death(&mut self, dead: Who, peers: &[Who]) -> Verdict {
        let round = self.nodes[dead].last_formed;
        if !self.has_succession() {
            return Ok(());
        }
        let host = self.nodes[dead].host;
        for who in peers.iter().copied() {
            let node = &self.nodes[who];
            if !node.alive || node.stands_still() || !self.are_linked(node.host, host) {
                continue;
            }
            // A server that is open there is that of a later process.
            let served = node.at == Some(host) && self.servers[host].down;
            let id = self.nodes[dead].id.clone();
            self.give(who, NodeInput::ProvedDead { node: id, round })?;
            if served && self.nodes[who].alive {
                self.session_gone(who)?;
            }
        }
        Ok(())
    }
}
