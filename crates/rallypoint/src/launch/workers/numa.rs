//! Workers on the processors that are near to their devices, or at least not in each other's way.

mod sysfs;
mod topology;

use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::topology::Topology;
use crate::cli::run::values::NumaBinding;

/// The processors of each worker, by its local rank; none if they are not to be bound, or cannot be, which
/// is said. `root` is `/` except in tests, `visible` is `CUDA_VISIBLE_DEVICES`.
///
/// Only what this process may use itself is given away.
pub(super) fn bindings(
    root: &Path,
    binding: Option<NumaBinding>,
    workers: u32,
    visible: Option<&str>,
) -> Vec<CpuSet> {
    let Some(binding) = binding else { return Vec::new() };
    let own = match sched_getaffinity(None) {
        Ok(own) => own,
        Err(error) => {
            tracing::warn!(%error, "the workers are not bound: our own processors are not known");
            return Vec::new();
        }
    };
    let own = (0..CpuSet::MAX_CPU).filter(|processor| own.is_set(*processor)).collect();
    let topology = sysfs::topology(root).within(&own);
    if topology.nodes.is_empty() {
        tracing::warn!(
            "the workers are not bound: /sys/devices/system/node tells of no NUMA node of ours"
        );
        return Vec::new();
    }
    let homes = homes(&topology, &sysfs::device_nodes(root), workers, visible);
    let mut sets = Vec::new();
    for (local_rank, node) in homes.iter().enumerate() {
        let processors = topology.share(binding, &homes, local_rank);
        let list = topology::list(&processors);
        tracing::info!(local_rank, node, processors = list, "a worker is bound");
        let mut set = CpuSet::new();
        processors.into_iter().filter(|one| *one < CpuSet::MAX_CPU).for_each(|one| set.set(one));
        sets.push(set);
    }
    sets
}

/// The NUMA node of each worker: that of its device if it has one, and otherwise each in turn.
fn homes(
    topology: &Topology,
    devices: &[Option<u32>],
    workers: u32,
    visible: Option<&str>,
) -> Vec<u32> {
    let nodes: Vec<u32> = topology.nodes.keys().copied().collect();
    let device = |local_rank: usize| match visible {
        None => Some(local_rank),
        // Names of devices are of no use here.
        Some(list) => list.split(',').nth(local_rank)?.trim().parse().ok(),
    };
    let near = |local_rank: usize| {
        let node = *devices.get(device(local_rank)?)?;
        node.filter(|node| nodes.contains(node))
    };
    let home = |rank: usize| near(rank).unwrap_or_else(|| nodes[rank % nodes.len()]);
    (0..workers as usize).map(home).collect()
}

/// Does this work on these processors, and whatever is started by it stays there: a process has the
/// processors of the thread that started it. So it takes a thread of its own.
pub(super) fn on<T: Send>(processors: Option<&CpuSet>, work: impl FnOnce() -> T + Send) -> T {
    let Some(processors) = processors else { return work() };
    let bound = || {
        if let Err(error) = sched_setaffinity(None, processors) {
            tracing::warn!(%error, "a worker is not bound");
        }
        work()
    };
    let done = std::thread::scope(|scope| scope.spawn(bound).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests;
