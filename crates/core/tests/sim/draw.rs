//! The faults of these runs.

use crate::world::plan::{Death, Fault};
use crate::world::random::Random;

/// The number of kinds of faults; some of them count twice.
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
            0 => Fault::Cut(who, long(random)),
            1 | 14 => Fault::Standstill(who, long(random)),
            15 => Fault::Sleep(who, long(random)),
            2 | 3 => {
                let death = if random.chance(700) { Death::Killed } else { Death::Silent };
                let back = random.chance(700).then(|| random.between(1, 4_000));
                Fault::Crash(who, death, back)
            }
            4 | 12 => Fault::Arrive,
            5 => Fault::Restart(long(random), random.chance(300)),
            6 => Fault::Compact,
            16 | 17 => Fault::Forget(random.pick(&[0, 100, 1_000, 6_000])),
            7 => Fault::Finish(who),
            8 => Fault::Return(who),
            9 => Fault::WorkersFail(who),
            10 => Fault::Suspect(who, random.below(1 << 20)),
            13 | 18 | 19 => Fault::Reset(who),
            _ => {
                let again = random.chance(700).then(|| random.between(100, 4_000));
                Fault::Close(who, again)
            }
        };
    }
}
