//! The Rust blocks of the book, so that they compile. `scripts/docs.py` compares them with the pages: each block stands
//! here word for word, in a function that has what the text around the block assumes.

#![expect(dead_code, reason = "the blocks are compiled, and other tests run what they show")]
#![expect(clippy::print_stdout, reason = "programs of users print")]

use std::error::Error;
use std::time::Duration;

use rallypoint::rendezvous::RendezvousInfo;

/// The program's own part.
struct Workers;

impl Workers {
    fn are_healthy(&self) -> bool {
        true
    }
    fn have_succeeded(&self) -> bool {
        true
    }
    fn stop(self) {}
}

fn start_workers(_group: &RendezvousInfo) -> Workers {
    Workers
}

async fn tick() {}

async fn rendezvous() -> Result<(), Box<dyn Error>> {
    use rallypoint::rendezvous::{RendezvousHandlerRegistry, RendezvousParameters};

    let parameters = RendezvousParameters::new("etcd", "a:2379,b:2379,c:2379", "job-7", 4, 8)?
        .with("last_call_timeout", 10);
    let handler = RendezvousHandlerRegistry::with_builtin().create_handler(parameters).await?;
    loop {
        let group = handler.next_rendezvous().await?; // rank, world_size, round, store, MASTER_ADDR
        let workers = start_workers(&group);
        while workers.are_healthy() && handler.num_nodes_waiting().await? == 0 {
            tick().await; // a memory read, fed by a watch
        }
        if workers.have_succeeded() {
            handler.shutdown().await; // closes the run: the job is done
            break;
        }
        workers.stop(); // membership changed: rendezvous again
    }
    Ok(())
}

async fn client() -> Result<(), Box<dyn Error>> {
    use rallypoint::client::{Client, ClientOptions};
    use rallypoint::core::kv::{KeyRange, Put, Watch};
    use rallypoint::session::Session;

    let client = Client::connect(ClientOptions::new(["a:2379", "b:2379", "c:2379"])).await?;
    let session = Session::open(&client, Duration::from_secs(10)).await?;
    let mut watcher = client.watch([Watch::new(KeyRange::prefix("members/"))]).await?;
    client.put(Put::new("members/me", "here").on_lease(session.lease())).await?;
    tokio::select! {
        batch = watcher.next() => println!("{:?}", batch?.events),
        loss = session.lost() => println!("stop everything: {loss}"),
    }
    Ok(())
}

async fn server(shutdown: impl Future<Output = ()> + Send) -> Result<(), Box<dyn Error>> {
    use rallypoint::server::{ServerOptions, serve};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    serve(listener, ServerOptions::default(), shutdown).await?;
    Ok(())
}

async fn etcd() -> Result<(), Box<dyn Error>> {
    use rallypoint::etcd_server::{EtcdServer, EtcdServerOptions};

    let mut etcd = EtcdServer::start(EtcdServerOptions::default()).await?;
    println!("etcd {} at {}", etcd.version(), etcd.endpoint());
    let client = etcd.client().await?;
    etcd.stop().await?;
    drop(client);
    Ok(())
}

async fn stores(group: RendezvousInfo) -> Result<(), Box<dyn Error>> {
    use rallypoint::store::{Store, TcpStore};

    let master = &group.bootstrap_store_info; // published by rank 0 for this round
    let address = format!("{}:{}", master.master_addr, master.master_port);
    let store = TcpStore::connect(&address, Duration::from_secs(300)).await?;
    store.set(b"address/7", "10.0.0.7:4242".into()).await?;
    let arrived = store.add(b"arrived", 1).await?;
    store.barrier(b"start", 8, Duration::from_secs(60)).await?; // on time-out: "3 of 8 had arrived"
    assert!(arrived > 0);
    Ok(())
}
