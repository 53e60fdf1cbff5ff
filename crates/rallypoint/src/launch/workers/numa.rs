//! NUMA binding: each worker runs on processors near its device, or on a share of its own.

mod sysfs;
mod topology;

use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::topology::Topology;
use crate::launch::job::NumaBinding;
use crate::log_target::LAUNCH;

/// The processors of each worker, by local rank; empty if workers are not bound, or cannot be, which is logged.
/// `root` is `/` except in tests, `visible` is `CUDA_VISIBLE_DEVICES`.
///
/// Workers get only processors that this process may use itself.
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
            tracing::warn!(
                target: LAUNCH,
                %error, "the workers are not bound: our own processors are not known"
            );
            return Vec::new();
        }
    };
    let own = (0..CpuSet::MAX_CPU).filter(|processor| own.is_set(*processor)).collect();
    let topology = sysfs::topology(root).within(&own);
    if topology.nodes.is_empty() {
        tracing::warn!(
            target: LAUNCH,
            "the workers are not bound: /sys/devices/system/node tells of no NUMA node of ours"
        );
        return Vec::new();
    }
    let homes = homes(&topology, &sysfs::device_nodes(root), workers, visible);
    let mut sets = Vec::new();
    for (local_rank, node) in homes.iter().enumerate() {
        let processors = topology.share(binding, &homes, local_rank);
        let list = topology::list(&processors);
        tracing::info!(target: LAUNCH, local_rank, node, processors = list, "a worker is bound");
        let mut set = CpuSet::new();
        processors.into_iter().filter(|one| *one < CpuSet::MAX_CPU).for_each(|one| set.set(one));
        sets.push(set);
    }
    sets
}

/// The NUMA node of each worker: that of its device, or else the nodes in turn.
fn homes(
    topology: &Topology,
    devices: &[Option<u32>],
    workers: u32,
    visible: Option<&str>,
) -> Vec<u32> {
    let nodes: Vec<u32> = topology.nodes.keys().copied().collect();
    let device = |local_rank: usize| match visible {
        None => Some(local_rank),
        // Device names (UUIDs) have no position on the bus.
        Some(list) => list.split(',').nth(local_rank)?.trim().parse().ok(),
    };
    let near = |local_rank: usize| {
        let node = *devices.get(device(local_rank)?)?;
        node.filter(|node| nodes.contains(node))
    };
    let home = |rank: usize| near(rank).unwrap_or_else(|| nodes[rank % nodes.len()]);
    (0..workers as usize).map(home).collect()
}

/// Runs `work` on these processors, in a thread of its own: a process inherits the processors of the thread that
/// starts it.
pub(super) fn on<T: Send>(processors: Option<&CpuSet>, work: impl FnOnce() -> T + Send) -> T {
    let Some(processors) = processors else { return work() };
    let bound = || {
        if let Err(error) = sched_setaffinity(None, processors) {
            tracing::warn!(target: LAUNCH, %error, "a worker is not bound");
        }
        work()
    };
    let done = std::thread::scope(|scope| scope.spawn(bound).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests;
