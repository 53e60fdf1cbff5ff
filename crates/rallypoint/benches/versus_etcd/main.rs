//! Our server and real etcd, measured in one run with the same client on the same machine and disk.
//!
//! `make bench` runs it. Numbers from one run can be compared with each other and with nothing
//! else. `RALLYPOINT_BENCH_SECONDS` sets how long each load is kept up (default 3); arguments pick
//! arms by a part of their name (`cargo bench --bench versus_etcd -- memory 3.5`).

#![allow(clippy::print_stdout, reason = "a table on standard output is what this program is for")]
#![allow(clippy::unwrap_used, reason = "a measurement that fails should stop")]

mod load;
mod memory;
mod report;
#[path = "../../tests/support/mod.rs"]
mod support;
mod watch;

use std::time::Duration;

use self::report::Report;
use self::support::{Embedded, Etcd, Version};

/// One of the servers that are compared.
struct Arm {
    name: &'static str,
    server: Running,
}

enum Running {
    Ours(Embedded),
    Etcd(Etcd),
}

impl Arm {
    async fn start(name: &'static str) -> Self {
        let server = match name {
            "ours, memory" => Running::Ours(Embedded::memory().await),
            "ours, disk" => Running::Ours(Embedded::disk().await),
            "etcd 3.4" => Running::Etcd(Etcd::start(Version::V3_4).await),
            _ => Running::Etcd(Etcd::start(Version::V3_5).await),
        };
        Self { name, server }
    }

    fn endpoint(&self) -> String {
        match &self.server {
            Running::Ours(server) => server.endpoint(),
            Running::Etcd(server) => server.endpoint(),
        }
    }

    fn process(&self) -> u32 {
        match &self.server {
            Running::Ours(server) => server.id(),
            Running::Etcd(server) => server.id(),
        }
    }
}

const ARMS: [&str; 4] = ["ours, memory", "ours, disk", "etcd 3.4", "etcd 3.5"];

fn main() {
    let seconds = std::env::var("RALLYPOINT_BENCH_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(3.0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let is_wanted = |arm: &&str| wanted.is_empty() || wanted.iter().any(|part| arm.contains(part));
    let arms: Vec<&'static str> = ARMS.into_iter().filter(is_wanted).collect();
    runtime.block_on(run(&arms, Duration::from_secs_f64(seconds)));
}

async fn run(arms: &[&'static str], duration: Duration) {
    let mut report = Report::default();
    for &name in arms {
        eprint_progress(name);
        let arm = Arm::start(name).await;
        load::latency(&arm, &mut report).await;
        for clients in [1, 64, 1000] {
            load::throughput(&arm, clients, duration, &mut report).await;
        }
    }
    // A server of its own for each: what the one leaves behind would count for the other.
    for &name in arms {
        eprint_progress(name);
        watch::fan_out(&Arm::start(name).await, &mut report).await;
        memory::per_key(&Arm::start(name).await, &mut report).await;
    }
    report.print(arms);
}

#[allow(clippy::print_stderr, reason = "it takes minutes; somebody may be waiting")]
fn eprint_progress(name: &str) {
    eprintln!("measuring {name} …");
}
