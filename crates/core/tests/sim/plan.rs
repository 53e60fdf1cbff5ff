//! What a seed stands for: the settings of the run, how bad the network is, and what happens when.
//!
//! Rates are drawn per run, not per step, and are often nothing at all: a run with one kind of fault
//! goes deeper into it than a run with a little of each.

use std::time::Duration;

use rallypoint_core::rendezvous::Settings;
use rallypoint_core::rendezvous::gate::Limits;
use rallypoint_core::rendezvous::keys::{DEFAULT_PREFIX, Keys};
use rallypoint_core::rendezvous::ranks::POLICIES;

use crate::random::Random;

/// Milliseconds of virtual time.
pub(crate) type Millis = u64;

/// The lease that outlives every node.
pub(crate) const RUN_LEASE: i64 = 1;

/// Something that goes wrong, or that an agent takes into its head. Nodes are named by a number that
/// is taken modulo how many there are at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// The node and the server do not reach each other for so long.
    Cut(usize, Millis),
    /// The node stands still for so long.
    Pause(usize, Millis),
    /// The node's process is gone; a new one comes after so long, if ever.
    Crash(usize, Option<Millis>),
    /// A new node comes.
    Arrive,
    /// The server is away for so long; it forgets its history if told to.
    Restart(Millis, bool),
    /// The server forgets its history, and all connections break.
    Compact,
    /// The agent finishes.
    Finish(usize),
    /// The agent leaves and comes back as the same node.
    Return(usize),
    /// The agent's workers fail.
    WorkersFail(usize),
    /// The agent reports another node.
    Suspect(usize, usize),
    /// The node's connections to others of its group break, and all of them live.
    Break(usize),
    /// The agent closes the run, and opens it again after so long, if ever.
    Close(usize, Option<Millis>),
}

/// How bad the network is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Network {
    /// The longest delay of a message.
    pub(crate) delay: Millis,
    /// How many in a thousand are lost.
    pub(crate) loss: u64,
    /// How many in a thousand come twice.
    pub(crate) twice: u64,
    /// How much later the second may come.
    pub(crate) later: Millis,
    /// How long a request waits for its answer before it is sent again.
    pub(crate) retry: Millis,
}

/// Everything that a seed decides before the run begins.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    /// The nodes' leases, in seconds.
    pub(crate) ttl: i64,
    pub(crate) nodes: usize,
    /// The nodes come within this time.
    pub(crate) gathering: Millis,
    pub(crate) network: Network,
    /// How long things go wrong.
    pub(crate) chaos: Millis,
    pub(crate) mishaps: Vec<(Millis, Mishap)>,
    /// How many in a thousand attempts to listen fail.
    pub(crate) deaf: u64,
    /// Members hold connections to rank 0, so that most deaths are noticed at once.
    pub(crate) connected: bool,
    /// How long workers take to stop.
    pub(crate) stopping: Millis,
    /// More happenings than this mean that somebody goes round in circles.
    pub(crate) steps: u64,
    /// A member dies when all is well, to see that it is told.
    pub(crate) funeral: bool,
    /// In the end everybody leaves, to see what is left.
    pub(crate) farewell: bool,
}

impl Plan {
    pub(crate) fn of(random: &mut Random) -> Self {
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
        let mut mishaps = Vec::new();
        let kinds = random.next();
        for _ in 0..random.below(8) {
            let mishap = Self::mishap(random, kinds);
            mishaps.push((random.between(0, chaos), mishap));
        }
        let min = match random.below(3) {
            0 => 1,
            1 => nodes,
            _ => random.between(1, nodes as u64) as usize,
        };
        let max = match random.below(3) {
            0 => min,
            1 => nodes + 1,
            _ => random.between(min as u64, nodes as u64) as usize,
        };
        let last_call = random.pick(&[0, 300, 1_000, 3_000]);
        let confirm = random.pick(&[500, 1_000, 3_000]);
        // With less than a few rounds' time, coordinators give up before their rounds are over.
        let shortest = 3 * (last_call + confirm) + 3_000;
        Self {
            settings: Settings {
                keys: Keys::new(DEFAULT_PREFIX, "sim"),
                run_lease: RUN_LEASE,
                limits: Limits { min, max: max.max(min) },
                timeout: Duration::from_millis(random.pick(&[shortest, 30_000, 60_000, 60_000])),
                last_call: Duration::from_millis(last_call),
                confirm: Duration::from_millis(confirm),
                rank_policy: POLICIES[random.below(POLICIES.len())].1,
            },
            ttl: random.pick(&[2, 2, 3, 5]),
            nodes,
            gathering: random.pick(&[0, 50, 1_000, 4_000]),
            network,
            chaos,
            mishaps,
            deaf: random.pick(&[0, 0, 0, 100]),
            connected: random.chance(500),
            stopping: random.pick(&[0, 20, 400]),
            steps: 2_000 * nodes as u64 + 20_000,
            funeral: random.chance(400),
            farewell: random.chance(250),
        }
    }

    /// A group too large for one transaction, which loses a member.
    pub(crate) fn large(random: &mut Random) -> Self {
        let plan = Self::of(random);
        let limits = Limits { min: 200, max: 290 };
        let timeout = Duration::from_secs(60);
        let last_call = Duration::from_secs(2);
        let confirm = Duration::from_secs(3);
        Self {
            settings: Settings { limits, timeout, last_call, confirm, ..plan.settings },
            network: Network { delay: 50, loss: 10, twice: 10, later: 1_000, retry: 500 },
            mishaps: vec![(3_000, Mishap::Crash(7, None)), (5_000, Mishap::WorkersFail(9))],
            chaos: 8_000,
            steps: 1_000_000,
            deaf: 0,
            funeral: true,
            farewell: true,
            ..plan
        }
    }

    /// One mishap, of the kinds that this run has.
    fn mishap(random: &mut Random, kinds: u64) -> Mishap {
        let who = random.below(1 << 20);
        let long = |random: &mut Random| random.pick(&[300, 1_500, 2_500, 6_000]);
        loop {
            let kind = random.below(14);
            // About half of the kinds.
            if kinds >> kind & 1 == 0 && kinds.trailing_zeros() < 14 {
                continue;
            }
            return match kind {
                0 => Mishap::Cut(who, long(random)),
                1 => Mishap::Pause(who, long(random)),
                2 | 3 => {
                    let back = random.chance(700).then(|| random.between(1, 4_000));
                    Mishap::Crash(who, back)
                }
                4 | 12 => Mishap::Arrive,
                5 => Mishap::Restart(long(random), random.chance(300)),
                6 => Mishap::Compact,
                7 => Mishap::Finish(who),
                8 => Mishap::Return(who),
                9 => Mishap::WorkersFail(who),
                10 => Mishap::Suspect(who, random.below(1 << 20)),
                13 => Mishap::Break(who),
                _ => {
                    let again = random.chance(700).then(|| random.between(100, 4_000));
                    Mishap::Close(who, again)
                }
            };
        }
    }

    /// The time to live of a node's lease.
    pub(crate) fn ttl_millis(&self) -> Millis {
        self.ttl.unsigned_abs() * 1_000
    }
}
