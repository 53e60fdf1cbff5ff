//! The durable server is killed at any moment, again and again, and nothing that anyone was told is
//! lost (invariant S4).

mod rewrite;
mod truth;
mod writer;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rallypoint::proto::etcd as pb;

use self::truth::Truth;
use crate::support::Embedded;

const KILLS: usize = 50;
const WRITERS: usize = 4;

/// The seed of this run. RALLYPOINT_TEST_SEED repeats another, as far as the machine will.
#[expect(clippy::print_stdout, reason = "a failed test must say how it can be repeated")]
fn seed() -> u64 {
    let given = std::env::var("RALLYPOINT_TEST_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |text| text.parse().unwrap());
    println!("RALLYPOINT_TEST_SEED={seed}");
    seed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kills() {
    let mut random = fastrand::Rng::with_seed(seed());
    let started = Instant::now();
    let mut server = Embedded::start_with(true, &["--keep-revisions", "0"]).await;
    let truth = Arc::new(Mutex::new(Truth::default()));
    for kill in 0..KILLS {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let random = random.fork();
                tokio::spawn(writer::run(server.endpoint(), truth.clone(), writer, random))
            })
            .collect();
        let watcher = tokio::spawn(watch(server.endpoint(), truth.clone()));
        tokio::time::sleep(Duration::from_micros(random.u64(500..80_000))).await;
        server.kill();
        for task in writers.into_iter().chain([watcher]) {
            task.await.unwrap();
        }
        server.restart().await;
        let from = if kill + 1 == KILLS { 1 } else { random.i64(1..=truth.lock().unwrap().end()) };
        truth::check(&server.endpoint(), &truth, from, &mut random).await;
    }
    let truth = truth.lock().unwrap();
    assert!(truth.end() > 10 * KILLS as i64, "hardly anything was written: {}", truth.end());
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
}

/// Listens until the server dies, and notes what it was told.
async fn watch(endpoint: String, truth: Arc<Mutex<Truth>>) {
    let start = truth.lock().unwrap().end() + 1;
    let Ok(mut events) = truth::replay(&endpoint, start).await else { return };
    while let Ok(Some(response)) = events.message().await {
        truth.lock().unwrap().saw(&response);
    }
}

/// Any failure stands for a dead server: what was asked of it may have happened or not.
struct Lost;

impl From<tonic::Status> for Lost {
    fn from(status: tonic::Status) -> Self {
        let expected = [tonic::Code::Unavailable, tonic::Code::Unknown, tonic::Code::Cancelled];
        assert!(expected.contains(&status.code()), "refused: {status:?}");
        Self
    }
}

fn revision(header: Option<pb::ResponseHeader>) -> i64 {
    header.unwrap().revision
}
