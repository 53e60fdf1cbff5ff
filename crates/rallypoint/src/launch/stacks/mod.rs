//! The stacks of this node's workers: of Python by PyTorch's debug server or by py-spy, of other programs as far as the
//! kernel shows them.
//!
//! Nothing here stops a worker, and everything is bounded in time.

mod debug_server;
mod kernel;
mod py_spy;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use rallypoint_core::agent::stacks::{Frame, NodeStacks, WorkerStack};
use rallypoint_core::rendezvous::documents::Address;
use tokio::time::{Instant, timeout, timeout_at};

use crate::process::{self, GroupMember, group_members};
use crate::store::TcpStore;
use crate::util::blocking::blocking;

/// The time limit for the addresses of debug servers.
const ADDRESSES: Duration = Duration::from_secs(1);

/// How many stacks are taken at the same time.
const AT_ONCE: usize = 8;

/// The time beyond the limit that a killed tool has to disappear.
const SLACK: Duration = Duration::from_millis(500);

/// The place of a worker that has exited.
const NO_PROCESS: &str = "no process any more";

/// The place of a worker that the kernel does not show in time.
const NOT_IN_TIME: &str = "an unknown place: its stack could not be read in time";

/// The workers of a node.
#[derive(Debug, Clone)]
pub(crate) struct StackTargets {
    pub(crate) host: String,
    /// The id of the node.
    pub(crate) node: String,
    /// The rank of the first worker.
    pub(crate) base_rank: u32,
    /// The process group of each worker, or the process of a worker that has no group of its own; `None` if no process
    /// of it is left.
    pub(crate) groups: Vec<Option<u32>>,
    /// The program of the workers.
    pub(crate) program: OsString,
    /// The ports of PyTorch's debug servers, by rank.
    pub(crate) debug_ports: BTreeMap<u32, u16>,
}

impl StackTargets {
    /// With the debug servers that the workers have published in their own store, which is at this address.
    pub(super) async fn with_debug_servers(self, workers_store: &Address) -> Self {
        let count = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        let ranks = self.base_rank..self.base_rank.saturating_add(count);
        let ports = async {
            let store = TcpStore::connect(&workers_store.to_string(), ADDRESSES).await.ok()?;
            Some(debug_server::ports(&store, ranks).await)
        };
        let ports = timeout(ADDRESSES, ports).await.ok().flatten();
        Self { debug_ports: ports.unwrap_or_default(), ..self }
    }

    /// The ranks of workers with a process.
    pub(crate) fn left(&self) -> impl Iterator<Item = u32> + '_ {
        let ranks = (self.base_rank..).zip(&self.groups);
        ranks.filter(|(_, group)| group.is_some()).map(|(rank, _)| rank)
    }

    /// Takes the stacks of all workers, within about this time. Dropping the future leaves a tool that runs to its
    /// own limit.
    pub(crate) async fn take(self, limit: Duration) -> NodeStacks {
        let deadline = Instant::now() + limit;
        let (program, wanted) = (self.program, self.groups.iter().flatten().copied().collect());
        // The program may be on a file system that does not answer.
        let found = timeout_at(deadline, blocking(move || py_spy::find(&program)));
        let members = timeout_at(deadline, blocking(move || group_members(&wanted)));
        let (py_spy, members) = tokio::join!(found, members);
        let (py_spy, members) = (py_spy.ok().flatten(), members.unwrap_or_default());
        let ranks = (self.base_rank..).zip(self.groups);
        let each = ranks.map(|(rank, group)| {
            let mut stack = WorkerStack { rank, step: None, frames: Vec::new(), note: None };
            let members = group.and_then(|group| members.get(&group)).cloned().unwrap_or_default();
            let sources = Sources {
                debug_port: self.debug_ports.get(&rank).copied(),
                py_spy: py_spy.clone(),
            };
            async move {
                // The kernel may let a reader wait for a process that it holds.
                let look = move || {
                    let alone = || group.filter(|pid| process::is_alive(*pid));
                    let pid = chosen(&members).or_else(alone)?;
                    Some(look(pid, &sources, deadline.into_std()))
                };
                match timeout_at(deadline + SLACK, blocking(look)).await {
                    Ok(Some(found)) => (stack.frames, stack.note) = found,
                    Ok(None) => stack.note = Some(NO_PROCESS.to_owned()),
                    Err(_) => stack.note = Some(NOT_IN_TIME.to_owned()),
                }
                stack
            }
        });
        let workers = stream::iter(each).buffered(AT_ONCE).collect().await;
        NodeStacks { host: self.host, node: self.node, workers }.bounded()
    }
}

/// The process of a worker that does its work: the leader of its group, or below a script that only waits for one child,
/// that child.
fn chosen(members: &[GroupMember]) -> Option<u32> {
    let is_member = |pid: u32| members.iter().any(|member| member.pid == pid);
    let top = members.iter().find(|member| !is_member(member.parent))?;
    let mut pid = top.pid;
    // A process has one parent, so this ends.
    for _ in members {
        let mut children = members.iter().filter(|member| member.parent == pid);
        match (children.next(), children.next()) {
            (Some(child), None) if !kernel::is_python(pid) => pid = child.pid,
            _ => break,
        }
    }
    Some(pid)
}

/// Who may tell the stack of a worker in Python.
struct Sources {
    debug_port: Option<u16>,
    py_spy: Option<PathBuf>,
}

/// The stack of a process, and a note if it is not that of its language. Blocks.
fn look(pid: u32, sources: &Sources, deadline: std::time::Instant) -> (Vec<Frame>, Option<String>) {
    if !kernel::is_python(pid) {
        return (kernel::frames(pid), None);
    }
    // It needs no tool and no right, but a worker that answers. Half of the time is left for others.
    let now = std::time::Instant::now();
    let half = now + deadline.saturating_duration_since(now) / 2;
    if let Some(frames) = sources.debug_port.and_then(|port| debug_server::dump(port, half)) {
        return (frames, None);
    }
    let note = match &sources.py_spy {
        None => "py-spy is not on the PATH, so this is where the kernel has the process".to_owned(),
        Some(path) => match py_spy::dump(path, pid, deadline) {
            Ok(frames) => return (frames, None),
            Err(error) => error.to_string(),
        },
    };
    (kernel::frames(pid), Some(note))
}

#[cfg(test)]
mod tests;
