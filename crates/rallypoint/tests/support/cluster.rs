//! A real etcd of several members.

use std::time::{Duration, Instant};

use rallypoint::proto::etcd as pb;

use super::process::{Directory, Process, Recipe, log_tail};
use super::tools::{Version, free_port};
use super::wire::{channel, wait_until_ready};

/// A real etcd of several members on one machine.
#[derive(Debug)]
pub struct EtcdCluster {
    // Before the directory: the processes must be gone when their files are removed.
    processes: Vec<Option<Process>>,
    recipes: Vec<Recipe>,
    endpoints: Vec<String>,
    _directory: Directory,
}

impl EtcdCluster {
    /// Starts `size` fresh members and waits until each of them serves.
    pub async fn start(version: Version, size: usize) -> Self {
        let mut complaint = String::new();
        for _ in 0..5 {
            let mut cluster = Self::prepare(version, size);
            for index in 0..size {
                cluster.processes[index] = Some(Process::start(&cluster.recipes[index]));
            }
            match cluster.wait().await {
                Ok(()) => return cluster,
                Err(error) => complaint = error,
            }
            if !complaint.contains("address already in use") {
                break;
            }
        }
        panic!("{size} members of etcd {} did not start: {complaint}", version.name());
    }

    fn prepare(version: Version, size: usize) -> Self {
        let directory = Directory::new();
        let urls = || (0..size).map(|_| format!("http://127.0.0.1:{}", free_port())).collect();
        let endpoints: Vec<String> = urls();
        let peers: Vec<String> = urls();
        let members: Vec<String> =
            peers.iter().enumerate().map(|(index, peer)| format!("member{index}={peer}")).collect();
        let recipes = (0..size)
            .map(|index| {
                let data = directory.path().join(format!("data{index}"));
                let args = [
                    ("--name", format!("member{index}")),
                    ("--data-dir", data.display().to_string()),
                    ("--listen-client-urls", endpoints[index].clone()),
                    ("--advertise-client-urls", endpoints[index].clone()),
                    ("--listen-peer-urls", peers[index].clone()),
                    ("--initial-advertise-peer-urls", peers[index].clone()),
                    ("--initial-cluster", members.join(",")),
                    ("--logger", "zap".to_owned()),
                ];
                Recipe {
                    program: version.etcd(),
                    args: args.into_iter().flat_map(|(flag, v)| [flag.into(), v.into()]).collect(),
                    env: Vec::new(),
                    log: directory.path().join(format!("log{index}")),
                }
            })
            .collect();
        let processes = (0..size).map(|_| None).collect();
        Self { processes, recipes, endpoints, _directory: directory }
    }

    async fn wait(&mut self) -> Result<(), String> {
        for index in 0..self.endpoints.len() {
            self.wait_for(index).await?;
        }
        Ok(())
    }

    async fn wait_for(&mut self, index: usize) -> Result<(), String> {
        let process = self.processes[index].as_mut().unwrap();
        wait_until_ready(&self.endpoints[index], Duration::from_secs(60), || process.has_ended())
            .await
            .map_err(|error| {
                format!("member {index}: {error}\n{}", log_tail(&self.recipes[index].log))
            })
    }

    /// The members' addresses, `http://127.0.0.1:…`, in their order.
    pub fn endpoints(&self) -> Vec<String> {
        self.endpoints.clone()
    }

    /// Which member leads. Waits for an election to end.
    pub async fn leader_index(&self) -> usize {
        let started = Instant::now();
        loop {
            for (index, endpoint) in self.endpoints.iter().enumerate() {
                if self.processes[index].is_none() {
                    continue;
                }
                let mut client = pb::maintenance_client::MaintenanceClient::new(channel(endpoint));
                let request = client.status(pb::StatusRequest {});
                let answer = tokio::time::timeout(Duration::from_secs(2), request).await;
                if let Ok(Ok(status)) = answer {
                    let status = status.into_inner();
                    let header = status.header.unwrap_or_default();
                    if status.leader != 0 && status.leader == header.member_id {
                        return index;
                    }
                }
            }
            assert!(started.elapsed() < Duration::from_secs(30), "no member leads after 30 s");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills a member with SIGKILL. Its data stay.
    pub fn kill(&mut self, index: usize) {
        self.processes[index] = None;
    }

    /// Kills a member if it runs, starts it again and waits until it serves.
    pub async fn restart(&mut self, index: usize) {
        self.kill(index);
        self.processes[index] = Some(Process::start(&self.recipes[index]));
        self.wait_for(index).await.unwrap();
    }

    /// Stops a member in its tracks: its connections stay open and nothing is answered.
    pub fn pause(&mut self, index: usize) {
        self.processes[index].as_mut().unwrap().signal(rustix::process::Signal::STOP);
    }

    /// Lets a member go on after [`Self::pause`].
    pub fn resume(&mut self, index: usize) {
        self.processes[index].as_mut().unwrap().signal(rustix::process::Signal::CONT);
    }
}
