//! What a worker finds in its environment: torchrun's names, with its values.

use std::collections::BTreeMap;

use super::{Job, Launcher, free_endpoint, host};

/// Everything, and nothing else. `env` itself is the worker, so that no shell adds to it.
#[test]
fn the_environment_of_a_worker_is_exactly_this() {
    let options = ["--nproc-per-node", "2", "--rdzv-id", "job-7", "--role", "trainer"];
    let job = Job::new(&[&options[..], &["--max-restarts", "3", "--redirects", "1"]].concat());
    let logs = job.file("logs");
    let line = job.launcher().with(&["--log-dir", &logs]).program(&["env", "-0"]);
    let line = line.env("CUDA_VISIBLE_DEVICES", "4,5").env("RALLYPOINT_SECRET", "sesame");
    line.env("PET_ROLE", "another").start().ends_with(0);
    let round = std::path::PathBuf::from(format!("{logs}/job-7/{}/round_1", host()));
    for rank in ["0", "1"] {
        let directory = round.join(format!("rank_{rank}"));
        let text = std::fs::read_to_string(directory.join("stdout.log")).unwrap();
        let pairs = text.split_terminator('\0').map(|line| line.split_once('=').unwrap());
        let mut found: BTreeMap<&str, &str> = pairs.collect();
        let port: u16 = found.remove("MASTER_PORT").unwrap().parse().unwrap();
        assert_ne!(port, 0);
        assert!(!found.remove("RALLYPOINT_NODE_ID").unwrap().is_empty());
        let round: u64 = found.remove("RALLYPOINT_ROUND").unwrap().parse().unwrap();
        assert!(round > 0);
        let error_file = directory.join("error.json");
        let notice_file = directory.join("notice.json");
        let (path, place, temporary) =
            (std::env::var("PATH").unwrap(), job.file(""), job.file("tmp"));
        let expected = BTreeMap::from([
            ("RANK", rank),
            ("LOCAL_RANK", rank),
            ("GROUP_RANK", "0"),
            ("ROLE_RANK", rank),
            ("ROLE_NAME", "trainer"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("GROUP_WORLD_SIZE", "1"),
            ("ROLE_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("TORCHELASTIC_RESTART_COUNT", "0"),
            ("TORCHELASTIC_MAX_RESTARTS", "3"),
            ("TORCHELASTIC_RUN_ID", "job-7"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_ERROR_FILE", error_file.to_str().unwrap()),
            ("RALLYPOINT_NOTICE_FILE", notice_file.to_str().unwrap()),
            ("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            ("OMP_NUM_THREADS", "1"),
            ("RALLYPOINT_ATTEMPT", "0"),
            // Inherited, and the secret is not among it.
            ("CUDA_VISIBLE_DEVICES", "4,5"),
            ("JOB", &place),
            ("LAUNCHER", "0"),
            ("PATH", &path),
            ("PET_ROLE", "another"),
            ("TMPDIR", &temporary),
        ]);
        assert_eq!(found, expected);
    }
}

#[test]
fn what_the_launcher_was_given_is_not_overruled_where_torchrun_does_not() {
    let job = Job::new(&["--nproc-per-node", "2", "--virtual-local-rank"]);
    let line = job.launcher().env("OMP_NUM_THREADS", "6").env("CUDA_VISIBLE_DEVICES", "4,6");
    let mut node = line
        .env("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3")
        .env("RANK", "99")
        .env("MASTER_ADDR", "elsewhere")
        .start();
    let workers = super::until("two workers", || Some(job.workers()).filter(|all| all.len() == 2));
    for (rank, worker) in workers.iter().enumerate() {
        assert_eq!((worker.number("RANK"), worker.get("LOCAL_RANK")), (rank, "0"));
        assert_eq!(worker.get("CUDA_VISIBLE_DEVICES"), ["4", "6"][rank]);
        assert_eq!(worker.get("OMP_NUM_THREADS"), "6");
        assert_eq!(worker.get("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
        assert_eq!(worker.get("MASTER_ADDR"), "127.0.0.1");
        worker.tell("exit 0");
    }
    node.ends_with(0);
}

/// Ranks are counted through all workers, and besides through those of a role.
#[test]
fn nodes_may_have_different_numbers_of_workers_and_roles() {
    let job = Job::at(&free_endpoint(), "3");
    // Hints, so that the table can be written down.
    let node = |rank: &str, workers: &str, role: &str| {
        job.launch_with(&["--node-rank", rank, "--nproc-per-node", workers, "--role", role])
    };
    let mut nodes: Vec<Launcher> =
        vec![node("0", "1", "actor"), node("1", "3", "learner"), node("2", "2", "actor")];
    let group = job.group(6);
    let table: Vec<_> = group
        .workers
        .iter()
        .map(|worker| {
            let number = |name| worker.number(name);
            let role = worker.get("ROLE_NAME");
            (number("GROUP_RANK"), number("LOCAL_RANK"), number("LOCAL_WORLD_SIZE"), role, {
                (number("ROLE_RANK"), number("ROLE_WORLD_SIZE"))
            })
        })
        .collect();
    let expected = [
        (0, 0, 1, "actor", (0, 3)),
        (1, 0, 3, "learner", (0, 3)),
        (1, 1, 3, "learner", (1, 3)),
        (1, 2, 3, "learner", (2, 3)),
        (2, 0, 2, "actor", (1, 3)),
        (2, 1, 2, "actor", (2, 3)),
    ];
    assert_eq!(table, expected);
    let ids: std::collections::BTreeSet<&str> =
        group.workers.iter().map(|worker| worker.get("RALLYPOINT_NODE_ID")).collect();
    assert_eq!(ids.len(), 3);
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// No node need be asked then.
#[test]
fn nodes_that_are_alike_may_say_so() {
    let job = Job::at(&free_endpoint(), "2");
    let node = |_| {
        let line = job.launcher().with(&["--nproc-per-node", "2"]);
        line.env("TORCH_ELASTIC_WORKER_IDENTICAL", "1").start()
    };
    let mut nodes: Vec<Launcher> = (0..2).map(node).collect();
    let group = job.group(4);
    for worker in &group.workers {
        assert_eq!(worker.get("ROLE_WORLD_SIZE"), "4");
        assert_eq!(worker.number("ROLE_RANK"), worker.rank);
    }
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// Names and arguments are bytes, and not always text.
#[test]
fn what_is_no_text_reaches_the_workers_too() {
    let job = Job::new(&[]);
    let make = r#"NAME=$(printf 'a\377b') exec "$@" "$(printf 'c\376')""#;
    let line = job.launcher().by(&["sh", "-c", make, "sh"]);
    let print = r#"printf '%s %s' "$NAME" "$1" > "$JOB/words""#;
    line.program(&["sh", "-c", print, "sh"]).start().ends_with(0);
    assert_eq!(std::fs::read(job.path().join("words")).unwrap(), b"a\xffb c\xfe");
}

/// Without files there is none to report errors in, which torchrun says with an empty name.
#[test]
fn without_log_files_the_error_file_has_no_name() {
    let job = Job::new(&["--log-dir", "/dev/null"]);
    let mut node = job.launch();
    let group = job.group(1);
    assert_eq!(group.workers[0].get("TORCHELASTIC_ERROR_FILE"), "");
    group.tell("exit 0");
    node.ends_with(0);
}

#[test]
fn a_worker_is_the_leader_of_its_own_group_and_has_no_input() {
    let job = Job::new(&["--nproc-per-node", "2"]);
    let script = "cat; ps -o pgid= -p $$ > $JOB/group.$RANK; echo $$ > $JOB/pid.$RANK";
    job.launcher().program(&["sh", "-c", script]).start().ends_with(0);
    let read =
        |name: &str| std::fs::read_to_string(job.path().join(name)).unwrap().trim().to_owned();
    for rank in 0..2 {
        assert_eq!(read(&format!("group.{rank}")), read(&format!("pid.{rank}")));
    }
}
