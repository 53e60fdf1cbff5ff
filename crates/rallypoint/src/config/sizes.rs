//! The sizes of a group, as users write them, and what is wrong with a combination of them.

use std::time::Duration;

use rallypoint_core::rendezvous::sizes::{Limits, SizeRules, SizesError, Steps};

use super::error::ConfigError;
use super::values;

/// Reads sizes such as `2/4/8`, or `2,4,8` where no comma separates options: in ascending order, each once.
pub(crate) fn sizes(text: &str) -> Result<Vec<usize>, String> {
    let mut sizes = text
        .split([',', '/'])
        .map(|size| values::count(size, 1, u32::MAX).map(|size| size as usize))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| "give numbers of nodes, such as 2/4/8".to_owned())?;
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

/// Sizes as an option of `--rdzv-conf` has them.
pub(crate) fn written(sizes: &[usize]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join("/")
}

/// The options for the size of a group.
#[derive(Debug, Clone, Default)]
pub(crate) struct SizeOptions {
    /// `planned`: the number of nodes that are planned to come.
    pub(crate) planned: Option<u32>,
    /// `sizes`: the only sizes that the group may have.
    pub(crate) sizes: Option<Vec<usize>>,
    /// `node_unit`: the group has a multiple of so many nodes.
    pub(crate) node_unit: Option<u32>,
    /// `scale_up_after`: how long after it has formed the group does not grow.
    pub(crate) scale_up_after: Duration,
}

impl SizeOptions {
    /// The rules of a group within these limits. `name` turns the name of an option into the one that the user wrote.
    pub(crate) fn rules(
        &self,
        limits: Limits,
        name: impl Fn(&str) -> String,
    ) -> Result<SizeRules, ConfigError> {
        let steps = match (&self.sizes, self.node_unit) {
            (Some(sizes), Some(unit)) => {
                return Err(ConfigError::conflict(
                    format!("{} {}", name("sizes"), written(sizes)),
                    format!("{} {unit}", name("node_unit")),
                    "give the one or the other",
                ));
            }
            (Some(sizes), None) => Steps::Only(sizes.clone()),
            (None, Some(unit)) => Steps::Unit(unit as usize),
            (None, None) => Steps::Every,
        };
        let rules = SizeRules {
            steps,
            planned: self.planned.map(|planned| planned as usize),
            scale_up_after_ms: u64::try_from(self.scale_up_after.as_millis()).unwrap_or(u64::MAX),
        };
        check(&rules, limits, name)?;
        Ok(rules)
    }
}

/// Checks that the rules and the limits allow a group, and that no rule is in vain.
pub(crate) fn check(
    rules: &SizeRules,
    limits: Limits,
    name: impl Fn(&str) -> String,
) -> Result<(), ConfigError> {
    // Limits that allow nothing are named by themselves.
    if *rules == SizeRules::default() {
        return Ok(());
    }
    let Limits { min, max } = limits;
    let refuse =
        |option, value: String, fix: String| Err(ConfigError::invalid(name(option), value, fix));
    match rules.check(limits) {
        Ok(()) => Ok(()),
        Err(SizesError::Outside { size, .. }) => {
            let Steps::Only(sizes) = &rules.steps else { return Ok(()) };
            let fix = format!(
                "{size} is not within {limits} nodes; give sizes from {min} to {max}, or other limits"
            );
            refuse("sizes", written(sizes), fix)
        }
        Err(SizesError::Empty) => {
            refuse("sizes", String::new(), format!("give numbers of nodes from {min} to {max}"))
        }
        Err(SizesError::NoMultiple { unit, .. }) => {
            let multiple = min.div_ceil(unit.max(1)).saturating_mul(unit);
            let fix = format!(
                "no multiple of {unit} is within {limits} nodes; give a unit that has one there, or limits such as \
                 {min}:{multiple}"
            );
            refuse("node_unit", unit.to_string(), fix)
        }
        Err(SizesError::Planned { planned, smallest, largest }) => {
            let fix = format!("give a number that a group may have: from {smallest} to {largest}");
            refuse("planned", planned.to_string(), fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(name: &str) -> String {
        format!("--{}", name.replace('_', "-"))
    }

    #[test]
    fn sizes_are_read_in_any_order() {
        for (text, expected) in [
            ("2/4/8", Some(vec![2, 4, 8])),
            ("8, 4,2,4", Some(vec![2, 4, 8])),
            ("3", Some(vec![3])),
            ("", None),
            ("2/", None),
            ("0/2", None),
            ("2-4", None),
        ] {
            assert_eq!(sizes(text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_combination_that_allows_no_group_is_refused_with_the_remedy() {
        let only =
            |sizes: &[usize]| SizeOptions { sizes: Some(sizes.to_vec()), ..SizeOptions::default() };
        let unit = |unit| SizeOptions { node_unit: Some(unit), ..SizeOptions::default() };
        let planned = |planned| SizeOptions { planned: Some(planned), ..SizeOptions::default() };
        let limits = Limits { min: 2, max: 8 };
        for (options, words) in [
            (
                only(&[2, 16]),
                "--sizes \"2/16\": 16 is not within 2:8 nodes; give sizes from 2 to 8, or other limits",
            ),
            (
                unit(9),
                "--node-unit \"9\": no multiple of 9 is within 2:8 nodes; give a unit that has one there, or limits \
                 such as 2:9",
            ),
            (planned(9), "--planned \"9\": give a number that a group may have: from 2 to 8"),
            (
                SizeOptions { planned: Some(3), ..unit(4) },
                "--planned \"3\": give a number that a group may have: from 4 to 8",
            ),
            (
                SizeOptions { node_unit: Some(4), ..only(&[2, 4]) },
                "--sizes 2/4 and --node-unit 4 contradict each other: give the one or the other",
            ),
        ] {
            assert_eq!(options.rules(limits, option).unwrap_err().to_string(), words);
        }
        let rules = SizeOptions { scale_up_after: Duration::from_secs(300), ..unit(4) };
        let rules = rules.rules(limits, option).unwrap();
        assert_eq!((rules.steps, rules.scale_up_after_ms), (Steps::Unit(4), 300_000));
    }
}
