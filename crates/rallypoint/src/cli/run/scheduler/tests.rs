use super::*;

fn environment(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Nodes, rank, head and run id, each with where it came from.
fn facts(pairs: &[(&str, &str)]) -> [String; 4] {
    let environment = environment(pairs);
    let scheduler = Scheduler::detect(&environment);
    let say = |found: Option<(String, String)>| {
        found.map_or_else(|| "-".to_owned(), |(value, source)| format!("{value} {source}"))
    };
    let number = |found: Result<Option<FoundValue<u32>>, RunError>| match found {
        Ok(found) => say(found.map(|found| (found.value.to_string(), found.source))),
        Err(error) => error.to_string(),
    };
    let head = match scheduler.head(&environment) {
        Ok(found) => {
            say(found.map(|f| (format!("{}+{}", f.value.host, f.value.port_offset), f.source)))
        }
        Err(error) => error.to_string(),
    };
    let run_id = scheduler.run_id(&environment);
    [
        number(scheduler.nodes(&environment)),
        number(scheduler.rank(&environment)),
        head,
        say(run_id.map(|found| (found.value, found.source))),
    ]
}

const STEP: [(&str, &str); 6] = [
    ("SLURM_JOB_ID", "77123"),
    ("SLURM_STEP_ID", "2"),
    ("SLURM_NODEID", "3"),
    ("SLURM_PROCID", "3"),
    ("SLURM_STEP_NUM_NODES", "4"),
    ("SLURM_STEP_NODELIST", "gpu[08-11]"),
];

fn step(more: &[(&'static str, &'static str)]) -> [String; 4] {
    facts(&STEP.iter().chain(more).copied().collect::<Vec<_>>())
}

#[test]
fn a_step_of_slurm_says_everything() {
    let whole = [
        "4 SLURM_STEP_NUM_NODES",
        "3 SLURM_NODEID",
        "gpu08+197 SLURM_STEP_NODELIST",
        "slurm-77123.2 SLURM_JOB_ID",
    ];
    assert_eq!(step(&[]), whole);
    // The whole job has more nodes than this step.
    assert_eq!(step(&[("SLURM_NNODES", "9"), ("SLURM_JOB_NODELIST", "gpu[01-11]")]), whole);
    assert_eq!(step(&[("SLURM_STEP_NUM_TASKS", "4")]), whole);
    assert_eq!(step(&[("SLURM_RESTART_COUNT", "1")])[3], "slurm-77123.2-1 SLURM_JOB_ID");
    assert_eq!(step(&[("SLURM_RESTART_COUNT", "0")])[3], "slurm-77123.2 SLURM_JOB_ID");
    // Where a step does not say, the job does.
    let job = [
        ("SLURM_STEP_NUM_NODES", ""),
        ("SLURM_JOB_NUM_NODES", "5"),
        ("SLURM_STEP_NODELIST", " "),
        ("SLURM_JOB_NODELIST", "n1"),
    ];
    assert_eq!(
        step(&job)[..3],
        ["5 SLURM_JOB_NUM_NODES", "3 SLURM_NODEID", "n1+197 SLURM_JOB_NODELIST"]
    );
}

#[test]
fn with_several_tasks_on_a_node_each_is_a_launcher() {
    let found = step(&[("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_PROCID", "7")]);
    assert_eq!(found[..2], ["8 SLURM_STEP_NUM_TASKS", "7 SLURM_PROCID"]);
}

#[test]
fn a_batch_script_is_no_step() {
    let script = [("SLURM_JOB_ID", "1"), ("SLURM_NODEID", "0"), ("SLURM_JOB_NUM_NODES", "4")];
    assert_eq!(facts(&script), ["-"; 4]);
}

#[test]
fn nodes_of_an_allocation_that_nothing_uses_are_named() {
    let idle = |variables: &[(&str, &str)], wanted| idle_nodes(&environment(variables), wanted);
    let script = [("SLURM_JOB_ID", "1"), ("SLURM_JOB_NUM_NODES", "4")];
    let words = "Slurm gave this job 4 nodes, and this launcher uses one of them: 3 are idle; \
                 `srun rallypoint run ...` starts one on each";
    for wanted in [None, Some(1)] {
        assert_eq!(idle(&script, wanted).as_deref(), Some(words));
    }
    assert_eq!(idle(&script, Some(4)), None, "others are started in another way");
    let step = [&script[..], &[("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_NODES", "3")]].concat();
    let words = "Slurm gave this job 4 nodes, and this step has 3 of them: 1 is idle, unless another step uses them; \
                 `srun --nodes 4` uses all";
    assert_eq!(idle(&step, None).as_deref(), Some(words));
    let whole = [&script[..], &[("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_NODES", "4")]].concat();
    assert_eq!(idle(&whole, None), None);
    assert_eq!(idle(&STEP, None), None);
    assert_eq!(idle(&[("SLURM_JOB_NUM_NODES", "4")], None), None, "no job");
}

#[test]
fn open_mpi_counts_its_processes() {
    let four = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_MCA_ess_base_jobid", "99"),
    ];
    let expected =
        ["2 OMPI_COMM_WORLD_SIZE", "1 OMPI_COMM_WORLD_RANK", "-", "mpi-99 OMPI_MCA_ess_base_jobid"];
    assert_eq!(facts(&four), expected);
    // Its daemons are a step of Slurm's, whose ranks are not ours; but the hosts are.
    let within: Vec<_> = STEP.iter().chain(&four).copied().collect();
    assert_eq!(facts(&within)[..3], [expected[0], expected[1], "gpu08+197 SLURM_STEP_NODELIST"]);
    let five = [("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "prterun-a/7@1")];
    assert_eq!(facts(&five), ["-", "1 PMIX_RANK", "-", "mpi-prterun-a-7@1 PMIX_NAMESPACE"]);
    // srun speaks PMIx too.
    assert_eq!(step(&[("PMIX_RANK", "3")])[1], "3 SLURM_NODEID");
}

#[test]
fn an_indexed_job_of_kubernetes_has_a_rank() {
    assert_eq!(facts(&[("JOB_COMPLETION_INDEX", "3")]), ["-", "3 JOB_COMPLETION_INDEX", "-", "-"]);
    assert_eq!(facts(&[]), ["-"; 4]);
}

/// Variables, and the facts that they tell.
type Case<'a> = (&'a [(&'a str, &'a str)], [&'a str; 4]);

#[test]
fn other_schedulers_say_what_they_know() {
    let flux = [("FLUX_JOB_ID", "ƒ2uARXk"), ("FLUX_TASK_RANK", "1"), ("FLUX_JOB_SIZE", "2")];
    let plain = [("FLUX_JOB_ID", "f2uARXk"), ("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "2")];
    let blaunch =
        [("LSB_JOBID", "77"), ("LSF_PM_TASKID", "2"), ("LSB_MCPU_HOSTS", "hostB 1 hostA 1 ")];
    let jsrun = [
        ("LSB_JOBID", "77"),
        ("JSM_NAMESPACE_RANK", "0"),
        ("JSM_NAMESPACE_SIZE", "4"),
        ("LSB_MCPU_HOSTS", "batch5 1 h41n01 42"),
        ("PMIX_RANK", "0"),
    ];
    let sky = [
        ("SKYPILOT_NODE_RANK", "1"),
        ("SKYPILOT_NUM_NODES", "2"),
        ("SKYPILOT_NODE_IPS", "10.0.0.7\n10.0.0.8"),
        ("SKYPILOT_TASK_ID", "sky-2026-01-01-12-00-00-000000_cluster_1"),
    ];
    let lws = [
        ("LWS_LEADER_ADDRESS", "vllm-1.vllm.default"),
        ("LWS_GROUP_SIZE", "4"),
        ("LWS_WORKER_INDEX", "3"),
        ("JOB_COMPLETION_INDEX", "9"),
    ];
    let child = [
        ("AWS_BATCH_JOB_ID", "b1c2#1"),
        ("AWS_BATCH_JOB_NODE_INDEX", "1"),
        ("AWS_BATCH_JOB_NUM_NODES", "2"),
        ("AWS_BATCH_JOB_MAIN_NODE_INDEX", "0"),
        ("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "10.0.0.7"),
        ("AWS_BATCH_JOB_ATTEMPT", "1"),
    ];
    let main = [
        ("AWS_BATCH_JOB_ID", "b1c2#1"),
        ("AWS_BATCH_JOB_NODE_INDEX", "1"),
        ("AWS_BATCH_JOB_NUM_NODES", "2"),
        ("AWS_BATCH_JOB_MAIN_NODE_INDEX", "1"),
    ];
    let pbs = [("PBS_JOBID", "12.head"), ("PBS_NODENUM", "1"), ("PBS_NODEFILE", "/aux/12.head")];
    let torque = [("PBS_JOBID", "12.head"), ("PBS_NODENUM", "1"), ("PBS_NUM_NODES", "2")];
    let expected: [Case<'_>; 10] = [
        (&flux, ["2 FLUX_JOB_SIZE", "1 FLUX_TASK_RANK", "-", "flux-2uARXk FLUX_JOB_ID"]),
        (&plain, ["2 FLUX_JOB_SIZE", "0 FLUX_TASK_RANK", "-", "flux-2uARXk FLUX_JOB_ID"]),
        (
            &blaunch,
            ["2 LSB_MCPU_HOSTS", "1 LSF_PM_TASKID", "hostB+0 LSB_MCPU_HOSTS", "lsf-77 LSB_JOBID"],
        ),
        (&jsrun, ["4 JSM_NAMESPACE_SIZE", "0 JSM_NAMESPACE_RANK", "-", "lsf-77 LSB_JOBID"]),
        (
            &sky,
            [
                "2 SKYPILOT_NUM_NODES",
                "1 SKYPILOT_NODE_RANK",
                "10.0.0.7+0 SKYPILOT_NODE_IPS",
                "sky-sky-2026-01-01-12-00-00-000000_cluster_1 SKYPILOT_TASK_ID",
            ],
        ),
        (
            &lws,
            [
                "4 LWS_GROUP_SIZE",
                "3 LWS_WORKER_INDEX",
                "vllm-1.vllm.default+0 LWS_LEADER_ADDRESS",
                "lws-vllm-1.vllm.default LWS_LEADER_ADDRESS",
            ],
        ),
        (
            &child,
            [
                "2 AWS_BATCH_JOB_NUM_NODES",
                "1 AWS_BATCH_JOB_NODE_INDEX",
                "10.0.0.7+0 AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS",
                "batch-b1c2-1 AWS_BATCH_JOB_ID",
            ],
        ),
        (
            &main,
            [
                "2 AWS_BATCH_JOB_NUM_NODES",
                "0 AWS_BATCH_JOB_NODE_INDEX",
                "localhost+0 AWS_BATCH_JOB_MAIN_NODE_INDEX",
                "batch-b1c2 AWS_BATCH_JOB_ID",
            ],
        ),
        (&pbs, ["-", "1 PBS_NODENUM", "-", "pbs-12.head PBS_JOBID"]),
        (&torque, ["2 PBS_NUM_NODES", "1 PBS_NODENUM", "-", "pbs-12.head PBS_JOBID"]),
    ];
    for (variables, expected) in expected {
        assert_eq!(facts(variables), expected);
    }
    // A job within a step of Slurm: the step is the inner one.
    let within: Vec<_> = STEP.iter().chain(&sky).copied().collect();
    assert_eq!(facts(&within)[1], "3 SLURM_NODEID");
}

#[test]
fn values_of_other_schedulers_that_make_no_sense_are_named() {
    let lsf = |more: (&'static str, &'static str)| {
        facts(&[("LSB_JOBID", "7"), ("LSF_PM_TASKID", "1"), ("LSB_MCPU_HOSTS", "a 1"), more])
    };
    let found = lsf(("LSF_PM_TASKID", "0"));
    assert_eq!(found[1], "LSF_PM_TASKID \"0\": it should be at least 1; give --node-rank");
    for list in ["a", "a 1 b", "a x"] {
        let found = lsf(("LSB_MCPU_HOSTS", list));
        let words =
            format!("LSB_MCPU_HOSTS {list:?}: it should be hosts, each with its number of slots");
        assert!(found[0].starts_with(&words), "{}", found[0]);
    }
    let sky = [("SKYPILOT_NODE_RANK", "2"), ("SKYPILOT_NUM_NODES", "2")];
    assert!(facts(&sky)[1].starts_with("SKYPILOT_NODE_RANK \"2\": it should be below"));
}

#[test]
fn what_makes_no_sense_is_named() {
    for (more, place, words) in [
        (("SLURM_NODEID", "x"), 1, "SLURM_NODEID \"x\": it should be a whole number"),
        (
            ("SLURM_NODEID", "4"),
            1,
            "SLURM_NODEID \"4\": it should be below SLURM_STEP_NUM_NODES, which is 4",
        ),
        (
            ("SLURM_STEP_NUM_NODES", "-1"),
            0,
            "SLURM_STEP_NUM_NODES \"-1\": it should be a whole number",
        ),
        (("SLURM_STEP_NUM_NODES", "0"), 0, "SLURM_STEP_NUM_NODES \"0\": a job has at least 1 node"),
        (
            ("SLURM_STEP_NUM_TASKS", "?"),
            0,
            "SLURM_STEP_NUM_TASKS \"?\": it should be a whole number",
        ),
        (
            ("SLURM_STEP_NODELIST", "gpu[1-"),
            2,
            "SLURM_STEP_NODELIST \"gpu[1-\": a bracket is not closed; give",
        ),
        (("SLURM_JOB_ID", "a"), 2, "SLURM_JOB_ID \"a\": it should be a whole number"),
    ] {
        let found = step(&[more]);
        assert!(found[place].starts_with(words), "{}", found[place]);
    }
    let both = [("OMPI_COMM_WORLD_RANK", "1"), ("PMIX_RANK", "2")];
    assert_eq!(
        facts(&both)[1],
        "OMPI_COMM_WORLD_RANK 1 and PMIX_RANK 2 contradict each other: give --node-rank"
    );
}
