//! The same random requests to real etcd and to ours, answer compared with answer.
//!
//! Each sequence starts from two fresh servers and is decided by its seed alone. A difference stops
//! the test with the seed, the step, both answers and the command that shows it again:
//!
//! - `RALLYPOINT_SEED` runs one sequence,
//! - `RALLYPOINT_SEQUENCES` says how many there are to a test (the default takes about 20 s),
//! - `RALLYPOINT_STEPS` says how long each is.
//!
//! What etcd leaves open (the order of equals, the exact time left) is made equal first, in
//! [`normal`]; everything else must be the same to the byte.

mod generate;
mod normal;
mod peer;

use std::time::{Duration, Instant};

use crate::support::{Embedded, Etcd, Version};
use generate::{Generator, Step};
use peer::Peer;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// What to start on each side of a comparison.
#[derive(Debug, Clone, Copy)]
enum Side {
    Real(Version),
    Memory,
    Disk,
}

/// Whichever it is, dropped when the sequence ends.
enum Running {
    Real(Etcd),
    Ours(Embedded),
}

impl Side {
    async fn start(self) -> (Running, Peer) {
        let running = match self {
            Self::Real(version) => Running::Real(Etcd::start(version).await),
            Self::Memory => Running::Ours(Embedded::memory().await),
            Self::Disk => Running::Ours(Embedded::disk().await),
        };
        let endpoint = match &running {
            Running::Real(etcd) => etcd.endpoint(),
            Running::Ours(server) => server.endpoint(),
        };
        (running, Peer::new(&endpoint))
    }
}

async fn compare(test: &str, first_seed: u64, sequences: u64, sides: [Side; 2]) {
    let steps = setting("RALLYPOINT_STEPS").unwrap_or(300);
    let seeds = match setting("RALLYPOINT_SEED") {
        Some(seed) => vec![seed],
        None => {
            let count = setting("RALLYPOINT_SEQUENCES").unwrap_or(sequences);
            (first_seed..first_seed + count).collect()
        }
    };
    for seed in seeds {
        if let Err(difference) = sequence(seed, steps, sides).await {
            panic!(
                "{:?} and {:?} differ, seed {seed}, {difference}\n\nto see it again: \
                 RALLYPOINT_SEED={seed} RALLYPOINT_STEPS={steps} cargo test --test it {test}",
                sides[0], sides[1]
            );
        }
    }
}

async fn sequence(seed: u64, steps: u64, sides: [Side; 2]) -> Result<(), String> {
    let ((_left_server, mut left), (_right_server, mut right)) =
        tokio::join!(sides[0].start(), sides[1].start());
    let mut generator = Generator::new(seed);
    for number in 0..steps {
        for step in generator.next() {
            let answer = same(&mut left, &mut right, &step)
                .await
                .map_err(|difference| format!("step {number}: {step:#?}\n{difference}"))?;
            generator.learn(&step, &answer);
        }
    }
    for step in generator.last() {
        same(&mut left, &mut right, &step)
            .await
            .map_err(|difference| format!("at the end: {step:?}\n{difference}"))?;
    }
    // Everything is written; the last events may still be on their way.
    let late = Instant::now() + Duration::from_secs(5);
    loop {
        let (one, other) = (left.histories(), right.histories());
        let Some(number) = (0..one.len()).find(|number| one[*number] != other[*number]) else {
            return Ok(());
        };
        if Instant::now() > late {
            let difference = one[number].difference(&other[number]);
            return Err(format!("{:#?}\n{difference}", left.request(number)));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sends a step to both and gives the answer, if it is one.
async fn same(left: &mut Peer, right: &mut Peer, step: &Step) -> Result<normal::Answer, String> {
    let both = async { tokio::join!(left.answer(step), right.answer(step)) };
    let Ok((one, other)) = tokio::time::timeout(Duration::from_secs(20), both).await else {
        return Err("no answer after 20 s from one of them".into());
    };
    if one == other {
        return Ok(one);
    }
    Err(format!("the first answers\n{one:#?}\nthe second\n{other:#?}"))
}

#[tokio::test]
async fn etcd_3_4_and_ours_in_memory() {
    let sides = [Side::Real(Version::V3_4), Side::Memory];
    compare("etcd_3_4_and_ours_in_memory", 1000, 8, sides).await;
}

#[tokio::test]
async fn etcd_3_5_and_ours_on_disk() {
    let sides = [Side::Real(Version::V3_5), Side::Disk];
    compare("etcd_3_5_and_ours_on_disk", 2000, 8, sides).await;
}

/// Shows that the comparison itself holds: what two etcds agree on is etcd's doing, not chance's.
#[tokio::test]
async fn the_two_etcds() {
    let sides = [Side::Real(Version::V3_4), Side::Real(Version::V3_5)];
    compare("the_two_etcds", 3000, 2, sides).await;
}
