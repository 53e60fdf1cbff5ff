//! Several hosts on one machine: each has a network, a name, and a hosts file of its own.
//!
//! Needs root, and `ip` of iproute2 (`scripts/test-tools`). The namespaces live as long as a process that is
//! in them, so there is nothing to clean up that the watchdog of the tests does not see to.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::until_true;
use crate::support::process::{Directory, Process};
use crate::support::tools::ip;

/// What the first process of a host does: it takes its name, its hosts file and a resolver that knows nobody.
const KEEPER: &str = r#"hostname "$0" && mount --bind "$1" /etc/hosts && mount --bind /dev/null /etc/resolv.conf &&
    exec sleep infinity"#;

/// Where all hosts are plugged in, and where those are that are cut off together.
const BRIDGE: &str = "bridge";
const ISLAND: &str = "island";

/// A switch and the hosts that are plugged into it, numbered from 0.
pub struct Network {
    switch: Host,
    pub hosts: Vec<Host>,
    directory: Directory,
}

/// A host is its namespaces, and the process that keeps them.
pub struct Host {
    keeper: Process,
    file: PathBuf,
}

impl Host {
    /// A host of this name. Its files begin with `stem`, since two hosts may have one name.
    fn new(directory: &Directory, stem: &str, name: &str) -> Self {
        let path = |end: &str| directory.path().join(format!("{stem}.{end}"));
        let (log, file) = (path("log"), path("hosts"));
        std::fs::write(&file, "127.0.0.1 localhost\n").unwrap();
        let output = std::fs::File::create(&log).unwrap();
        let mut keeper = Command::new("unshare");
        keeper.args(["--net", "--uts", "--mount", "sh", "-c", KEEPER, name]).arg(&file);
        keeper.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let mut host = Self { keeper: Process::of(&mut keeper, vec![log]), file };
        let program = format!("/proc/{}/comm", host.keeper.id());
        until_true("there is another host", || {
            let refused = host.keeper.has_ended();
            assert!(
                !refused,
                "this machine allows no namespaces, which this test needs: run it as root"
            );
            std::fs::read_to_string(&program).is_ok_and(|name| name.trim() == "sleep")
        });
        host.ip(&["link", "set", "lo", "up"]);
        host
    }

    /// Says in its hosts file what names stand for, besides `localhost`.
    pub fn knows(&self, names: &[(&str, &str)]) {
        let line = |(address, name): &(&str, &str)| format!("{address} {name}\n");
        let lines: String = names.iter().map(line).collect();
        // In place: what was mounted is this file, not another of the same name.
        std::fs::write(&self.file, format!("127.0.0.1 localhost\n{lines}")).unwrap();
    }

    /// What a program has before it to run there.
    pub fn enter(&self) -> Vec<String> {
        let words = ["nsenter", "--net", "--uts", "--mount", "--target"].map(str::to_owned);
        words.into_iter().chain([self.keeper.id().to_string()]).collect()
    }

    /// Kills all that runs there, at once.
    pub fn kill(&self) {
        let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let keeper = self.keeper.id().to_string();
        let own = network(&keeper).unwrap();
        until_true("nothing runs on the host", || {
            let names = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
            let pids = names.filter_map(|name| name.into_string().ok());
            let there = pids.filter(|pid| *pid != keeper && network(pid).as_ref() == Some(&own));
            let pids: Vec<i32> = there.filter_map(|pid| pid.parse().ok()).collect();
            for pid in &pids {
                // It may have ended by itself.
                let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
            }
            pids.is_empty()
        });
    }

    /// Changes its network.
    pub fn ip(&self, words: &[&str]) {
        let enter = self.enter();
        let output =
            Command::new(&enter[0]).args(&enter[1..]).arg(ip()).args(words).output().unwrap();
        assert!(
            output.status.success(),
            "this machine allows no changes to network namespaces, which this test needs: ip {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

impl Network {
    /// Hosts, called `node0` and so on.
    pub fn new(hosts: usize) -> Self {
        let directory = Directory::new();
        let switch = Host::new(&directory, "switch", "switch");
        for bridge in [BRIDGE, ISLAND] {
            switch.ip(&["link", "add", bridge, "type", "bridge"]);
            switch.ip(&["link", "set", bridge, "up"]);
        }
        let mut network = Self { switch, hosts: Vec::new(), directory };
        for number in 0..hosts {
            network.add(&format!("node{number}"));
        }
        network
    }

    /// One more host, with the next address. Returns its number.
    pub fn add(&mut self, name: &str) -> usize {
        let number = self.hosts.len();
        let host = Host::new(&self.directory, &format!("host{number}"), name);
        let (port, pid) = (port(number), host.keeper.id().to_string());
        let switch = &self.switch;
        switch.ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid]);
        switch.ip(&["link", "set", &port, "master", BRIDGE]);
        switch.ip(&["link", "set", &port, "up"]);
        host.ip(&["address", "add", &format!("{}/24", address(number)), "dev", "eth0"]);
        host.ip(&["link", "set", "eth0", "up"]);
        self.hosts.push(host);
        number
    }

    /// All hosts know each other by these names, in the order of their numbers.
    pub fn know(&self, names: &[&str]) {
        let addresses: Vec<String> = (0..names.len()).map(address).collect();
        let lines: Vec<(&str, &str)> =
            addresses.iter().map(String::as_str).zip(names.iter().copied()).collect();
        self.hosts.iter().for_each(|host| host.knows(&lines));
    }

    /// Pulls a host's plug, or puts it back. Nobody is told.
    pub fn plug(&self, number: usize, how: &str) {
        self.switch.ip(&["link", "set", &port(number), how]);
    }

    /// Cuts some hosts off from the others, but not from each other. Nobody is told.
    pub fn part(&self, numbers: &[usize]) {
        for number in numbers {
            self.switch.ip(&["link", "set", &port(*number), "master", ISLAND]);
        }
    }

    /// Ends that.
    pub fn join(&self, numbers: &[usize]) {
        for number in numbers {
            self.switch.ip(&["link", "set", &port(*number), "master", BRIDGE]);
        }
    }
}

fn port(number: usize) -> String {
    format!("port{number}")
}

/// The address of a host.
pub fn address(number: usize) -> String {
    format!("10.77.0.{}", number + 11)
}
