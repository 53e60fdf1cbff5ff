//! A store for stock PyTorch workers, until standard input ends.
//!
//! `agent_store [ADDRESS]` prints where it listens: on a free port of this host, unless it is told. Point
//! `torch.distributed.TCPStore(host, port, is_master=False)` at it.
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::error::Error;
use std::net::SocketAddr;

use rallypoint::store::AgentStore;
use tokio::net::TcpSocket;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let wanted = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let address: SocketAddr = wanted.parse().map_err(|error| format!("{wanted:?}: {error}"))?;
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let store = AgentStore::start(socket)?;
    println!("listening on {}", store.address());
    let read = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    tokio::task::spawn_blocking(read).await??;
    store.stop().await;
    Ok(())
}
