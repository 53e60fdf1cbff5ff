//! Puts and gets: how long one takes, how many there are in a second.

use std::time::{Duration, Instant};

use rallypoint::proto::etcd as pb;
use tonic::transport::Channel;

use crate::Arm;
use crate::report::{Better, Report};
use crate::support::wire;

type Kv = pb::kv_client::KvClient<Channel>;

#[derive(Clone, Copy)]
enum What {
    Put,
    Get,
}

impl What {
    const ALL: [Self; 2] = [Self::Put, Self::Get];

    fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
        }
    }

    async fn run(self, kv: &mut Kv, key: &bytes::Bytes) {
        match self {
            Self::Put => {
                let value = bytes::Bytes::from_static(&[b'v'; 64]);
                let put = pb::PutRequest { key: key.clone(), value, ..Default::default() };
                kv.put(put).await.unwrap();
            }
            Self::Get => {
                let get = pb::RangeRequest { key: key.clone(), ..Default::default() };
                assert_eq!(kv.range(get).await.unwrap().into_inner().count, 1);
            }
        }
    }
}

/// How long a process has kept a processor busy. Unlike the pace, it does not depend on how much of
/// the machine the clients take for themselves.
fn processor_time(process: u32) -> Duration {
    const TICKS_PER_SECOND: u64 = 100;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name, in parentheses, may hold anything; user and system time are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

fn key(client: usize) -> bytes::Bytes {
    format!("bench/{client:08}").into()
}

pub(super) async fn latency(arm: &Arm, report: &mut Report) {
    const WARM_UP: usize = 300;
    const SAMPLES: usize = 3000;
    let mut kv = wire::kv(&arm.endpoint());
    let key = key(0);
    for what in What::ALL {
        let mut samples = Vec::with_capacity(SAMPLES);
        for _ in 0..WARM_UP {
            what.run(&mut kv, &key).await;
        }
        for _ in 0..SAMPLES {
            let start = Instant::now();
            what.run(&mut kv, &key).await;
            samples.push(start.elapsed().as_secs_f64() * 1e3);
        }
        samples.sort_by(f64::total_cmp);
        for (percentile, index) in [("p50", SAMPLES / 2), ("p99", SAMPLES * 99 / 100)] {
            let row = format!("{} latency, 1 client, {percentile}, ms", what.name());
            report.add(&row, Better::Less, arm.name, samples[index]);
        }
    }
}

/// Clients that share a connection, as in the measurements that etcd publishes: 1,000 clients on 100
/// connections.
const CLIENTS_PER_CONNECTION: usize = 10;

/// Every client has one request under way at any time.
pub(super) async fn throughput(arm: &Arm, clients: usize, duration: Duration, report: &mut Report) {
    let connections: Vec<Kv> =
        (0..clients.div_ceil(CLIENTS_PER_CONNECTION)).map(|_| wire::kv(&arm.endpoint())).collect();
    let client = |client: usize| connections[client / CLIENTS_PER_CONNECTION].clone();
    for number in 0..clients {
        What::Put.run(&mut client(number), &key(number)).await;
    }
    for what in What::ALL {
        let warm = Instant::now() + duration / 5;
        let end = warm + duration;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..clients {
            let (mut kv, key) = (client(number), key(number));
            tasks.spawn(async move {
                let mut count = 0_u64;
                loop {
                    what.run(&mut kv, &key).await;
                    let now = Instant::now();
                    if now >= end {
                        return count;
                    }
                    count += u64::from(now >= warm);
                }
            });
        }
        tokio::time::sleep_until(warm.into()).await;
        let before = processor_time(arm.process());
        let total: u64 = tasks.join_all().await.into_iter().sum();
        let used = processor_time(arm.process()) - before;
        let row = format!("{}s a second, {clients} clients", what.name());
        report.add(&row, Better::More, arm.name, total as f64 / duration.as_secs_f64());
        let row = format!("server time for a {}, {clients} clients, µs", what.name());
        report.add(&row, Better::Less, arm.name, used.as_secs_f64() * 1e6 / total as f64);
    }
}
