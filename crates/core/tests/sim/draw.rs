//! What goes wrong in these runs.

use crate::world::plan::{Death, Mishap};
use crate::world::random::Random;

/// How many kinds of mishaps there are, some of them twice as likely.
const KINDS: usize = 20;

/// One mishap, of the kinds that this run has.
pub(crate) fn mishap(random: &mut Random, kinds: u64) -> Mishap {
    let who = random.below(1 << 20);
    let long = |random: &mut Random| random.pick(&[300, 1_500, 2_500, 6_000]);
    loop {
        let kind = random.below(KINDS);
        // About half of the kinds.
        if kinds >> kind & 1 == 0 && (kinds.trailing_zeros() as usize) < KINDS {
            continue;
        }
        return match kind {
            0 => Mishap::Cut(who, long(random)),
            1 | 14 => Mishap::Standstill(who, long(random)),
            15 => Mishap::Sleep(who, long(random)),
            2 | 3 => {
                let death = if random.chance(700) { Death::Killed } else { Death::Silent };
                let back = random.chance(700).then(|| random.between(1, 4_000));
                Mishap::Crash(who, death, back)
            }
            4 | 12 => Mishap::Arrive,
            5 => Mishap::Restart(long(random), random.chance(300)),
            6 => Mishap::Compact,
            16 | 17 => Mishap::Forget(random.pick(&[0, 100, 1_000, 6_000])),
            7 => Mishap::Finish(who),
            8 => Mishap::Return(who),
            9 => Mishap::WorkersFail(who),
            10 => Mishap::Suspect(who, random.below(1 << 20)),
            13 | 18 | 19 => Mishap::Reset(who),
            _ => {
                let again = random.chance(700).then(|| random.between(100, 4_000));
                Mishap::Close(who, again)
            }
        };
    }
}
