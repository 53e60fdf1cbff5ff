//! Three nodes meet, on a server of their own or on the endpoint given.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use rallypoint::rendezvous::{RendezvousHandlerRegistry, RendezvousParameters};
use rallypoint::server::{ServerOptions, serve};
type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn node(endpoint: &str) -> Result<(), AnyError> {
    // A run that was shut down stays closed, so each run of the example is another.
    let run_id = format!("example-{}", std::process::id());
    let parameters = RendezvousParameters::new("etcd", endpoint, run_id, 3, 3)?;
    let handler = RendezvousHandlerRegistry::with_builtin().create_handler(parameters).await?;
    let group = handler.next_rendezvous().await?;
    println!("rank {} of {}", group.rank, group.world_size);
    // A node that shuts down closes the run, so all must have met before.
    group.store.barrier(b"done", 3, Duration::from_secs(30)).await?;
    handler.shutdown().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let own = listener.local_addr()?.to_string();
    tokio::spawn(serve(listener, ServerOptions::default(), std::future::pending()));
    let endpoint = std::env::args().nth(1).unwrap_or(own);
    tokio::try_join!(node(&endpoint), node(&endpoint), node(&endpoint))?;
    Ok(())
}
