//! A member announces itself, watches for others, and would learn at once if it lost its place.
//!
//! Starts a server of its own, or uses the endpoints given:
//! `cargo run --example session -- a:2379,b:2379,c:2379`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use rallypoint::client::{Client, ClientOptions};
use rallypoint::core::kv::{KeyRange, Put, Watch};
use rallypoint::server::{ServerOptions, serve};
use rallypoint::session::Session;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let endpoints = match std::env::args().nth(1) {
        Some(endpoints) => endpoints,
        None => {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?.to_string();
            tokio::spawn(serve(listener, ServerOptions::default(), std::future::pending()));
            address
        }
    };
    let client = Client::connect(ClientOptions::new([endpoints])).await?;
    let session = Session::open(&client, Duration::from_secs(10)).await?;
    let mut watcher = client.watch([Watch::new(KeyRange::prefix("members/"))]).await?;
    client.put(Put::new("members/me", "here").on_lease(session.lease())).await?;
    tokio::select! {
        batch = watcher.next() => for event in batch?.events {
            println!("{:?} {:?}", event.kind, event.kv.key);
        },
        loss = session.lost() => println!("stop everything: {loss}"),
    }
    session.close().await?;
    Ok(())
}
