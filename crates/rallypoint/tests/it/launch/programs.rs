//! What can be run, and with which options of the process itself.

use super::{Job, until};

#[test]
fn scripts_and_modules_run_under_python_without_a_buffer() {
    let job = Job::new(&["--standalone"]);
    let script =
        "import os, sys\nprint(os.environ['RANK'], sys.argv[1:], sys.stdout.write_through)\n";
    std::fs::write(job.path().join("train.py"), script).unwrap();
    let path = job.file("train.py");
    let expected = "0 ['--epochs', '3'] True\n";
    let ended = job.launcher().program(&[&path, "--epochs", "3"]).start().ends_with(0);
    assert_eq!(ended.stdout, expected);
    let place = job.path().to_str().unwrap().to_owned();
    let line = job.launcher().with(&["-m"]).env("PYTHONPATH", &place);
    let ended = line.program(&["train", "--epochs", "3"]).start().ends_with(0);
    assert_eq!(ended.stdout, expected);
}

#[test]
fn another_interpreter_can_be_named_and_python_left_out() {
    let job = Job::new(&["--standalone"]);
    // A program by the name of a script, and an interpreter that only says what it was given.
    let echo = job.file("echo.py");
    let write = |text: &str| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "printf '%s' \"$1\" > \"$2\"; chmod 755 \"$2\"", "sh", text, &echo]);
        assert!(command.status().unwrap().success());
    };
    write("#!/bin/sh\necho \"$@\"\n");
    let ended = job.launcher().with(&["--no-python"]).program(&[&echo, "a"]).start().ends_with(0);
    assert_eq!(ended.stdout, "a\n");
    let line = job.launcher().env("PYTHON_EXEC", &echo);
    let ended = line.program(&["train.py", "a"]).start().ends_with(0);
    assert_eq!(ended.stdout, "-u train.py a\n");
}

#[test]
fn options_may_stand_in_the_environment_and_the_command_line_wins() {
    let job = Job::new(&["--nproc-per-node", "2"]);
    let line = job.launcher().env("PET_NPROC_PER_NODE", "7").env("PET_ROLE", "trainer");
    let mut node = line.env("PET_STANDALONE", "1").env("PET_MAX_RESTARTS", "4").start();
    let group = job.group(2);
    assert_eq!(group.workers[0].get("ROLE_NAME"), "trainer");
    assert_eq!(group.workers[0].get("TORCHELASTIC_MAX_RESTARTS"), "4");
    node.says("PET_ROLE");
    group.tell("exit 0");
    node.ends_with(0);
}

#[test]
fn underscores_and_beginnings_of_options_do() {
    let job = Job::new(&["--nproc_per_node", "2", "--max_restarts=3", "--redirect=1"]);
    let mut node = job.launch_with(&["--log_dir", "/dev/null"]);
    let group = job.group(2);
    assert_eq!(group.workers[0].get("TORCHELASTIC_MAX_RESTARTS"), "3");
    group.tell("exit 0");
    node.ends_with(0);
}

#[test]
fn as_many_workers_as_processors() {
    let processors = std::thread::available_parallelism().unwrap().get();
    for word in ["cpu", "auto"] {
        let job = Job::new(&["--nproc-per-node", word]);
        let mut node = job.launcher().env("CUDA_VISIBLE_DEVICES", "").start();
        let group = job.group(processors);
        node.says("number of workers");
        group.tell("exit 0");
        node.ends_with(0);
    }
}

/// A machine without NUMA has nothing to bind to, and says so; one with it binds to what it may use.
#[test]
fn workers_are_bound_to_processors_that_the_launcher_may_use() {
    let job = Job::new(&["--nproc-per-node", "2", "--numa-binding", "node"]);
    let mut node = job.launch();
    let group = job.group(2);
    let allowed = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:")).unwrap();
        u128::from_str_radix(&line.trim().replace(',', ""), 16).unwrap()
    };
    let launcher = allowed(node.id());
    for worker in &group.workers {
        let own = allowed(worker.pid);
        assert!(own != 0 && own & !launcher == 0, "{own:x} of {launcher:x}");
    }
    group.tell("exit 0");
    node.ends_with(0);
}

#[test]
fn a_dry_run_says_what_would_be_run_and_runs_nothing() {
    let job = Job::new(&["--dry-run", "--nproc-per-node", "2", "--rdzv-id", "job-7"]);
    let program = ["sh", "-c", "touch $JOB/ran"];
    let text = job.launcher().program(&program).start().ends_with(0).stdout;
    for words in ["sh -c", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=job-7", "worker 1"] {
        assert!(text.contains(words), "no {words} in {text}");
    }
    let text = job.launcher().with(&["--json"]).program(&program).start().ends_with(0).stdout;
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(plan["workers"][1]["RANK"], "1");
    assert!(!job.path().join("ran").exists());
    job.nothing_is_left();
}

/// Ranks as hints: the node that was given 0 is rank 0, whichever node comes first.
#[test]
fn a_node_has_the_rank_that_it_was_given() {
    let endpoint = super::free_endpoint();
    let job = Job::at(&endpoint, "3");
    let mut nodes = Vec::new();
    for rank in ["2", "1", "0"] {
        nodes.push(job.launch_with(&["--node-rank", rank]));
        if rank == "2" {
            nodes[0].says("1 of 3 nodes");
        }
    }
    let group = job.group(3);
    let order: Vec<usize> = group.workers.iter().map(super::Worker::launcher).collect();
    assert_eq!(order, [2, 1, 0]);
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

#[test]
fn another_address_of_this_host_may_be_named() {
    let job = Job::new(&["--local-addr", "127.0.0.9"]);
    let mut node = job.launch();
    let group = job.group(1);
    assert_eq!(group.workers[0].get("MASTER_ADDR"), "127.0.0.9");
    let listens = until("the store listens", || {
        let addresses = super::processes::listening(node.id());
        addresses.into_iter().find(|at| at.to_string() == group.workers[0].master())
    });
    assert_eq!(listens.ip().to_string(), "127.0.0.9");
    group.tell("exit 0");
    node.ends_with(0);
}

/// Neither a `=` in its path nor names that no shell can write make another program of it.
#[test]
fn the_program_is_the_one_that_was_named() {
    let job = Job::new(&["--standalone", "--no-python"]);
    let directory = job.path().join("lr=0.1");
    std::fs::create_dir(&directory).unwrap();
    let program = directory.join("train");
    std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
    let script = "echo trained; tr '\\0' '\\n' </proc/$$/environ | grep a.b=";
    let line = job.launcher().env("a.b", "hush").env("BASH_FUNC_module%%", "() { :; }");
    let line = line.program(&[program.to_str().unwrap(), "-c", script]);
    let ended = line.start().ends_with(0);
    assert_eq!(ended.stdout, "trained\na.b=hush\n");
}
