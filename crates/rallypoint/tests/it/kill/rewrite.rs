//! Kills while the log is compacted, which happens when it has grown past 64 MiB.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rallypoint::proto::etcd as pb;

use super::{Lost, revision, seed};
use crate::support::{Embedded, wire};

const KILLS: usize = 8;
const WRITERS: usize = 4;
const VALUE: usize = 1 << 20;

/// The newest acknowledged write of each key with its revision, and the one after it, which may have
/// happened or not.
type Writes = BTreeMap<String, (i64, Option<u8>, Option<u8>)>;

/// Puts large values to its own key until the server is gone.
async fn write(endpoint: String, key: String, writes: Arc<Mutex<Writes>>) {
    let mut kv = wire::kv(&endpoint);
    let mut put = async || -> Result<(), Lost> {
        let fill = {
            let mut writes = writes.lock().unwrap();
            let entry = writes.entry(key.clone()).or_default();
            let fill = entry.1.unwrap_or(0).wrapping_add(1);
            entry.2 = Some(fill);
            fill
        };
        let value = vec![fill; VALUE].into();
        let request = pb::PutRequest { key: key.clone().into(), value, ..Default::default() };
        let at = revision(kv.put(request).await?.into_inner().header);
        writes.lock().unwrap().insert(key.clone(), (at, Some(fill), None));
        Ok(())
    };
    while put().await.is_ok() {}
}

async fn check(endpoint: &str, writes: &Mutex<Writes>) {
    let writes = writes.lock().unwrap().clone();
    let newest = writes.values().map(|(revision, ..)| *revision).max().unwrap();
    for (key, (at, acknowledged, attempted)) in writes {
        let request = pb::RangeRequest { key: key.clone().into(), ..Default::default() };
        let answer = wire::kv(endpoint).range(request).await.unwrap().into_inner();
        assert!(revision(answer.header) >= newest, "the revision went back");
        let Some(kv) = answer.kvs.first() else {
            assert_eq!(acknowledged, None, "{key} is gone");
            continue;
        };
        assert!(kv.value.len() == VALUE && kv.value.iter().all(|byte| *byte == kv.value[0]));
        let found = Some(kv.value[0]);
        assert!(found == acknowledged || found == attempted, "{key} has an old value");
        assert!(found != acknowledged || kv.mod_revision == at || found == attempted);
    }
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kills_while_the_log_is_rewritten() {
    let mut random = fastrand::Rng::with_seed(seed());
    // History makes a rewrite take its time: half of the threshold is written again.
    let mut server = Embedded::start_with(true, &["--keep-revisions", "25"]).await;
    let (log, new) = (server.directory().join("data/log"), server.directory().join("data/log.new"));
    let writes = Arc::new(Mutex::new(Writes::new()));
    let (mut interrupted, mut rewritten, mut longest) = (0, 0, 0);
    for kill in 0..KILLS {
        // What an earlier kill left must not be taken for a rewrite.
        let _ = std::fs::remove_file(&new);
        let tasks: Vec<_> = (0..WRITERS)
            .map(|writer| {
                tokio::spawn(write(server.endpoint(), format!("key{writer}"), writes.clone()))
            })
            .collect();
        let started = Instant::now();
        let mut before = length(&log);
        while !new.exists() {
            let now = length(&log);
            rewritten += usize::from(now < before);
            (before, longest) = (now, longest.max(now));
            assert!(started.elapsed() < Duration::from_secs(20), "the log is never rewritten");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        // In turn: in the middle of it, and just after.
        while kill % 2 == 1 && new.exists() {
            assert!(started.elapsed() < Duration::from_secs(20), "a rewrite does not end");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        tokio::time::sleep(Duration::from_micros(random.u64(0..20_000))).await;
        server.kill();
        interrupted += usize::from(new.exists());
        rewritten += usize::from(length(&log) < before);
        for task in tasks {
            task.await.unwrap();
        }
        server.restart().await;
        check(&server.endpoint(), &writes).await;
    }
    assert!(interrupted > 0, "no kill came during a rewrite");
    assert!(rewritten > 0, "every rewrite was killed");
    assert!(longest < 100 << 20, "the log grew to {longest} bytes");
}
