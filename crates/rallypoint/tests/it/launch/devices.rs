//! How many GPUs a container has: those that may be used in it, not those of its host.

use super::Job;

/// Runs what follows where the drivers of the host show devices of which none is there.
const CONTAINER: &str = r#"
    mount -t tmpfs none /sys/class && mount -t tmpfs none /proc/driver || exit 99
    for node in 0 1 2; do
        mkdir -p /sys/class/kfd/kfd/topology/nodes/$node /proc/driver/nvidia/gpus/0000:0$node:00.0
        echo "drm_render_minor $((200 + node))" > /sys/class/kfd/kfd/topology/nodes/$node/properties
        echo 5111$node > /sys/class/kfd/kfd/topology/nodes/$node/gpu_id
    done
    exec "$@"
"#;

#[test]
fn the_devices_of_a_host_do_not_count_in_a_container_without_them() {
    let job = Job::new(&["--dry-run", "--nproc-per-node", "auto"]);
    let by = ["unshare", "--mount", "sh", "-c", CONTAINER, "container"];
    let shown = job.launcher().by(&by).start().ends_with(0).stdout;
    assert!(shown.contains("from the processors of this host"), "{shown}");
    let job = Job::new(&["--dry-run", "--nproc-per-node", "gpu"]);
    let said = job.launcher().by(&by).start().ends_with(2).stderr;
    assert!(said.contains("no GPU"), "{said}");
}
