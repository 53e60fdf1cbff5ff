//! Where the nodes can meet: at a real etcd, in torchrun's static form, where a scheduler says.

use super::{Job, Launcher, free_endpoint, host_of, wait};
use crate::support::tools::free_port;
use crate::support::{Etcd, EtcdCluster, Version};

fn finish(job: &Job, nodes: &mut [Launcher]) {
    job.group(nodes.len()).tell("exit 0");
    for node in nodes {
        node.ends_with(0);
    }
    job.nothing_is_left();
}

/// The same command line, only the endpoint is another.
#[test]
fn at_a_real_etcd_by_changing_only_the_endpoint() {
    for version in Version::all() {
        let etcd = wait(Etcd::start(version));
        let job = Job::with_conf(&etcd.address(), "2:3", "lease_ttl=2,last_call_timeout=2");
        let mut nodes =
            (0..3).map(|_| job.launch_with(&["--max-restarts", "1"])).collect::<Vec<_>>();
        let first = job.group(3);
        first.workers[1].tell("kill -KILL $$");
        let second = job.group_after(&first, 3);
        let mut dead = nodes.remove(second.workers[0].launcher());
        dead.kill();
        let third = job.group_after(&second, 2);
        third.tell("exit 0");
        for node in &mut nodes {
            node.ends_with(0);
        }
        job.nothing_is_left();
    }
}

/// For jobs that must outlive any host.
#[test]
fn at_a_cluster_of_etcds_that_loses_a_member() {
    let mut cluster = wait(EtcdCluster::start(Version::V3_5, 3));
    let endpoints: Vec<String> = cluster
        .endpoints()
        .iter()
        .map(|endpoint| endpoint.trim_start_matches("http://").to_owned())
        .collect();
    let job = Job::with_conf(&endpoints.join(","), "2", "lease_ttl=10,last_call_timeout=30");
    // Several hosts are those of the job, unless the backend says otherwise.
    let options = ["--max-restarts", "1", "--rdzv-backend", "etcd"];
    let mut nodes = (0..2).map(|_| job.launch_with(&options)).collect::<Vec<_>>();
    let first = job.group(2);
    cluster.kill(0);
    first.workers[0].tell("exit 1");
    let second = job.group_after(&first, 2);
    assert_eq!(second.workers[0].get("TORCHELASTIC_RESTART_COUNT"), "1");
    finish(&job, &mut nodes);
}

/// Where a firewall lets only some ports pass. A port that is taken is passed over.
#[test]
fn rank_0_listens_at_one_of_the_ports_that_were_given() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let first = taken.local_addr().unwrap().port();
    let last = first.saturating_add(50);
    let conf = format!("lease_ttl=30,store_ports={first}-{last}");
    let job = Job::with_conf(&free_endpoint(), "2", &conf);
    let mut nodes = job.launchers(2);
    let port: u16 = job.group(2).workers[0].get("MASTER_PORT").parse().unwrap();
    assert!(first < port && port <= last, "{port} of {conf}");
    finish(&job, &mut nodes);
    let conf = format!("lease_ttl=30,store_ports={first}");
    let job = Job::with_conf(&free_endpoint(), "1", &conf);
    let said = job.launch().ends_with(1).stderr;
    assert!(said.contains(&format!("no port of {first}-{first} (store_ports)")), "{said}");
}

/// By name: servers that are there already.
#[test]
fn at_an_etcd_that_is_named_as_one() {
    let etcd = wait(Etcd::start(Version::V3_5));
    for backend in ["etcd", "etcd-v2", "etcd-v3"] {
        let options = ["--rdzv-backend", backend, "--rdzv-id", backend, "--nnodes", "2"];
        let job = Job::new(&[&options[..], &["--rdzv-endpoint", &etcd.address()]].concat());
        let mut nodes = job.launchers(2);
        finish(&job, &mut nodes);
        let words = format!("backend etcd from --rdzv-backend {backend}, whose part it takes");
        for node in &mut nodes {
            assert_eq!(node.stderr().contains(&words), backend != "etcd");
        }
    }
}

/// No name and no endpoint: torchrun's static form has neither.
#[test]
fn in_torchruns_static_form() {
    let port = free_port().to_string();
    let job = Job::new(&["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", &port]);
    let mut nodes =
        vec![job.launch_with(&["--node-rank", "1"]), job.launch_with(&["--node-rank", "0"])];
    let group = job.group(2);
    assert_eq!(group.workers[0].launcher(), 1, "the ranks are as given");
    assert_eq!(host_of(&nodes, &format!("127.0.0.1:{port}")), 1, "rank 0 is the server");
    finish(&job, &mut nodes);
}

/// It is not another job's place.
#[test]
fn rank_0_of_the_static_form_needs_its_port() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let options = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", &port];
    let said = Job::new(&options).launch_with(&["--node-rank", "0"]).ends_with(1).stderr;
    assert!(said.contains(&format!("127.0.0.1:{port}")), "{said}");
}

#[test]
fn where_slurm_says() {
    // The port depends on the job's number, so that several jobs can share a host.
    let is_free = |number: &u16| std::net::TcpListener::bind(("127.0.0.1", 29400 + number)).is_ok();
    let number = std::iter::repeat_with(|| fastrand::u16(1..1000)).find(is_free).unwrap();
    let job = Job::new(&[]);
    let node = |rank: &str| {
        let line =
            job.launcher().env("SLURM_JOB_ID", &number.to_string()).env("SLURM_STEP_ID", "0");
        let line = line.env("SLURM_STEP_NUM_NODES", "2").env("SLURM_STEP_NODELIST", "127.0.0.1");
        line.env("SLURM_NODEID", rank).env("SLURM_PROCID", rank).start()
    };
    let mut nodes = vec![node("1"), node("0")];
    let group = job.group(2);
    assert_eq!(group.workers[0].launcher(), 1, "ranks are Slurm's");
    assert_eq!(group.workers[0].get("TORCHELASTIC_RUN_ID"), format!("slurm-{number}.0"));
    for node in &nodes {
        for variable in
            ["SLURM_STEP_NUM_NODES", "SLURM_NODEID", "SLURM_STEP_NODELIST", "SLURM_JOB_ID"]
        {
            node.says(variable);
        }
    }
    finish(&job, &mut nodes);
}

/// Indexed jobs, and what Kubeflow sets for torchrun.
#[test]
fn where_kubernetes_says() {
    let endpoint = free_endpoint();
    let job = Job::new(&["--rdzv-id", "job"]);
    let node = |index: &str| {
        let line = job.launcher().env("JOB_COMPLETION_INDEX", index).env("PET_NNODES", "2");
        line.env("PET_RDZV_ENDPOINT", &endpoint).start()
    };
    let mut nodes = vec![node("1"), node("0")];
    let group = job.group(2);
    assert_eq!(group.workers[0].launcher(), 1, "ranks are the pods'");
    for node in &nodes {
        node.says("JOB_COMPLETION_INDEX");
        node.says("PET_RDZV_ENDPOINT");
    }
    finish(&job, &mut nodes);
    let (address, port) = endpoint.split_once(':').unwrap();
    let job = Job::new(&[]);
    let node = |rank: &str| {
        let line = job.launcher().env("PET_NODE_RANK", rank).env("PET_NNODES", "2");
        line.env("PET_MASTER_ADDR", address).env("PET_MASTER_PORT", port).start()
    };
    let mut nodes = vec![node("0"), node("1")];
    assert_eq!(job.group(2).workers[0].launcher(), 0);
    finish(&job, &mut nodes);
}

#[test]
fn where_open_mpi_says() {
    let endpoint = free_endpoint();
    let job = Job::new(&["--rdzv-endpoint", &endpoint]);
    let node = |rank: &str| {
        let line =
            job.launcher().env("OMPI_COMM_WORLD_RANK", rank).env("OMPI_COMM_WORLD_SIZE", "2");
        line.env("PMIX_NAMESPACE", "prterun-7@1").start()
    };
    let mut nodes = vec![node("1"), node("0")];
    let group = job.group(2);
    assert_eq!(group.workers[0].launcher(), 1);
    assert_eq!(group.workers[0].get("TORCHELASTIC_RUN_ID"), "mpi-prterun-7@1");
    nodes[0].says("OMPI_COMM_WORLD_RANK");
    finish(&job, &mut nodes);
}
