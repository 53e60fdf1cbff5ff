//! The table.

use std::collections::BTreeMap;

/// Which way is better.
#[derive(Clone, Copy)]
pub(super) enum Better {
    More,
    Less,
}

#[derive(Default)]
pub(super) struct Report {
    /// In the order in which they were first measured.
    rows: Vec<(String, Better, BTreeMap<&'static str, f64>)>,
}

impl Report {
    pub(super) fn add(&mut self, what: &str, better: Better, arm: &'static str, value: f64) {
        if !self.rows.iter().any(|(name, _, _)| name == what) {
            self.rows.push((what.to_owned(), better, BTreeMap::new()));
        }
        let row = self.rows.iter_mut().find(|(name, _, _)| name == what).unwrap();
        row.2.insert(arm, value);
    }

    /// Prints a column for each arm, then how many times better ours are than the better etcd.
    pub(super) fn print(&self, arms: &[&'static str]) {
        let (ours, etcds): (Vec<&str>, Vec<&str>) = arms.iter().partition(|arm| is_ours(arm));
        let ratios = if etcds.is_empty() { &[][..] } else { &ours[..] };
        print!("| {:<38} |", "");
        arms.iter().for_each(|arm| print!(" {arm:>12} |"));
        ratios.iter().for_each(|arm| print!(" {:>9} ÷ |", arm.trim_start_matches("ours, ")));
        println!("\n|{}|{}", "-".repeat(40), "-------------:|".repeat(arms.len() + ratios.len()));
        for (what, better, values) in &self.rows {
            print!("| {what:<38} |");
            arms.iter().for_each(|arm| print!(" {:>12} |", number(values[arm])));
            let peers = etcds.iter().map(|arm| values[arm]);
            for arm in ratios {
                let times = match better {
                    Better::More => values[arm] / peers.clone().fold(0.0, f64::max),
                    Better::Less => peers.clone().fold(f64::INFINITY, f64::min) / values[arm],
                };
                print!(" {times:>10.1}x |");
            }
            println!();
        }
        println!("\n\"÷\": times better than the better of the etcds beside it.");
    }
}

fn is_ours(arm: &str) -> bool {
    arm.starts_with("ours")
}

fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}
