//! What a seed stands for. Rates are drawn per run and are often nothing at all: a run with one kind of
//! trouble goes deeper into it than a run with a little of each.

use std::time::Duration;

use rallypoint_core::agent::Settings;

use crate::random::Random;

/// Milliseconds of virtual time.
pub(crate) type Millis = u64;

/// A wrong way to drive an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    /// Says that workers are gone as soon as they are told to go.
    StopsTooSoon,
    /// Takes no notice when workers must go sooner than was said first.
    ForgetsHaste,
    /// Lets the budget grant everything.
    GrantsEveryRestart,
    /// Tells nobody of lost peers.
    LosesNews,
}

/// Something that happens to a node, which is named by a number modulo how many there are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mishap {
    /// Its process is killed.
    Crash(usize),
    /// It is cut off from the others for so long.
    Cut(usize, Millis),
    /// Its launcher gets this signal, perhaps twice.
    Signal(usize, i32, bool),
    /// A new node comes.
    Arrive,
    /// An operator closes the run.
    Close,
}

/// Everything that a seed decides before the run begins.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) broken: Broken,
    pub(crate) settings: Settings,
    pub(crate) max_restarts: u32,
    pub(crate) nodes: usize,
    pub(crate) min: usize,
    pub(crate) max: usize,
    /// How long things go wrong.
    pub(crate) chaos: Millis,
    pub(crate) mishaps: Vec<(Millis, Mishap)>,
    /// The longest delay of any news.
    pub(crate) delay: Millis,
    /// A node that lost its session must be gone after so long.
    pub(crate) fence: Millis,
    /// How long a node waits for a group.
    pub(crate) patience: Millis,
    /// How long workers work.
    pub(crate) work: Millis,
    /// How many workers in a thousand fail, and how many of these say that a restart is no use.
    pub(crate) failing: u64,
    pub(crate) hopeless: u64,
    /// How many in a thousand do not heed a signal, and how many cannot even be killed.
    pub(crate) stubborn: u64,
    pub(crate) undying: u64,
    /// How many starts, placements and barriers in a thousand fail.
    pub(crate) trouble: u64,
}

impl Plan {
    pub(crate) fn of(random: &mut Random, broken: Broken) -> Self {
        let nodes = random.between(1, 5) as usize;
        let min = random.between(1, nodes as u64) as usize;
        let max = random.between(min as u64, nodes as u64 + 1) as usize;
        let chaos = random.between(1, 8_000);
        let mishaps = (0..random.below(6)).map(|_| {
            let when = random.between(0, chaos);
            (when, Self::mishap(random))
        });
        let mishaps = mishaps.collect();
        let millis = |random: &mut Random, from: &[u64]| Duration::from_millis(random.pick(from));
        Self {
            broken,
            settings: Settings {
                host: "host".into(),
                local_workers: random.between(1, 3) as u32,
                shutdown_timeout: millis(random, &[0, 100, 2_000]),
                notice: millis(random, &[0, 0, 300, 1_500]),
                exit_barrier: random.chance(500).then(|| Duration::from_millis(700)),
                settle: millis(random, &[0, 50, 1_000]),
                no_restart_exit_code: random.chance(800).then_some(78),
            },
            max_restarts: random.below(4) as u32,
            nodes,
            min,
            max,
            chaos,
            mishaps,
            delay: random.pick(&[0, 5, 50]),
            fence: random.pick(&[150, 500, 1_250]),
            patience: random.pick(&[10_000, 60_000]),
            work: random.pick(&[100, 1_000, 6_000]),
            failing: random.pick(&[0, 50, 400]),
            hopeless: random.pick(&[0, 0, 200]),
            stubborn: random.pick(&[0, 200, 900]),
            undying: random.pick(&[0, 0, 0, 20]),
            trouble: random.pick(&[0, 0, 100]),
        }
    }

    fn mishap(random: &mut Random) -> Mishap {
        let who = random.below(1 << 10);
        match random.below(12) {
            0..=2 => Mishap::Crash(who),
            3..=5 => Mishap::Cut(who, random.pick(&[10, 700, 4_000])),
            6 | 7 => Mishap::Signal(who, random.pick(&[2, 15]), random.chance(300)),
            11 => Mishap::Close,
            _ => Mishap::Arrive,
        }
    }
}
