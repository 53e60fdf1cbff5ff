//! The command line, the environment, and the output.

use super::Doctor;
use crate::launch::free_endpoint;

/// The line of a job, with `doctor` in the place of `run`.
#[test]
fn the_line_of_a_job_is_examined_and_nothing_is_started() {
    let endpoint = free_endpoint();
    let line = [
        "--nnodes",
        "2",
        "--rdzv-endpoint",
        &endpoint,
        "--rdzv-id",
        "job",
        "--max-restarts",
        "3",
        "--tee",
        "3",
        "--preflight",
        "false",
        "train.py",
        "--epochs",
        "10",
    ];
    let (code, stdout, stderr) = Doctor::new(&line).prints();
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    for words in [
        "warn  endpoint",
        "ok    server",
        "nothing listens there yet",
        "ok    address",
        "checks: 0 failed",
    ] {
        assert!(stdout.to_lowercase().contains(words), "{words}: {stdout}");
    }
    let found = Doctor::new(&["--nnodes", "2", "--rdzv-endpoint", &endpoint]).finds().is("ok");
    found.says("server", "ok", "can listen there: the first launcher runs the server");
    assert_eq!(found.report["format"], 1);
    assert_eq!(found.report["endpoint"], endpoint);
    for check in ["host_name", "endpoint", "server", "address", "descriptors", "devices", "disk"] {
        assert!(!found.of(check).is_empty(), "{check}: {:#}", found.report);
    }
}

#[test]
fn a_wrong_line_is_refused_as_that_of_a_job() {
    for (options, words) in [
        (&["--nnodes", "two"][..], "give a number of nodes"),
        (&["--nnodes", "2"], "2 nodes need a place to meet"),
        (&["--rdzv-endpoint", "head:x"], "the port must be a number"),
        (&["--rdzv-conf", "lease_tll=5"], "did you mean lease_ttl?"),
        (&["--rdzv-end", "a", "--chek"], "--chek"),
    ] {
        let (code, stdout, stderr) = Doctor::new(options).prints();
        assert_eq!(code, Some(2), "{options:?}: {stdout}{stderr}");
        assert!(stderr.contains(words), "{options:?}: {stderr}");
    }
}

#[test]
fn variables_and_schedulers_are_read_as_for_a_job() {
    let endpoint = free_endpoint();
    let found = Doctor::new(&[]).env("PET_NNODES", "2").env("PET_RDZV_ENDPOINT", &endpoint).finds();
    assert_eq!(found.report["endpoint"], endpoint);
    let slurm = Doctor::new(&[])
        .env("SLURM_JOB_ID", "7")
        .env("SLURM_STEP_ID", "0")
        .env("SLURM_NNODES", "2")
        .env("SLURM_NODEID", "1")
        .env("SLURM_JOB_NODELIST", "127.0.0.1,10.0.0.2")
        .finds();
    assert_eq!(slurm.report["endpoint"], "127.0.0.1:29407");
}

#[test]
fn a_job_of_one_node_needs_no_server() {
    let found = Doctor::new(&["--standalone", "--nproc-per-node", "2"]).finds().is("ok");
    found.says("endpoint", "ok", "brings its own server");
    found.says("devices", "ok", "");
    let found = Doctor::new(&["--nproc-per-node", "gpu"])
        .env("CUDA_VISIBLE_DEVICES", "")
        .finds()
        .is("fail");
    found.says("devices", "fail", "there is no GPU that this user may open (CUDA_VISIBLE_DEVICES)");
}

#[test]
fn limits_and_directories_are_measured() {
    let endpoint = free_endpoint();
    let by: Vec<String> = ["prlimit", "--nofile=1024:2048"].map(str::to_owned).to_vec();
    let found = Doctor::new(&[
        "--nnodes",
        "1:4000",
        "--rdzv-endpoint",
        &endpoint,
        "--log-dir",
        "/proc/1/nowhere",
    ])
    .by(&by)
    .finds()
    .is("fail");
    found.says(
        "descriptors",
        "fail",
        "need up to 12064 open descriptors on one node, and the hard limit is 2048",
    );
    found.says("disk", "fail", "/proc/1/nowhere (log files)");
    found.says("disk", "ok", "temporary files");
}
