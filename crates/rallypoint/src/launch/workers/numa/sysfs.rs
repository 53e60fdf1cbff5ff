//! Processors and devices, as sysfs describes them. A file that cannot be read counts as absent.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::topology::{Processors, Topology, parse};

const NVIDIA: &str = "0x10de";

/// Display controllers of any kind.
const DISPLAY: &str = "0x03";

/// The processors below `root`.
pub(super) fn topology(root: &Path) -> Topology {
    let mut topology = Topology::default();
    for (number, node) in numbered(&root.join("sys/devices/system/node"), "node") {
        if let Some(processors) = processors(&node.join("cpulist")) {
            topology.nodes.insert(number, processors);
        }
    }
    for (_, processor) in numbered(&root.join("sys/devices/system/cpu"), "cpu") {
        let either = |new: &str, old: &str| {
            let topology = processor.join("topology");
            processors(&topology.join(new)).or_else(|| processors(&topology.join(old)))
        };
        // The second is the name in kernels before 5.2.
        topology.packages.extend(either("package_cpus_list", "core_siblings_list"));
        topology.cores.extend(either("core_cpus_list", "thread_siblings_list"));
        topology.caches.extend(last_level_cache(&processor));
    }
    topology
}

fn last_level_cache(processor: &Path) -> Option<Processors> {
    let level = |cache: &PathBuf| text(&cache.join("level")).parse::<u32>().unwrap_or_default();
    let caches = numbered(&processor.join("cache"), "index").into_iter().map(|(_, cache)| cache);
    processors(&caches.max_by_key(level)?.join("shared_cpu_list"))
}

/// The NUMA node of each NVIDIA device, in the order of the bus, which is that of CUDA among equal ones.
pub(super) fn device_nodes(root: &Path) -> Vec<Option<u32>> {
    let devices = fs::read_dir(root.join("sys/bus/pci/devices")).into_iter().flatten().flatten();
    let is_ours = |device: &PathBuf| {
        text(&device.join("vendor")) == NVIDIA && text(&device.join("class")).starts_with(DISPLAY)
    };
    let devices: BTreeSet<PathBuf> = devices.map(|entry| entry.path()).filter(is_ours).collect();
    // It is -1 if the firmware does not report one.
    devices.iter().map(|device| text(&device.join("numa_node")).parse().ok()).collect()
}

/// The entries `<name><number>` of a directory, by their numbers.
fn numbered(directory: &Path, name: &str) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix(name)?.parse().ok()?;
        Some((number, entry.path()))
    };
    let mut found: Vec<_> = entries.filter_map(number).collect();
    found.sort_unstable();
    found
}

fn processors(path: &Path) -> Option<Processors> {
    parse(&fs::read_to_string(path).ok()?).filter(|processors| !processors.is_empty())
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}
