use super::*;

const TWO_TO_EIGHT: Limits = Limits { min: 2, max: 8 };

fn rules(steps: Steps) -> SizeRules {
    SizeRules { steps, ..SizeRules::default() }
}

fn only(sizes: &[usize]) -> Steps {
    Steps::Only(sizes.to_vec())
}

#[test]
fn a_group_has_the_largest_size_that_the_nodes_make() {
    use SizeReason::{Between, Everyone, Largest, TooFew};
    let table = [
        (Steps::Every, 0, 0, TooFew { smallest: 2 }),
        (Steps::Every, 1, 0, TooFew { smallest: 2 }),
        (Steps::Every, 2, 2, Everyone),
        (Steps::Every, 7, 7, Everyone),
        (Steps::Every, 8, 8, Everyone),
        (Steps::Every, 9, 8, Largest),
        (Steps::Unit(4), 3, 0, TooFew { smallest: 4 }),
        (Steps::Unit(4), 4, 4, Everyone),
        (Steps::Unit(4), 7, 4, Between { next: 8 }),
        (Steps::Unit(4), 8, 8, Everyone),
        (Steps::Unit(4), 11, 8, Largest),
        // The largest multiple is below the limit.
        (Steps::Unit(3), 8, 6, Largest),
        (Steps::Unit(1), 5, 5, Everyone),
        (only(&[2, 4, 8]), 1, 0, TooFew { smallest: 2 }),
        (only(&[2, 4, 8]), 3, 2, Between { next: 4 }),
        (only(&[2, 4, 8]), 7, 4, Between { next: 8 }),
        (only(&[2, 4, 8]), 20, 8, Largest),
        (only(&[5]), 4, 0, TooFew { smallest: 5 }),
        (only(&[5]), 8, 5, Largest),
        // Another version or a mistake may have written such documents.
        (Steps::Unit(0), 8, 0, TooFew { smallest: usize::MAX }),
        (only(&[]), 8, 0, TooFew { smallest: usize::MAX }),
        (only(&[1, 9]), 8, 0, TooFew { smallest: usize::MAX }),
    ];
    for (steps, present, size, reason) in table {
        let chosen = rules(steps.clone()).size(TWO_TO_EIGHT, present);
        assert_eq!(chosen, Chosen { size, reason }, "{present} nodes with {steps:?}");
    }
}

#[test]
fn the_next_size_is_within_the_limits() {
    for (steps, size, next) in [
        (Steps::Every, 0, Some(2)),
        (Steps::Every, 7, Some(8)),
        (Steps::Every, 8, None),
        (Steps::Unit(4), 0, Some(4)),
        (Steps::Unit(4), 4, Some(8)),
        (Steps::Unit(4), 8, None),
        (Steps::Unit(usize::MAX), 0, None),
        (only(&[2, 4, 8]), 2, Some(4)),
        (only(&[2, 4, 8]), 5, Some(8)),
        (only(&[2, 4, 9]), 4, None),
    ] {
        assert_eq!(rules(steps.clone()).next(TWO_TO_EIGHT, size), next, "{steps:?} above {size}");
    }
}

#[test]
fn rules_that_allow_no_group_are_refused() {
    let limits = TWO_TO_EIGHT;
    let planned = |planned, steps| SizeRules { planned: Some(planned), ..rules(steps) };
    for (rules, expected) in [
        (rules(Steps::Every), Ok(())),
        (rules(Steps::Unit(3)), Ok(())),
        (rules(Steps::Unit(9)), Err(SizesError::NoMultiple { unit: 9, limits })),
        (rules(only(&[2, 8])), Ok(())),
        (rules(only(&[1, 2])), Err(SizesError::Outside { size: 1, limits })),
        (rules(only(&[2, 16])), Err(SizesError::Outside { size: 16, limits })),
        (rules(only(&[])), Err(SizesError::Empty)),
        (planned(6, Steps::Every), Ok(())),
        (
            planned(9, Steps::Every),
            Err(SizesError::Planned { planned: 9, smallest: 2, largest: 8 }),
        ),
        (
            planned(3, Steps::Unit(4)),
            Err(SizesError::Planned { planned: 3, smallest: 4, largest: 8 }),
        ),
    ] {
        assert_eq!(rules.check(limits), expected, "{rules:?}");
    }
}

#[test]
fn few_sizes_are_listed_and_many_abridged() {
    let many = Limits { min: 1, max: 100 };
    for (steps, limits, listed) in [
        (Steps::Every, TWO_TO_EIGHT, ""),
        (Steps::Unit(4), TWO_TO_EIGHT, "; sizes 4, 8"),
        (only(&[2, 4, 8]), TWO_TO_EIGHT, "; sizes 2, 4, 8"),
        (Steps::Unit(10), many, "; sizes 10, 20, 30, 40, 50, 60, …, 100"),
        (Steps::Unit(13), many, "; sizes 13, 26, 39, 52, 65, 78, 91"),
    ] {
        assert_eq!(rules(steps.clone()).listed(limits), listed, "{steps:?}");
    }
}

#[test]
fn rules_without_effect_are_left_out_of_documents() {
    let text = |rules: &SizeRules| serde_json::to_string(rules).unwrap();
    assert_eq!(text(&SizeRules::default()), "{}");
    let rules = SizeRules { steps: Steps::Unit(4), planned: Some(6), scale_up_after_ms: 300_000 };
    let json = r#"{"steps":{"unit":4},"planned":6,"scale_up_after_ms":300000}"#;
    assert_eq!(text(&rules), json);
    assert_eq!(serde_json::from_str::<SizeRules>(json).unwrap(), rules);
}
