//! The number of GPUs that the workers of this node may use.

use std::fs;
use std::path::Path;

use rustix::fs::{Access, access};

use super::environment::text;
use crate::launch::job::Environment;

/// In PyTorch's order of precedence.
const VISIBLE: &[&str] = &["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];

/// The variable that tells a container runtime which devices to provide.
const CONTAINER: &str = "NVIDIA_VISIBLE_DEVICES";

/// The number of devices, and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) devices: u32,
    pub(super) source: &'static str,
}

/// The number of visible GPUs among those of the host.
pub(super) fn visible(environment: &Environment, there: &Count) -> Count {
    // A container's devices are counted already; but an image may say here that it wants none.
    if let Some("void" | "none") = environment.get(CONTAINER).map(|value| value.trim()) {
        return Count { devices: 0, source: CONTAINER };
    }
    // Empty means no devices; unset means all.
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

/// Counts the GPUs that this process may use, below `root`, which is `/` except in tests: those with a device that it
/// may open. What the drivers tell of besides is the host's, also in a container that has none of it.
///
/// No device is opened for it: that would wake it up, and may take seconds. What the system says of the right to do so
/// includes the rules of a container.
pub(super) fn count(root: &Path) -> Count {
    let entries = |path: &str| -> Vec<fs::DirEntry> {
        // A directory that cannot be read has no usable devices.
        fs::read_dir(root.join(path)).into_iter().flatten().flatten().collect()
    };
    let is_usable = |path: &Path| access(path, Access::READ_OK | Access::WRITE_OK).is_ok();
    let is_nvidia = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
        let numbered = |n: &str| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit());
        number.is_some_and(numbered) && is_usable(&entry.path())
    };
    let has_kfd = is_usable(&root.join("dev/kfd"));
    // Processors are in this list too, with 0 for an id.
    let is_amd = |entry: &fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let minor = read("properties").lines().find_map(|line| {
            line.strip_prefix("drm_render_minor ").map(|minor| minor.trim().to_owned())
        });
        !matches!(read("gpu_id").trim(), "" | "0")
            && minor.is_some_and(|minor| is_usable(&root.join(format!("dev/dri/renderD{minor}"))))
    };
    let nvidia = entries("dev").iter().filter(|entry| is_nvidia(entry)).count();
    let nodes = entries("sys/class/kfd/kfd/topology/nodes");
    let amd = nodes.iter().filter(|entry| has_kfd && is_amd(entry)).count();
    let counts = [("/dev/nvidia*", nvidia), ("/dev/dri/renderD* of /sys/class/kfd", amd)];
    let found = counts.into_iter().find(|(_, devices)| *devices > 0);
    let (source, devices) = found.unwrap_or(("/dev/nvidia* and /dev/kfd", 0));
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
    fn a_container_that_wants_none_has_none() {
        let there = Count { devices: 4, source: "dev" };
        for (value, expected) in [("void", 0), ("none", 0), ("all", 4), ("0,1", 4), ("", 4)] {
            let environment = Environment::from([(CONTAINER.to_owned(), value.to_owned())]);
            assert_eq!(visible(&environment, &there).devices, expected, "{value}");
        }
    }

    #[test]
    fn devices_are_counted_if_they_are_there_to_be_used() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let counted = || (count(root.path()).devices, count(root.path()).source);
        assert_eq!(counted().0, 0);
        // What the drivers of the host tell of.
        fs::create_dir_all(at("proc/driver/nvidia/gpus/0000:01:00.0")).unwrap();
        for (node, id) in [("0", "0\n"), ("1", "51110\n"), ("2", "7\n"), ("3", "8\n")] {
            let directory = at("sys/class/kfd/kfd/topology/nodes").join(node);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("gpu_id"), id).unwrap();
            let properties = format!("cpu_cores_count 0\ndrm_render_minor 12{node}\n");
            fs::write(directory.join("properties"), properties).unwrap();
        }
        assert_eq!(counted().0, 0);
        fs::create_dir_all(at("dev/dri")).unwrap();
        for name in ["dri/renderD120", "dri/renderD121", "dri/renderD122"] {
            fs::write(at("dev").join(name), "").unwrap();
        }
        assert_eq!(counted().0, 0, "nothing is used without that device");
        fs::write(at("dev/kfd"), "").unwrap();
        assert_eq!(counted(), (2, "/dev/dri/renderD* of /sys/class/kfd"));
        for name in ["nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"] {
            fs::write(at("dev").join(name), "").unwrap();
        }
        assert_eq!(counted(), (3, "/dev/nvidia*"));
    }
}
