//! What a seed stands for besides the world: how the agents are set, how their workers fare, and what goes
//! wrong. Rates are drawn per run and are often nothing at all.

use std::time::Duration;

use rallypoint_core::agent::{AgentSettings, HangPolicy, OnHang, RestartBackoff};

use crate::top::EVICTION;
use crate::world::plan::{Death, Fault, Millis, Plan};
use crate::world::random::Random;

/// A wrong way to drive an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    Nothing,
    /// Says that workers are gone as soon as they are told to go.
    StopsTooSoon,
    /// Takes no notice when workers must go sooner than was said first, with a guard that does not either.
    ForgetsEarlierKill,
    /// Lets the budget grant everything.
    GrantsEveryRestart,
    /// Does not report lost peers.
    LosesEvents,
}

/// How the agents are set, and how their workers fare.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) settings: AgentSettings,
    pub(crate) max_restarts: u32,
    /// The longest delay of an event within a node.
    pub(crate) delay: Millis,
    /// How long workers work.
    pub(crate) work: Millis,
    /// How many workers in a thousand fail, and how many of these say that a restart is no use.
    pub(crate) failing: u64,
    pub(crate) non_retryable: u64,
    /// How many in a thousand do not heed a signal, and how many cannot even be killed.
    pub(crate) stubborn: u64,
    pub(crate) undying: u64,
    /// How many looks in a thousand find no progress.
    pub(crate) hanging: u64,
    /// How many starts and placements in a thousand fail.
    pub(crate) trouble: u64,
}

impl Work {
    pub(crate) fn of(random: &mut Random, plan: &Plan) -> Self {
        let millis = |random: &mut Random, from: &[u64]| Duration::from_millis(random.pick(from));
        let slowest = plan.slowest().max(100);
        Self {
            settings: AgentSettings {
                host: "host".into(),
                local_workers: random.between(1, 3) as u32,
                shutdown_timeout: millis(random, &[0, 100, slowest, slowest]),
                notice: millis(random, &[0, 0, 300, 1_500]),
                exit_barrier: random.chance(500).then(|| Duration::from_millis(700)),
                settle: millis(random, &[0, 50, 1_000]),
                no_restart_exit_code: random.chance(800).then_some(78),
                restart_backoff: RestartBackoff {
                    first: millis(random, &[0, 20, 1_000]),
                    longest: Duration::from_secs(3),
                },
                hang: random.chance(300).then(|| HangPolicy {
                    after: millis(random, &[50, 400]),
                    first: millis(random, &[50, 1_000]),
                }),
                on_hang: match random.chance(500) {
                    true => OnHang::Restart {
                        min_nodes: plan.config.sizes.smallest(plan.config.limits) as u32,
                    },
                    false => OnHang::Report,
                },
            },
            max_restarts: random.below(4) as u32,
            delay: random.pick(&[0, 5, 50]),
            work: random.pick(&[100, 1_000, 6_000, 20_000]),
            failing: random.pick(&[0, 50, 400]),
            non_retryable: random.pick(&[0, 0, 200]),
            stubborn: random.pick(&[0, 200, 900]),
            undying: random.pick(&[0, 0, 0, 20]),
            hanging: random.pick(&[0, 300, 900]),
            trouble: random.pick(&[0, 0, 100]),
        }
    }
}

/// How many kinds of faults there are, some of them more likely than others.
const KINDS: usize = 20;

/// One fault, of the kinds that this run has.
pub(crate) fn fault(random: &mut Random, kinds: u64) -> Fault {
    let who = random.below(1 << 20);
    let long = |random: &mut Random| random.pick(&[300, 1_500, 2_500, 6_000]);
    loop {
        let kind = random.below(KINDS);
        // About half of the kinds.
        if kinds >> kind & 1 == 0 && (kinds.trailing_zeros() as usize) < KINDS {
            continue;
        }
        return match kind {
            0 | 1 => Fault::Cut(who, long(random)),
            2 => Fault::Standstill(who, long(random)),
            3 => Fault::Sleep(who, long(random)),
            4 | 5 => {
                let death = if random.chance(700) { Death::Killed } else { Death::Silent };
                let back = random.chance(500).then(|| random.between(1, 4_000));
                Fault::Crash(who, death, back)
            }
            6..=8 => Fault::Arrive,
            9 => Fault::Restart(long(random), random.chance(300)),
            10 => Fault::Compact,
            11 => Fault::Forget(random.pick(&[0, 100, 1_000, 6_000])),
            12 | 13 => Fault::WorkersFail(who),
            14 | 15 => Fault::Reset(who),
            16 => Fault::Close(who, None),
            _ => Fault::Signal(who, random.pick(&[2, 15, EVICTION]), random.chance(300)),
        };
    }
}
