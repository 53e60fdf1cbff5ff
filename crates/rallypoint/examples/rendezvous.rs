//! Three nodes meet, on a server of their own or on the endpoint given.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use rallypoint::client::ClientOptions;
use rallypoint::rendezvous::{EtcdRendezvousHandler, HandlerOptions, RendezvousHandler};
use rallypoint::server::{ServerOptions, serve};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let own = listener.local_addr()?.to_string();
    tokio::spawn(serve(listener, ServerOptions::default(), std::future::pending()));
    let endpoint = std::env::args().nth(1).unwrap_or(own);
    let node = async |endpoint| {
        let options = HandlerOptions::new("example", 3, 3);
        let handler = EtcdRendezvousHandler::open(ClientOptions::new([endpoint]), options).await?;
        let group = handler.next_rendezvous().await?;
        println!("rank {} of {} in round {}", group.rank, group.world_size, group.round);
        handler.leave().await;
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    };
    tokio::try_join!(node(endpoint.clone()), node(endpoint.clone()), node(endpoint))?;
    Ok(())
}
