//! When late nodes make a running group grow, and which nodes a group has no place for.

use crate::kv::Time;
use crate::rendezvous::sizes::{Chosen, Limits, SizeReason, SizeRules};

/// The growth of a running group.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// When the group had formed, as its coordinator noticed it.
    formed: Option<Time>,
    /// When late nodes make the group grow that it may not grow by yet.
    grows_at: Option<Time>,
}

impl Growth {
    /// The number of late nodes for which the group has to meet again: none if they do not make a larger size, or the
    /// group has formed too short a time ago.
    pub(super) fn nodes(
        &mut self,
        now: Time,
        (limits, sizes): (Limits, &SizeRules),
        (world, late): (usize, usize),
    ) -> usize {
        let formed = *self.formed.get_or_insert(now);
        self.grows_at = None;
        if sizes.size(limits, world + late).size <= world {
            return 0;
        }
        let from = formed.saturating_add(sizes.scale_up_after());
        if from <= now {
            return late;
        }
        self.grows_at = Some(from);
        0
    }

    /// When to decide again if nothing else happens before.
    pub(super) fn next_wake(&self) -> Option<Time> {
        self.grows_at
    }
}

/// Why some of the nodes that joined are spares, after a semicolon; empty if none is.
pub(super) fn spares(joined: usize, chosen: Chosen) -> String {
    let Chosen { size, reason } = chosen;
    match reason {
        SizeReason::Between { next } => {
            format!("; {joined} nodes are here, {size} become members, and the next size is {next}")
        }
        SizeReason::TooFew { .. } | SizeReason::Everyone | SizeReason::Largest => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::sizes::Steps;

    const SECOND: Time = Time::from_secs(1);
    const LIMITS: Limits = Limits { min: 2, max: 8 };

    #[test]
    fn a_group_grows_when_the_late_nodes_make_a_larger_size() {
        let unit = SizeRules { steps: Steps::Unit(2), ..SizeRules::default() };
        for (sizes, world, late, expected) in [
            (SizeRules::default(), 4, 0, 0),
            (SizeRules::default(), 4, 1, 1),
            (SizeRules::default(), 8, 3, 0),
            (unit.clone(), 4, 1, 0),
            (unit.clone(), 4, 2, 2),
            (unit.clone(), 4, 3, 3),
            (unit, 8, 9, 0),
        ] {
            let found = Growth::default().nodes(SECOND, (LIMITS, &sizes), (world, late));
            assert_eq!(found, expected, "{late} late nodes beside {world} with {sizes:?}");
        }
    }

    #[test]
    fn a_group_that_has_just_formed_does_not_grow() {
        let sizes = SizeRules { scale_up_after_ms: 30_000, ..SizeRules::default() };
        let (rules, mut growth) = ((LIMITS, &sizes), Growth::default());
        assert_eq!(growth.nodes(5 * SECOND, rules, (4, 0)), 0);
        assert_eq!(growth.next_wake(), None, "nothing to wake for");
        assert_eq!(growth.nodes(10 * SECOND, rules, (4, 1)), 0);
        assert_eq!(growth.next_wake(), Some(35 * SECOND));
        assert_eq!(growth.nodes(34 * SECOND, rules, (4, 0)), 0);
        assert_eq!(growth.next_wake(), None, "the late node has left");
        assert_eq!(growth.nodes(35 * SECOND, rules, (4, 2)), 2);
    }
}
