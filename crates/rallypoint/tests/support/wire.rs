//! Reaching a server with the generated clients alone, so that our own client is not trusted.

use std::time::{Duration, Instant};

use rallypoint::proto::etcd as pb;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

/// A connection to `endpoint` (`http://…`), made at the first request.
pub fn channel(endpoint: &str) -> Channel {
    Endpoint::from_shared(endpoint.to_owned())
        .unwrap()
        .connect_timeout(Duration::from_secs(5))
        .connect_lazy()
}

/// The KV service at `endpoint`.
pub fn kv(endpoint: &str) -> pb::kv_client::KvClient<Channel> {
    pb::kv_client::KvClient::new(channel(endpoint)).max_decoding_message_size(64 << 20)
}

/// Waits until the server answers a linearizable read, which takes a leader; a refusal for want of a
/// token is an answer too. `ended` says whether there is still anybody to wait for.
pub async fn wait_until_ready(
    endpoint: &str,
    patience: Duration,
    mut ended: impl FnMut() -> bool,
) -> Result<(), String> {
    let started = Instant::now();
    let mut last = String::from("nothing tried");
    while started.elapsed() < patience {
        if ended() {
            return Err("it ended by itself".into());
        }
        let request = pb::RangeRequest { key: "ready".into(), ..Default::default() };
        let answer =
            tokio::time::timeout(Duration::from_secs(2), kv(endpoint).range(request)).await;
        match answer {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(status))
                if matches!(status.code(), Code::InvalidArgument | Code::Unauthenticated) =>
            {
                return Ok(());
            }
            Ok(Err(status)) => last = format!("{:?}: {}", status.code(), status.message()),
            Err(_) => last = "no answer in 2 s".into(),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(format!("not ready after {patience:?}, last answer: {last}"))
}
