use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::*;
use crate::client::ClientOptions;
use crate::server::{ServerOptions, serve};

const LONG: Duration = Duration::from_secs(3600);

/// A server at this address, until what is returned is dropped.
async fn server(address: SocketAddr) -> (SocketAddr, oneshot::Sender<()>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(serve(listener, ServerOptions::default(), async {
        let _ = stopped.await;
    }));
    (address, stop)
}

async fn ledger(address: SocketAddr, max: u32) -> Ledger {
    let client = Client::connect(ClientOptions::new([address.to_string()])).await.unwrap();
    let keys = Keys::new("/test", "job");
    let _ = client.lease_grant(600, Some(keys.run_lease())).await;
    Ledger::shared(&client, &keys, max)
}

#[tokio::test]
async fn a_round_costs_one_restart_however_many_nodes_ask_at_once() {
    let (address, _stop) = server(([127, 0, 0, 1], 0).into()).await;
    let mut ledgers = Vec::new();
    for _ in 0..8 {
        ledgers.push(Arc::new(ledger(address, 1).await));
    }
    let asking = ledgers
        .iter()
        .cloned()
        .map(|ledger| tokio::spawn(async move { ledger.charge(3, "rank 0 failed", LONG).await }));
    for answer in futures_util::future::join_all(asking).await {
        assert_eq!(answer.unwrap(), Answer::Granted { short_lives: 0 });
    }
    for ledger in &ledgers {
        assert_eq!((ledger.used_before(3).await, ledger.used_before(4).await), (0, 1));
        let mut known = ledger.changes().unwrap();
        known.wait_for(|budget| budget.used == 1).await.unwrap();
    }
    assert!(matches!(ledgers[5].charge(4, "again", LONG).await, Answer::Refused { used: 1, .. }));
    ledgers[2].forgive(4, "a member was lost").await;
    assert_eq!(ledgers[7].charge(4, "again", LONG).await, Answer::Granted { short_lives: 0 });
}

#[tokio::test]
async fn a_server_that_forgets_does_not_make_the_restarts_new() {
    let (address, stop) = server(([127, 0, 0, 1], 0).into()).await;
    let first = ledger(address, 1).await;
    assert_eq!(first.charge(7, "rank 0 failed", LONG).await, Answer::Granted { short_lives: 0 });
    first.changes().unwrap().wait_for(|budget| budget.used == 1).await.unwrap();
    drop(stop);
    let _stop = loop {
        if let Ok(listener) = TcpListener::bind(address).await {
            drop(listener);
            break server(address).await.1;
        }
        sleep(Duration::from_millis(10)).await;
    };
    // The new server has rounds of its own, and they begin at 1.
    let second = ledger(address, 1).await;
    assert_eq!(first.used_before(1).await, 1);
    assert_eq!(second.used_before(1).await, 1, "who came later is told by who remembers");
    assert!(matches!(
        first.charge(1, "rank 1 failed", LONG).await,
        Answer::Refused { used: 1, .. }
    ));
}

#[tokio::test]
async fn a_node_without_a_shared_place_counts_for_itself() {
    let ledger = Ledger::own(1);
    assert!(ledger.changes().is_none());
    assert_eq!(ledger.charge(1, "rank 0 failed", LONG).await, Answer::Granted { short_lives: 0 });
    assert_eq!(ledger.used_before(2).await, 1);
    assert!(matches!(ledger.charge(2, "again", LONG).await, Answer::Refused { used: 1, .. }));
}
