use std::net::SocketAddr;
use std::sync::Arc;

use rallypoint_core::agent::{Operation, OperatorAction};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::sleep;

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

async fn restarts(address: SocketAddr, max: u32) -> RestartCounter {
    let client = Client::connect(ClientOptions::new([address.to_string()])).await.unwrap();
    let keys = Keys::new("/test", "job");
    let _ = client.lease_grant(600, Some(keys.run_lease())).await;
    RestartCounter::new(&client, &keys, max)
}

#[tokio::test]
async fn a_round_costs_one_restart_however_many_nodes_ask_at_once() {
    let (address, _stop) = server(([127, 0, 0, 1], 0).into()).await;
    let mut ledgers = Vec::new();
    for _ in 0..8 {
        ledgers.push(Arc::new(restarts(address, 1).await));
    }
    let asking = ledgers.iter().cloned().map(|restarts| {
        tokio::spawn(async move { restarts.consume(3, "rank 0 failed", LONG).await })
    });
    for answer in futures_util::future::join_all(asking).await {
        assert_eq!(answer.unwrap(), RestartAnswer::Granted { short_lives: 0 });
    }
    for restarts in &ledgers {
        assert_eq!(
            (restarts.used_before(3, false).await, restarts.used_before(4, false).await),
            (0, 1)
        );
        let mut known = restarts.changes();
        known.wait_for(|budget| budget.used == 1).await.unwrap();
    }
    assert!(matches!(
        ledgers[5].consume(4, "again", LONG).await,
        RestartAnswer::Refused { used: 1, .. }
    ));
    ledgers[2].refund(4, "a member was lost").await;
    assert_eq!(
        ledgers[7].consume(4, "again", LONG).await,
        RestartAnswer::Granted { short_lives: 0 }
    );
}

#[tokio::test]
async fn a_server_that_forgets_does_not_make_the_restarts_new() {
    let (address, stop) = server(([127, 0, 0, 1], 0).into()).await;
    let first = restarts(address, 1).await;
    assert_eq!(
        first.consume(7, "rank 0 failed", LONG).await,
        RestartAnswer::Granted { short_lives: 0 }
    );
    first.changes().wait_for(|budget| budget.used == 1).await.unwrap();
    drop(stop);
    let _stop = loop {
        if let Ok(listener) = TcpListener::bind(address).await {
            drop(listener);
            break server(address).await.1;
        }
        sleep(Duration::from_millis(10)).await;
    };
    // The new server has rounds of its own, and they begin at 1.
    let second = restarts(address, 1).await;
    // An operator may be the first to write to it.
    let operation = Operation::Evict { node: "b".into() };
    let (by, reason) = ("ali@login".into(), String::new());
    let action = OperatorAction { operation, by, reason, round: 1, at: None };
    let recorded = encode(&RestartBudget::default().record(action));
    first.client.put(Put::new(first.key.clone(), recorded)).await.unwrap();
    let heard = |budget: &RestartBudget| budget.eviction_of("b").is_some();
    let used = first.changes().wait_for(heard).await.unwrap().used;
    assert_eq!(used, 1, "an operator's record makes no restart new");
    assert_eq!(first.used_before(1, false).await, 1);
    assert!(second.changes().wait_for(heard).await.is_ok());
    assert_eq!(second.used_before(1, false).await, 1, "who came later is told by who remembers");
    assert!(matches!(
        first.consume(1, "rank 1 failed", LONG).await,
        RestartAnswer::Refused { used: 1, .. }
    ));
}
