//! The GPUs that `--nproc-per-node gpu` counts, against the number of workers.

use super::finding::Finding;

const CHECK: &str = "devices";

/// The GPUs of this host that workers may use, and the number of workers.
#[derive(Debug, Clone)]
pub(crate) struct Devices {
    /// The number of visible GPUs.
    pub(crate) gpus: u32,
    /// Where the number comes from.
    pub(crate) source: &'static str,
    /// The number of workers, if it was given.
    pub(crate) workers: u32,
    /// Whether the workers are to be as many as the GPUs.
    pub(crate) one_each: bool,
}

/// Whether every worker can have a GPU of its own, if there are any.
pub(super) fn judge(devices: &Devices) -> Finding {
    let Devices { gpus, source, workers, one_each } = devices;
    match gpus {
        0 if *one_each => Finding::fail(
            CHECK,
            format!(
                "--nproc-per-node gpu, and there is no GPU that this user may open ({source})."
            ),
            "Load the driver, let the container have the devices, or give a number or cpu",
        ),
        0 => Finding::ok(
            CHECK,
            format!("There is no GPU ({source}), and --nproc-per-node is {workers}."),
        ),
        gpus if workers > gpus => Finding::warn(
            CHECK,
            format!(
                "GPUs: {gpus} ({source}), and --nproc-per-node is {workers}: workers would share them."
            ),
            "Give --nproc-per-node gpu, if each worker is to have a GPU of its own",
        ),
        gpus => Finding::ok(
            CHECK,
            format!("GPUs: {gpus} ({source}), and --nproc-per-node is {workers}."),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn workers_should_not_outnumber_gpus() {
        for (gpus, workers, one_each, verdict, words) in [
            (
                0,
                1,
                false,
                Verdict::Ok,
                "There is no GPU (/dev/nvidia*), and --nproc-per-node is 1.",
            ),
            (
                0,
                1,
                true,
                Verdict::Fail,
                "--nproc-per-node gpu, and there is no GPU that this user may open (/dev/nvidia*)",
            ),
            (4, 4, true, Verdict::Ok, "GPUs: 4 (/dev/nvidia*), and --nproc-per-node is 4."),
            (4, 1, false, Verdict::Ok, "--nproc-per-node is 1"),
            (4, 8, false, Verdict::Warn, "workers would share them"),
        ] {
            let found = judge(&Devices { gpus, source: "/dev/nvidia*", workers, one_each });
            assert_eq!(found.verdict, verdict, "{}", found.message);
            assert!(found.message.contains(words), "{}", found.message);
        }
    }
}
