//! What a seed decides before a run: its configuration, the quality of the network, and the faults.
//!
//! Fault rates are drawn per run, not per step, and are often zero: a run with one kind of fault explores it more deeply
//! than a run with a few of each.

use std::time::Duration;

use rallypoint_core::rendezvous::NodeConfig;
use rallypoint_core::rendezvous::documents::Limits;
use rallypoint_core::rendezvous::keys::{DEFAULT_PREFIX, Keys};
use rallypoint_core::rendezvous::ranks::POLICIES;
use rallypoint_core::rendezvous::sizes::{SizeRules, Steps};

use super::random::Random;
use super::succession::Split;

/// Milliseconds of virtual time.
pub(crate) type Millis = u64;

/// The lease that outlives every node.
pub(crate) const RUN_LEASE: i64 = 1;

/// How long the workers of a node may take to stop: 30 s is the default of `--shutdown-timeout`.
const STOPS: [&[Millis]; 5] = [
    &[0],
    &[0, 30],
    &[0, 30, 1_000],
    &[0, 30, 1_000, 4_000],
    &[0, 30, 1_000, 4_000, 15_000, 30_000],
];

/// How a node's process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// The launcher is killed: its connections close, and its guard kills the workers a moment later.
    Killed,
    /// The host vanishes with its workers, and no peer sees a connection close.
    Silent,
}

/// A fault, or an action of an agent. Nodes are chosen by a number, modulo the number of nodes at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The node is partitioned from the server for this long.
    Cut(usize, Millis),
    /// The launcher is suspended for this long; its guard and its workers go on.
    Standstill(usize, Millis),
    /// The whole node is suspended for this long: launcher, guard and workers.
    Sleep(usize, Millis),
    /// The node's process dies; a new one starts after this long, if ever.
    Crash(usize, Death, Option<Millis>),
    /// A new node starts.
    Arrive,
    /// The server is down for this long, and perhaps compacts its history of changes.
    Restart(Millis, bool),
    /// The server compacts its history of changes, and all connections break.
    Compact,
    /// A server in memory is killed, and another one starts after this long: all state is lost.
    Forget(Millis),
    /// The agent finishes.
    Finish(usize),
    /// The agent leaves and comes back as the same node.
    Return(usize),
    /// A worker of the node fails.
    WorkersFail(usize),
    /// The agent reports another node.
    Suspect(usize, usize),
    /// The node's connections to others of its group are reset, and all of them live.
    Reset(usize),
    /// The agent closes the run, and opens it again after this long, if ever.
    Close(usize, Option<Millis>),
    /// Hosts are separated for this long.
    Split(Split, u64, Millis),
    /// The host of the server crashes; another process starts there after this long, if ever.
    HeadCrash(Death, Option<Millis>),
    /// The launcher gets this signal, perhaps twice.
    Signal(usize, i32, bool),
}

/// Restricts a run to one kind of fault, to see its effect alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultFilter {
    Everything,
    /// No slow stops, no suspended nodes, no server that loses its state.
    Kind,
    /// Connections to rank 0 are reset, while workers take their time to stop.
    Reset,
    /// Workers take their time to stop; there are reasons to meet again, and nothing fails.
    SlowStop,
    /// Workers take their time to stop, and nodes are partitioned from the server.
    Cut,
    /// A launcher is suspended, and its workers go on.
    Standstill,
    /// A server loses its state.
    Forget,
}

impl FaultFilter {
    /// The filter of this name, as users of the tests write it.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "" => Self::Everything,
            "kind" => Self::Kind,
            "reset" => Self::Reset,
            "slow-stop" => Self::SlowStop,
            "cut" => Self::Cut,
            "standstill" => Self::Standstill,
            "forget" => Self::Forget,
            other => panic!("{other:?}: give kind, reset, slow-stop, cut, standstill or forget"),
        }
    }

    fn allows(self, fault: Fault) -> bool {
        use Fault::{Arrive, Forget, Reset, Return, Sleep, Standstill, WorkersFail};
        match self {
            Self::Everything => true,
            Self::Kind => !matches!(fault, Standstill(..) | Sleep(..) | Forget(_)),
            Self::Reset => matches!(fault, Reset(_)),
            Self::SlowStop => matches!(fault, Arrive | WorkersFail(_) | Return(_)),
            Self::Cut => matches!(fault, Fault::Cut(..) | Arrive | WorkersFail(_)),
            Self::Standstill => matches!(fault, Standstill(..) | Arrive),
            Self::Forget => matches!(fault, Forget(_) | Arrive | WorkersFail(_)),
        }
    }

    /// How long workers take to stop.
    fn stops(self, random: &mut Random) -> &'static [Millis] {
        match self {
            Self::Everything => STOPS[random.below(STOPS.len())],
            Self::Reset | Self::SlowStop | Self::Cut => STOPS[STOPS.len() - 1],
            Self::Kind | Self::Standstill | Self::Forget => STOPS[random.below(2)],
        }
    }
}

/// The quality of the network.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Network {
    /// The longest delay of a message.
    pub(crate) delay: Millis,
    /// Messages in a thousand that are lost.
    pub(crate) loss: u64,
    /// Messages in a thousand that are duplicated.
    pub(crate) twice: u64,
    /// The longest delay of a duplicate.
    pub(crate) later: Millis,
    /// How long a request waits for its reply before it is retried.
    pub(crate) retry: Millis,
}

/// Everything that a seed decides before the run begins.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) config: NodeConfig,
    /// The nodes' leases, in seconds.
    pub(crate) ttl: i64,
    pub(crate) nodes: usize,
    /// The number of servers.
    pub(crate) servers: usize,
    /// The time within which the nodes start.
    pub(crate) gathering: Millis,
    pub(crate) network: Network,
    /// How long faults are injected.
    pub(crate) chaos: Millis,
    pub(crate) faults: Vec<(Millis, Fault)>,
    /// Bootstrap stores in a thousand that fail to start.
    pub(crate) deaf: u64,
    /// Members hold liveness connections to rank 0, so that most deaths are detected at once.
    pub(crate) connected: bool,
    /// A peer that detects a death by its connection proves it, and revokes the lease of the dead node.
    pub(crate) proofs: bool,
    /// How long workers take to stop: each node has one of these.
    pub(crate) stops: &'static [Millis],
    /// Workers stop when the run is closed, and need not when it is not.
    pub(crate) stops_when_closed: bool,
    /// The number of events after which the run counts as a livelock.
    pub(crate) steps: u64,
    /// A member dies when the group is stable, to check that the group is told.
    pub(crate) funeral: bool,
    /// In the end every node leaves, to check which keys remain.
    pub(crate) farewell: bool,
}

/// The rules for the size of the group: none in half of the runs. Of bits that decide nothing else, so that the seeds
/// keep their meaning.
fn sizes(bits: u64, limits: Limits) -> SizeRules {
    let choice = |at: u32, of: u64| (bits >> at & 0xff) % of;
    let every_other = || Steps::Only((limits.min..=limits.max).step_by(2).collect());
    let steps = match choice(24, 8) {
        0 => Steps::Unit(2),
        1 => Steps::Unit(3),
        2 => every_other(),
        3 => Steps::Only(vec![limits.min, limits.max]),
        _ => Steps::Every,
    };
    let rules = SizeRules {
        steps,
        planned: (choice(32, 4) == 0).then_some(limits.min.midpoint(limits.max)),
        scale_up_after_ms: [0, 0, 0, 0, 0, 700, 3_000, 9_000][choice(40, 8) as usize],
    };
    if rules.check(limits).is_ok() { rules } else { SizeRules::default() }
}

/// Draws one fault of the kinds that a run has.
pub(crate) type Draw = fn(&mut Random, u64) -> Fault;

impl Plan {
    pub(crate) fn of(random: &mut Random, only: FaultFilter, draw: Draw) -> Self {
        let nodes = match random.below(100) {
            0 => random.between(13, 40),
            1..=9 => random.between(6, 12),
            _ => random.between(2, 5),
        } as usize;
        let chaos = random.between(1, if nodes > 12 { 6_000 } else { 15_000 });
        let network = Network {
            delay: random.pick(&[2, 20, 20, 150, 700]),
            loss: random.pick(&[0, 0, 10, 100, 250]),
            twice: random.pick(&[0, 0, 30, 200]),
            later: random.pick(&[50, 1_000, 8_000]),
            retry: random.pick(&[200, 500, 1_500]),
        };
        let mut faults = Vec::new();
        let kinds = random.next();
        for _ in 0..random.below(8) {
            let mut fault = draw(random, kinds);
            while !only.allows(fault) {
                fault = draw(random, u64::MAX);
            }
            faults.push((random.between(0, chaos), fault));
        }
        let min = match random.below(3) {
            0 => 1,
            1 => nodes,
            _ => random.between(1, nodes as u64) as usize,
        };
        // A third of the runs have more nodes than places.
        let (min, max) = match random.below(6) {
            0 | 1 if nodes > 1 => {
                let max = random.between(1, nodes as u64 - 1) as usize;
                (min.min(max), max)
            }
            2 => (min, min),
            3 => (min, random.between(min as u64, nodes as u64) as usize),
            _ => (min, nodes + 1),
        };
        let last_call = random.pick(&[0, 300, 1_000, 3_000]);
        let ttl = random.pick(&[2, 2, 3, 5]);
        // The handler gives nodes the time of a lease to confirm. Others may be less patient.
        let confirm = match only {
            FaultFilter::Everything => random.pick(&[500, 1_000, 3_000, 1_000 * ttl]),
            _ => 1_000 * ttl,
        };
        let stops = only.stops(random);
        // With less than a few rounds' time, coordinators give up before their rounds are over; and whoever
        // waits for a group must have the time that the workers of others take to stop.
        let shortest = 3 * (last_call + confirm) + 3_000;
        let timeout = random.pick(&[shortest, 30_000, 60_000, 60_000]);
        let timeout = timeout + stops.iter().copied().max().unwrap_or(0);
        Self {
            config: NodeConfig {
                keys: Keys::new(DEFAULT_PREFIX, "sim"),
                run_lease: RUN_LEASE,
                limits: Limits { min, max },
                sizes: sizes(kinds, Limits { min, max }),
                timeout: Duration::from_millis(timeout),
                // Of a bit that decides nothing else, so that the seeds keep their meaning.
                server_timeout: Duration::from_millis([2_000, timeout][(kinds >> 63) as usize]),
                last_call: Duration::from_millis(last_call),
                confirm: Duration::from_millis(confirm),
                lease_ttl: Duration::from_secs(ttl),
                rank_policy: POLICIES[random.below(POLICIES.len())].1,
                sole: false,
                succession: None,
                started: None,
                keeps_events: true,
            },
            ttl: ttl as i64,
            nodes,
            servers: 1,
            gathering: random.pick(&[0, 50, 1_000, 4_000]),
            network,
            chaos,
            faults,
            deaf: random.pick(&[0, 0, 0, 100]),
            connected: random.chance(500),
            proofs: random.chance(700),
            stops,
            stops_when_closed: random.chance(500),
            steps: 4_000 * nodes as u64 + 40_000,
            funeral: random.chance(400),
            farewell: random.chance(250),
        }
    }

    /// A group too large for one transaction, which loses a member.
    pub(crate) fn large(random: &mut Random, draw: Draw) -> Self {
        let plan = Self::of(random, FaultFilter::Kind, draw);
        let limits = Limits { min: 200, max: 290 };
        let timeout = Duration::from_secs(60);
        let last_call = Duration::from_secs(2);
        let confirm = Duration::from_secs(3);
        let crash = Fault::Crash(7, Death::Killed, None);
        Self {
            config: NodeConfig {
                limits,
                sizes: SizeRules::default(),
                timeout,
                last_call,
                confirm,
                ..plan.config
            },
            network: Network { delay: 50, loss: 10, twice: 10, later: 1_000, retry: 500 },
            faults: vec![(3_000, crash), (5_000, Fault::WorkersFail(9))],
            chaos: 8_000,
            steps: 1_000_000,
            deaf: 0,
            funeral: true,
            farewell: true,
            ..plan
        }
    }

    /// The time to live of a node's lease.
    pub(crate) fn ttl_millis(&self) -> Millis {
        self.ttl.unsigned_abs() * 1_000
    }

    /// After so much of it, from the sending of the last acknowledged renewal, no worker may live.
    pub(crate) fn fence(&self) -> Millis {
        let ttl = self.ttl_millis();
        ttl - ttl / 16
    }

    /// The longest that the workers of any node take to stop.
    pub(crate) fn slowest(&self) -> Millis {
        self.stops.iter().copied().max().unwrap_or(0)
    }
}
