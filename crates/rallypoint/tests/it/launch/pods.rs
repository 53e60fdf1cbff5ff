//! Launchers as Kubernetes runs them: the command of the manifests, in pods.
//!
//! A pod is a host of the rig with a root that nobody can write, one volume, and a user who is not root. What the
//! control plane does is done by the test: names, indexes, limits, SIGTERM to the first process.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::hosts::{Host, Network, address};
use super::{Job, Launcher, until_true};

/// What is done before a container begins: the host has the name of the pod, the program of its image is at its place, the
/// volume is the only part that can be written, and the user is not root. `$0` is the volume, `$1` the name,
/// `$2` the program.
const CONTAINER: &str = r#"hostname "$1" && shift && mount --bind "$0" "$0" && mount --bind "$1" "$0/rallypoint" &&
    mount -o remount,bind,ro / && shift || exit 99
    ! (: > /read-only) 2>/dev/null || exit 98
    exec setpriv --reuid 1000 --regid 1000 --clear-groups "$0/rallypoint" "$@""#;

/// The words of a manifest's command.
fn command(manifest: &str) -> Vec<String> {
    let path = format!("{}/../../examples/kubernetes/{manifest}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> =
        text.lines().filter_map(|line| line.trim().strip_prefix("command: ")).collect();
    let [line] = lines[..] else { panic!("{manifest} has one command: {lines:?}") };
    serde_json::from_str(line).unwrap()
}

/// The options of a manifest's command, and of its script nothing: workers here do what they are told.
fn options(manifest: &str) -> Vec<String> {
    let words = command(manifest);
    assert_eq!(words[..2], ["rallypoint", "run"]);
    let script = words.iter().position(|word| word == "train.py").unwrap();
    words[2..script].iter().map(|word| word.replace("$(RUN_ID)", "6f1c")).collect()
}

/// A job whose launchers run in pods, each with a name by which the other pods find it.
struct Pods {
    network: Network,
    job: Job,
    /// What `{}` is the index in.
    name: &'static str,
}

impl Pods {
    fn new(pods: usize, name: &'static str, options: &[String]) -> Self {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let (network, job) = (Network::new(pods), Job::new(&options));
        std::fs::write(job.path().join("rallypoint"), "").unwrap();
        for directory in ["", "workers", "tmp"] {
            let everybody = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(job.path().join(directory), everybody).unwrap();
        }
        let pods = Self { network, job, name };
        pods.know(&(0..pods.network.hosts.len()).map(address).collect::<Vec<_>>());
        pods
    }

    /// Has every pod find the other pods at these addresses from now on.
    fn know(&self, addresses: &[String]) {
        let name = |index: usize| self.name.replace("{}", &index.to_string());
        let names: Vec<String> = (0..addresses.len()).map(name).collect();
        let known: Vec<(&str, &str)> =
            addresses.iter().map(String::as_str).zip(names.iter().map(String::as_str)).collect();
        self.network.hosts.iter().for_each(|host| host.knows(&known));
    }

    /// Starts the container of a pod.
    fn start(&self, index: usize, environment: &[(&str, &str)], first_order: &str) -> Launcher {
        let volume = self.job.file("");
        let name = self.name.replace("{}", &index.to_string());
        let pod = name.split('.').next().unwrap();
        let unshare = ["unshare", "--mount", "--uts", "sh", "-c", CONTAINER];
        let container = unshare.into_iter().chain([volume.trim_end_matches('/'), pod]);
        let enter = self.network.hosts[index].enter();
        let words: Vec<&str> = enter.iter().map(String::as_str).chain(container).collect();
        let mut line = self.job.launcher().by(&words);
        for (name, value) in environment {
            line = line.env(name, value);
        }
        line.program(&["sh", &self.job.file("worker.sh"), first_order]).start()
    }

    /// Starts that of an indexed Job, with two GPUs.
    fn indexed(&self, index: usize, first_order: &str) -> Launcher {
        let number = index.to_string();
        let environment = [("JOB_COMPLETION_INDEX", &number[..]), ("CUDA_VISIBLE_DEVICES", "0,1")];
        self.start(index, &environment, first_order)
    }

    /// Gives a pod another address, as the one that comes in its place has.
    fn moves(&self, index: usize, to: &str) {
        let host: &Host = &self.network.hosts[index];
        host.ip(&["address", "flush", "dev", "eth0"]);
        host.ip(&["address", "add", &format!("{to}/24"), "dev", "eth0"]);
        let addresses = (0..self.network.hosts.len())
            .map(|other| if other == index { to.to_owned() } else { address(other) });
        self.know(&addresses.collect::<Vec<_>>());
    }
}

fn with(mut options: Vec<String>, more: &[&str]) -> Vec<String> {
    options.extend(more.iter().map(ToString::to_string));
    options
}

#[test]
fn the_command_of_the_guide_is_that_of_the_manifest() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/kubernetes.md");
    let line = format!("$ {}\n", command("job.yaml").join(" "));
    assert!(std::fs::read_to_string(guide).unwrap().contains(&line), "{line}");
}

#[test]
fn an_indexed_job_runs_in_pods_without_root_and_with_nothing_to_write_but_a_volume() {
    let pods = Pods::new(4, "train-{}.train", &options("job.yaml"));
    let mut nodes: Vec<Launcher> = (0..4).map(|index| pods.indexed(index, ":")).collect();
    let group = pods.job.group(8);
    for worker in &group.workers {
        assert_eq!(worker.rank / 2, worker.launcher(), "ranks follow the indexes");
        assert_eq!(worker.get("MASTER_ADDR"), address(0));
        assert_eq!(worker.get("TORCHELASTIC_RUN_ID"), "6f1c");
        let process = std::fs::metadata(format!("/proc/{}", worker.pid)).unwrap();
        assert_eq!(process.uid(), 1000);
    }
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    pods.job.nothing_is_left();
}

#[test]
fn a_jobset_and_a_train_job_have_other_names_and_variables_and_form_the_same_group() {
    for (manifest, name) in
        [("jobset.yaml", "train-node-0-{}.train"), ("trainjob.yaml", "train-node-0-{}.train")]
    {
        let pods = Pods::new(4, name, &options(manifest));
        let start = |index: usize| {
            let number = index.to_string();
            // What Kubeflow's runtime for PyTorch sets.
            let pet = [
                ("PET_NNODES", "4"),
                ("PET_NPROC_PER_NODE", "auto"),
                ("PET_NODE_RANK", &number),
                ("PET_MASTER_ADDR", "train-node-0-0.train"),
                ("PET_MASTER_PORT", "29500"),
                ("CUDA_VISIBLE_DEVICES", "0,1"),
            ];
            if manifest == "trainjob.yaml" {
                pods.start(index, &pet, ":")
            } else {
                pods.indexed(index, ":")
            }
        };
        let mut nodes: Vec<Launcher> = (0..4).map(start).collect();
        let group = pods.job.group(8);
        for worker in &group.workers {
            assert_eq!(worker.rank / 2, worker.launcher(), "{manifest}");
        }
        group.tell("exit 0");
        for node in &mut nodes {
            node.ends_with(0);
        }
    }
}

/// The kubelet sends SIGTERM to the first process, and kills all when the grace is over.
#[test]
fn a_pod_that_is_evicted_saves_in_its_grace_and_the_one_in_its_place_is_waited_for() {
    let pods = Pods::new(4, "train-{}.train", &options("job.yaml"));
    let save = "trap ': > $JOB/saved-$RANK; exit 143' TERM";
    let mut nodes: Vec<Launcher> = (0..4).map(|index| pods.indexed(index, save)).collect();
    let first = pods.job.group(8);
    nodes[2].signal(Signal::TERM);
    nodes[2].ends_with(128 + 15);
    for rank in [4, 5] {
        let saved = pods.job.path().join(format!("saved-{rank}"));
        assert!(saved.exists(), "rank {rank} had the time to save");
    }
    pods.moves(2, "10.77.0.99");
    nodes[2] = pods.indexed(2, save);
    let second = pods.job.group_after(&first, 8);
    for worker in &second.workers {
        assert_eq!(worker.get("TORCHELASTIC_RESTART_COUNT"), "0");
    }
    second.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// The server goes with its pod, and the one in its place has the name and another address.
#[test]
fn the_pod_with_the_server_is_replaced_by_one_of_the_same_name_with_another_address() {
    let short = ["--rdzv-conf", "lease_ttl=4"];
    let pods = Pods::new(4, "train-{}.train", &with(options("job.yaml"), &short));
    let mut nodes: Vec<Launcher> = (0..4).map(|index| pods.indexed(index, ":")).collect();
    let first = pods.job.group(8);
    nodes[0].kill();
    for worker in first.of(&nodes[0]) {
        worker.is_gone();
    }
    pods.moves(0, "10.77.0.99");
    nodes[0] = pods.indexed(0, ":");
    let second = pods.job.group_after(&first, 8);
    for worker in &second.workers {
        assert_eq!(worker.get("MASTER_ADDR"), "10.77.0.99");
    }
    second.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// A control group that may use one processor, in either version of them. Removed when it is dropped.
struct Limited(PathBuf);

impl Limited {
    fn new() -> Self {
        let name = format!("rallypoint-test-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpu");
        let (path, limits) = if first.exists() {
            let limits = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "100000")];
            (first.join(name), limits.to_vec())
        } else {
            (Path::new("/sys/fs/cgroup").join(name), vec![("cpu.max", "100000 100000")])
        };
        std::fs::create_dir(&path).unwrap();
        let limited = Self(path);
        for (file, value) in limits {
            std::fs::write(limited.0.join(file), value).unwrap();
        }
        limited
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        until_true("the control group is empty", || std::fs::remove_dir(&self.0).is_ok());
    }
}

/// `resources.limits.cpu: 1` on a host that has more.
#[test]
fn the_processors_of_a_pod_are_those_of_its_limit() {
    let limited = Limited::new();
    let job = Job::new(&["--standalone", "--nproc-per-node", "cpu"]);
    let group = limited.0.join("cgroup.procs").to_str().unwrap().to_owned();
    let join = r#"echo $$ > "$0" && exec "$@""#;
    let mut node = job.launcher().by(&["sh", "-c", join, &group]).start();
    let one = job.group(1);
    one.tell("exit 0");
    node.ends_with(0);
    job.nothing_is_left();
}
