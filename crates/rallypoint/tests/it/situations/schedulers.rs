//! What a scheduler has planned, and what becomes of it.

use super::{assert_words, said};
use crate::launch::{Job, free_endpoint};

/// kubeflow/trainer#3559
#[test]
fn one_to_four_nodes_and_how_many_are_planned() {
    let job = Job::at(&free_endpoint(), "1:4");
    let slurm = [("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURM_NNODES", "3")];
    let line = slurm.iter().fold(job.launcher(), |line, (name, value)| line.env(name, value));
    let node = line.env("SLURM_NODEID", "0").start();
    assert_words(
        &said(&node, "waiting: 1 of 4 nodes"),
        "waiting: 1 of 4 nodes, N s of last call left, then it starts (1:4 nodes) (N s, N s left); \
         3 nodes are planned (SLURM_NNODES is 3); here: HOST-…",
    );
}

/// The same, where the user says for how many nodes to wait.
#[test]
fn one_to_four_nodes_of_which_three_are_waited_for() {
    let job = Job::at(&free_endpoint(), "1:4");
    let slurm = [("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURM_NNODES", "3")];
    let line = slurm.iter().fold(job.launcher(), |line, (name, value)| line.env(name, value));
    let node = line.env("SLURM_NODEID", "0").with(&["--planned", "3"]).start();
    assert_words(
        &said(&node, "waiting: 1 of 3"),
        "waiting: 1 of 3 planned nodes, N s of last call left, then it starts (1:4 nodes) (N s, N s left); \
         here: HOST-…",
    );
}

/// LLMFlux#137
#[test]
fn an_allocation_of_which_half_is_unused() {
    let job = Job::new(&[]);
    let line = job.launcher().env("SLURM_JOB_ID", "7").env("SLURM_JOB_NUM_NODES", "2");
    let mut node = line.start();
    let words = "Slurm gave this job 2 nodes, and this launcher uses one of them: 1 is idle; \
                 `srun rallypoint run ...` starts one on each";
    assert_words(&said(&node, "Slurm gave"), words);
    job.group(1).tell("exit 0");
    node.ends_with(0);
}
