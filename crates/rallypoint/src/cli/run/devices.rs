//! How many GPUs the workers of this node may use.

use std::fs;
use std::path::Path;

use super::taken::{Environment, text};

/// In this order, since what PyTorch looks at first decides.
const VISIBLE: &[&str] = &["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];

/// What was counted, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) devices: u32,
    pub(super) source: &'static str,
}

/// How many GPUs may be seen, of those that there are.
pub(super) fn visible(environment: &Environment, there: &Count) -> Count {
    // Set to nothing, it means none, which is not the same as not set.
    let hidden =
        VISIBLE.iter().find(|name| environment.get(**name).is_some_and(|v| v.trim().is_empty()));
    match (text(environment, VISIBLE), hidden) {
        (Some((source, list)), _) => Count { devices: listed(list, there.devices), source },
        (None, Some(source)) => Count { devices: 0, source },
        (None, None) => there.clone(),
    }
}

/// CUDA takes the list up to the first device that it does not have. Where none can be seen from here, as in
/// some containers, the list is believed.
fn listed(list: &str, there: u32) -> u32 {
    let usable = |device: &&str| match device.trim().parse::<i64>() {
        Ok(index) => index >= 0 && (there == 0 || index < i64::from(there)),
        // A name: GPU-8932f937, MIG-…
        Err(_) => !matches!(device.trim(), "" | "NoDevFiles"),
    };
    u32::try_from(list.split(',').take_while(usable).count()).unwrap_or(u32::MAX)
}

/// Counts the GPUs that the drivers show below `root`, which is `/` except in tests.
pub(super) fn count(root: &Path) -> Count {
    let entries = |path: &str| -> Vec<fs::DirEntry> {
        // What cannot be read is not there for us.
        fs::read_dir(root.join(path)).into_iter().flatten().flatten().collect()
    };
    let numbered = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    // Processors are in this list too, with 0 for an id.
    let is_gpu = |entry: &fs::DirEntry| {
        let id = fs::read_to_string(entry.path().join("gpu_id"));
        id.is_ok_and(|id| !matches!(id.trim(), "" | "0"))
    };
    let counts = [
        ("/dev/nvidia*", entries("dev").iter().filter(|entry| numbered(entry)).count()),
        ("/proc/driver/nvidia/gpus", entries("proc/driver/nvidia/gpus").len()),
        (
            "/sys/class/kfd",
            entries("sys/class/kfd/kfd/topology/nodes")
                .iter()
                .filter(|entry| is_gpu(entry))
                .count(),
        ),
    ];
    let found = counts.into_iter().find(|(_, devices)| *devices > 0);
    let (source, devices) = found.unwrap_or(("/dev/nvidia* and /sys/class/kfd", 0));
    Count { devices: u32::try_from(devices).unwrap_or(u32::MAX), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_devices_is_read_as_cuda_does() {
        let there = |devices| Count { devices, source: "dev" };
        for (variables, devices, expected) in [
            (&[][..], 4, (4, "dev")),
            (&[("CUDA_VISIBLE_DEVICES", "0,2")], 4, (2, "CUDA_VISIBLE_DEVICES")),
            (&[("CUDA_VISIBLE_DEVICES", "2, 1 ,0")], 0, (3, "CUDA_VISIBLE_DEVICES")),
            (&[("CUDA_VISIBLE_DEVICES", "0,9,1")], 4, (1, "CUDA_VISIBLE_DEVICES")),
            (&[("CUDA_VISIBLE_DEVICES", "1,-1,0")], 4, (1, "CUDA_VISIBLE_DEVICES")),
            (&[("CUDA_VISIBLE_DEVICES", "")], 4, (0, "CUDA_VISIBLE_DEVICES")),
            (&[("CUDA_VISIBLE_DEVICES", "NoDevFiles")], 4, (0, "CUDA_VISIBLE_DEVICES")),
            (&[("CUDA_VISIBLE_DEVICES", "GPU-8932f937,MIG-1")], 4, (2, "CUDA_VISIBLE_DEVICES")),
            (&[("HIP_VISIBLE_DEVICES", "0")], 4, (1, "HIP_VISIBLE_DEVICES")),
            (&[("ROCR_VISIBLE_DEVICES", "0,1")], 4, (2, "ROCR_VISIBLE_DEVICES")),
        ] {
            let environment: Environment =
                variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let found = visible(&environment, &there(devices));
            assert_eq!((found.devices, found.source), expected, "{variables:?}");
        }
    }

    #[test]
    fn devices_are_counted_where_the_drivers_show_them() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let counted = || (count(root.path()).devices, count(root.path()).source);
        assert_eq!(counted().0, 0);
        for (node, id) in [("0", "0\n"), ("1", "51110\n"), ("2", "7\n")] {
            let node = at("sys/class/kfd/kfd/topology/nodes").join(node);
            fs::create_dir_all(&node).unwrap();
            fs::write(node.join("gpu_id"), id).unwrap();
        }
        assert_eq!(counted(), (2, "/sys/class/kfd"));
        fs::create_dir_all(at("proc/driver/nvidia/gpus/0000:01:00.0")).unwrap();
        assert_eq!(counted(), (1, "/proc/driver/nvidia/gpus"));
        fs::create_dir_all(at("dev")).unwrap();
        for name in ["nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"] {
            fs::write(at("dev").join(name), "").unwrap();
        }
        assert_eq!(counted(), (3, "/dev/nvidia*"));
    }
}
