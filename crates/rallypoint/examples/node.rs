//! An agent's loop: meet, work, and meet again whenever the group should.
//!
//! Start it some times, on any etcd or on `rallypoint serve`. It prints one JSON object for each event, and
//! reads commands: `leave`, `again`, `close REASON`, `suspect NODE-ID`, `quit`. SIGTERM is as good as `quit`.
//!
//! With `--liveness ADDRESS` it listens there and greets, so that the others can prove its death and need not wait until its
//! lease is over. An agent with workers would have them inherit that socket.
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::error::Error;
use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use clap::Parser;
use rallypoint::client::ClientOptions;
use rallypoint::core::rendezvous::RunClosed;
use rallypoint::core::rendezvous::documents::LivenessAddress;
use rallypoint::core::rendezvous::keys::DEFAULT_PREFIX;
use rallypoint::core::rendezvous::ranks::RankPolicy;
use rallypoint::rendezvous::{
    EtcdRendezvousHandler, HandlerOptions, HandlerStatus, RendezvousError, RendezvousHandler,
};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Parser)]
struct Options {
    /// The servers, separated by commas.
    #[arg(long, env = "RDZV_ENDPOINT", default_value = "127.0.0.1:2379")]
    endpoint: String,
    /// The name of the run.
    #[arg(long, env = "RDZV_RUN_ID", default_value = "example")]
    run_id: String,
    /// The size of the group: N, or MIN:MAX.
    #[arg(long, env = "RDZV_NNODES", default_value = "1:4")]
    nnodes: String,
    /// How many seconds a round waits for more nodes once there are enough.
    #[arg(long, env = "RDZV_LAST_CALL", default_value_t = 5.0)]
    last_call: f64,
    /// After how many seconds of silence a node counts as dead.
    #[arg(long, env = "RDZV_LEASE_TTL", default_value_t = 10)]
    lease_ttl: u64,
    /// stable, hint, topology or arrival.
    #[arg(long, env = "RDZV_RANK_POLICY", default_value = "stable")]
    rank_policy: RankPolicy,
    /// The rank that this node would like to have.
    #[arg(long, env = "RDZV_NODE_RANK")]
    node_rank: Option<u32>,
    /// Where the run keeps its keys.
    #[arg(long, env = "RDZV_PREFIX", default_value = DEFAULT_PREFIX)]
    prefix: String,
    /// Where to listen with a socket that shows that this process lives, such as 127.0.0.1.
    #[arg(long, env = "RDZV_LIVENESS")]
    liveness: Option<String>,
}

fn handler_options(options: Options) -> Result<HandlerOptions, Failure> {
    let (min, max) = options.nnodes.split_once(':').unwrap_or((&options.nnodes, &options.nnodes));
    let mut handler = HandlerOptions::new(&options.run_id, min.parse()?, max.parse()?);
    handler.prefix = options.prefix;
    handler.last_call = Duration::try_from_secs_f64(options.last_call)?;
    handler.lease_ttl = Duration::from_secs(options.lease_ttl);
    handler.rank_policy = options.rank_policy;
    handler.node_rank = options.node_rank;
    handler.liveness = options.liveness.map(liveness).transpose()?;
    Ok(handler)
}

/// Listens on a port of `host`, and greets whoever connects. A thread holds the connections until the process ends.
fn liveness(host: String) -> std::io::Result<LivenessAddress> {
    let listener = TcpListener::bind((host.as_str(), 0))?;
    let (port, token) = (listener.local_addr()?.port(), format!("{:016x}", fastrand::u64(..)));
    let greeting = format!("rallypoint-guard {token}\n");
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for mut stream in listener.incoming().flatten() {
            if stream.write_all(greeting.as_bytes()).is_ok() {
                held.push(stream);
            }
        }
    });
    Ok(LivenessAddress { host, port, token })
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let options = Options::parse();
    let servers = ClientOptions::new([options.endpoint.clone()]);
    let handler = EtcdRendezvousHandler::open(servers, handler_options(options)?).await?;
    let say = |event: &str, mut more: Value| {
        (more["event"], more["node"]) = (event.into(), handler.node_id().into());
        println!("{more}");
    };
    let (mut commands, mut changes) = (commands(), handler.changes());
    let mut terminated = signal(SignalKind::terminate())?;
    let mut meeting = Some(handler.next_rendezvous());
    let (mut member, mut waits_for) = (false, None);
    loop {
        tokio::select! {
            biased;
            Some(met) = async { Some(meeting.as_mut()?.await) } => {
                meeting = None;
                let group = match met {
                    Ok(group) => group,
                    // The run is over, and this node was a spare all along: a success.
                    Err(RendezvousError::GracefulExit { reason, .. }) => {
                        break say("graceful_exit", json!({ "reason": reason }));
                    }
                    Err(RendezvousError::Closed { by, reason, .. }) => {
                        break say("closed", json!({ "by": by, "reason": reason }));
                    }
                    Err(error) => {
                        say("error", json!({ "words": error.to_string() }));
                        return Err(error.into());
                    }
                };
                // Here the workers would start, with what the group says in their environment.
                let master = group.bootstrap_store_info;
                say("formed", json!({
                    "round": group.round, "rank": group.rank, "world": group.world_size,
                    "master": format!("{}:{}", master.master_addr, master.master_port),
                }));
                member = true;
                changes.mark_changed();
            }
            _ = changes.changed() => {
                let HandlerStatus { view, fenced, .. } = changes.borrow_and_update().clone();
                if let Some(loss) = fenced.filter(|_| member) {
                    // Before all else the workers must stop: another node may take this one's place.
                    say("fenced", json!({ "words": loss.to_string() }));
                    (member, meeting) = (false, Some(handler.next_rendezvous()));
                } else if let (true, Some(RunClosed { by, reason, .. })) = (member, view.closed) {
                    break say("closed", json!({ "by": by.to_string(), "reason": reason }));
                } else if member && view.nodes_waiting > 0 {
                    // Here the workers would stop.
                    say("changed", json!({ "nodes_waiting": view.nodes_waiting, "lost": view.lost }));
                    (member, meeting) = (false, Some(handler.next_rendezvous()));
                }
                if view.waits_for != waits_for {
                    waits_for = view.waits_for;
                    say("waiting", json!({ "for": waits_for }));
                }
            }
            _ = terminated.recv() => break,
            Some(line) = commands.recv() => match line.split_once(' ').unwrap_or((&line, "")) {
                ("again", _) => (member, meeting) = (false, Some(handler.next_rendezvous())),
                ("close", reason) => handler.set_closed(reason).await?,
                ("suspect", node) => handler.suspect(node),
                ("leave", _) => {
                    (member, meeting) = (false, None);
                    handler.leave().await;
                    say("left", json!({}));
                }
                ("quit", _) => break,
                _ => say("error", json!({ "words": format!("{line:?} is no command") })),
            },
        }
    }
    // Without this, the others would learn of it when the lease ends.
    handler.leave().await;
    Ok(())
}

/// The lines of the standard input. A thread reads them, since the runtime could not end while it does.
fn commands() -> mpsc::UnboundedReceiver<String> {
    let (sender, commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    commands
}
