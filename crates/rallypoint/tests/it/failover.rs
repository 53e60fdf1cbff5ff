//! An endpoint that stops answering: no reset, no refusal, only silence. Everyone who uses the client leaves it together.

use std::time::{Duration, Instant};

use rallypoint::client::{Client, ClientError, ClientOptions, Watcher};
use rallypoint::core::kv::{Compare, KeyRange, Op, Put, Txn, Watch};
use rallypoint::session::Session;
use tokio::time::timeout;

use crate::support::hostile::eventually;
use crate::support::{Embedded, Proxy};

const TTL: Duration = Duration::from_secs(6);

/// How long a client may be deaf: until the next renewal, and a second until the silence is believed.
/// The last second is for a machine that has other things to do.
const BOUND: Duration = Duration::from_secs(2 + 1 + 1);

/// The same for a client that sends a request, and so need not wait for a renewal, but has a longer timeout.
const BOUND_OF_A_CALL: Duration = Duration::from_secs(2 + 1);

struct Ground {
    server: Embedded,
    proxies: Vec<Proxy>,
    /// With the usual options, by way of the proxies.
    client: Client,
    direct: Client,
}

impl Ground {
    async fn new(endpoints: usize) -> Self {
        let server = Embedded::memory().await;
        let mut proxies = Vec::new();
        for _ in 0..endpoints {
            proxies.push(Proxy::start(server.endpoint()).await);
        }
        let options = ClientOptions::new(proxies.iter().map(Proxy::endpoint));
        let client = Client::connect(options).await.unwrap();
        let direct = Client::connect(ClientOptions::new([server.endpoint()])).await.unwrap();
        Self { server, proxies, client, direct }
    }

    /// The proxy that the client's connection goes through.
    fn used(&self) -> &Proxy {
        self.proxies.iter().find(|proxy| proxy.connections() > 0).expect("nothing was asked yet")
    }

    async fn watcher(&self) -> Watcher {
        self.client.watch([Watch::new(KeyRange::key("told"))]).await.unwrap()
    }
}

/// Waits until the session was renewed once more.
async fn renewed(session: &Session, begun: Instant) -> Duration {
    let mut last = session.remaining();
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let left = session.remaining();
        assert!(left > Duration::ZERO, "lost after {:?}", begun.elapsed());
        if left > last {
            return begun.elapsed();
        }
        last = left;
    }
}

async fn told(watcher: &mut Watcher, begun: Instant) -> Duration {
    let batch = timeout(Duration::from_secs(30), watcher.next()).await.unwrap().unwrap();
    assert_eq!(batch.events.len(), 1);
    begun.elapsed()
}

/// A node that only waits: nothing but its renewals can notice.
async fn session_and_watch_move_on(endpoints: usize) {
    let ground = Ground::new(endpoints).await;
    let mut watcher = ground.watcher().await;
    // The silence begins with the longest time until a renewal.
    let session = Session::open(&ground.client, TTL).await.unwrap();
    let begun = Instant::now();
    if endpoints == 1 {
        // The server is there, but the way that the connection took is not.
        ground.used().forget();
    } else {
        ground.used().hang();
    }
    ground.direct.put(Put::new("told", "")).await.unwrap();
    let (session_after, watch_after) =
        tokio::join!(renewed(&session, begun), told(&mut watcher, begun));
    assert!(session_after < BOUND, "the session was renewed after {session_after:?}");
    assert!(watch_after < BOUND, "the watch told after {watch_after:?}");
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_watch_leaves_a_silent_endpoint_with_its_session_of_two() {
    session_and_watch_move_on(2).await;
}

#[tokio::test]
async fn a_watch_leaves_a_silent_endpoint_with_its_session_of_three() {
    session_and_watch_move_on(3).await;
}

#[tokio::test]
async fn a_watch_leaves_a_dead_connection_to_the_only_endpoint_with_its_session() {
    session_and_watch_move_on(1).await;
}

/// A node that asks for something: all that it waits for moves on with the first call that hears nothing.
#[tokio::test]
async fn a_call_that_hears_nothing_moves_everyone() {
    let ground = Ground::new(3).await;
    let mut watcher = ground.watcher().await;
    // Renewed every 5 s; until the first renewal it has no stream that could move.
    let session = Session::open(&ground.client, Duration::from_secs(15)).await.unwrap();
    renewed(&session, Instant::now()).await;
    let client = &ground.client;
    let begun = Instant::now();
    ground.used().hang();
    ground.direct.put(Put::new("told", "")).await.unwrap();
    let read = async {
        client.range(KeyRange::key("told")).await.unwrap();
        begun.elapsed()
    };
    let write = async {
        let txn = Txn::when([Compare::absent("written")]).then([Op::Put(Put::new("written", ""))]);
        let unknown = client.txn(txn.clone()).await.unwrap_err();
        assert!(matches!(unknown, ClientError::OutcomeUnknown { .. }), "{unknown}");
        // A request that may be repeated is, at another endpoint.
        assert!(client.txn(txn).await.unwrap().succeeded, "the first was executed as well");
        begun.elapsed()
    };
    let (read, write, watch, renewal) =
        tokio::join!(read, write, told(&mut watcher, begun), renewed(&session, begun));
    for (what, took) in [("read", read), ("write", write), ("watch", watch), ("renewal", renewal)] {
        assert!(took < BOUND_OF_A_CALL, "the {what} took {took:?}");
    }
    session.close().await.unwrap();
}

/// Nothing was sent that could have been executed, so nothing is in doubt.
#[tokio::test]
async fn a_write_is_not_entrusted_to_an_endpoint_that_never_answered() {
    let ground = Ground::new(3).await;
    ground.proxies[..2].iter().for_each(Proxy::hang);
    // Often enough that some of them begin at a silent one.
    for number in 0..6 {
        let options = ClientOptions::new(ground.proxies.iter().map(Proxy::endpoint));
        let client = Client::connect(options).await.unwrap();
        let begun = Instant::now();
        client.put(Put::new(format!("{number}"), "")).await.unwrap();
        let took = begun.elapsed();
        assert!(took < BOUND_OF_A_CALL + Duration::from_secs(2), "took {took:?}");
    }
}

/// A whole process that stands still is as silent as a network that swallows everything.
#[tokio::test]
async fn an_only_server_that_stands_still_is_found_again() {
    let mut ground = Ground::new(1).await;
    let mut watcher = ground.watcher().await;
    ground.server.pause();
    // The signal may take its time.
    let unknown = loop {
        if let Err(unknown) = ground.client.put(Put::new("a", "")).await {
            break unknown;
        }
    };
    assert!(matches!(unknown, ClientError::OutcomeUnknown { .. }), "{unknown}");
    // Longer than all patience with one connection.
    tokio::time::sleep(Duration::from_secs(3)).await;
    ground.server.resume();
    let client = &ground.client;
    eventually("a read is answered", BOUND, async || client.range(KeyRange::all()).await.is_ok())
        .await;
    ground.direct.put(Put::new("told", "")).await.unwrap();
    told(&mut watcher, Instant::now()).await;
}
