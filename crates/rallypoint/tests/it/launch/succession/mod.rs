//! A job outlives the host of its server: launchers on hosts that are network namespaces, where the first hosts of the
//! endpoint may serve, one after another.
//!
//! Each worker looks at its start for live workers of other rounds. Hosts share the processes and files of this machine,
//! so a worker sees all of them, whatever its network does.

mod beyond_help;
mod chaos;
mod head;
mod newcomers;
mod parted;
mod secured;
mod turns;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::hosts::{Network, address};
use super::processes::connected;
use super::{Group, Job, Launcher, PATIENCE, until_true};

/// Where nodes wait until a lease is over: short, and long enough for a busy machine to renew it.
const LEASE: Duration = Duration::from_secs(4);

/// Where no node is to wait until a lease is over. Without a proof, a successor waits for one and a half of it.
const LONG_LEASE: Duration = Duration::from_secs(30);

/// The time in which a group forms that waits for no [`LONG_LEASE`], on a machine that is busy. The benchmark says how
/// quick it is.
const NOT_WAITED: Duration = Duration::from_secs(20);

/// How long a node waits when no host may serve, where that is what a test is about. Longer than a succession.
const SERVER_TIMEOUT: Duration = Duration::from_secs(12);

/// The first hosts, which may serve.
const ORDER: &str = "node0,node1,node2";

/// The port of the endpoint, which names none.
const PORT: u16 = 29400;

/// What a worker does first: it says that it lives, and then looks who else does. Of two workers that do so at the same
/// time, one sees the other.
const LOOK: &str = r#"
: > "$mine.lives"
for other in "$here"/*.lives; do
    name=${other##*/}; name=${name%.lives}; pid=${name##*.}; round=${name%%.*}
    [ "$round" != "$RALLYPOINT_ROUND" ] || continue
    ! grep -q '^State:.[^ZX]' /proc/$pid/status 2>/dev/null ||
        echo "$pid of round $round lives beside $$ of round $RALLYPOINT_ROUND" >> "$JOB/overlap"
done
"#;

/// A worker of the first group does not end when it is asked to. If it must end, it has to be killed in time.
const STUBBORN: &str = "[ $RALLYPOINT_ATTEMPT != 0 ] || trap '' TERM;";

/// A job on hosts that know each other's names.
struct Ground {
    network: Network,
    job: Job,
    /// The options of the rendezvous.
    conf: String,
    /// The host of each launcher.
    launched: RefCell<Vec<usize>>,
}

impl Ground {
    /// A job on hosts of which the first three may serve.
    fn new(nnodes: &str, hosts: usize) -> Self {
        Self::with(nnodes, hosts, ORDER, LEASE, PATIENCE)
    }

    /// The same, whose leases are longer than the test.
    fn with_long_leases(nnodes: &str, hosts: usize) -> Self {
        Self::with(nnodes, hosts, ORDER, LONG_LEASE, PATIENCE)
    }

    /// A job with this order of hosts that may serve, and whose nodes wait so long when none does.
    fn with(
        nnodes: &str,
        hosts: usize,
        order: &str,
        lease: Duration,
        server_timeout: Duration,
    ) -> Self {
        let network = Network::new(hosts);
        let names: Vec<String> = (0..hosts).map(|number| format!("node{number}")).collect();
        network.know(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let (lease, server_timeout) = (lease.as_secs(), server_timeout.as_secs());
        let conf =
            format!("lease_ttl={lease},last_call_timeout=30,server_timeout={server_timeout}");
        let job = Job::with_conf(order, nnodes, &conf);
        Self { network, job, conf, launched: RefCell::default() }
    }

    fn start(&self, host: usize) -> Launcher {
        self.start_with(host, &[], "")
    }

    /// With more options, and an order that its workers get first.
    fn start_with(&self, host: usize, options: &[&str], order: &str) -> Launcher {
        let enter = self.network.hosts[host].enter();
        let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
        let line = self.job.recorded();
        self.launched.borrow_mut().push(host);
        // A host has its own temporary files.
        let temporary = self.temporary(host);
        std::fs::create_dir_all(&temporary).unwrap();
        let order = format!("{order}{LOOK}");
        let line = line.with(options).by(&enter).env("TMPDIR", &temporary);
        line.program(&["sh", &self.job.file("worker.sh"), &order]).start()
    }

    /// What the command with these words says on a host: its exit code, standard output and standard error.
    fn says(&self, host: usize, words: &[&str]) -> (Option<i32>, String, String) {
        let line = self.network.hosts[host].enter();
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).arg(env!("CARGO_BIN_EXE_rallypoint")).args(words);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn temporary(&self, host: usize) -> String {
        self.job.file(&format!("tmp{host}"))
    }

    /// A launcher on each host, and the group of all of them. The first host serves.
    fn starts(&self) -> (Vec<Launcher>, Group) {
        self.starts_with(&[], &[])
    }

    /// The same with more options, and with stubborn workers on some hosts.
    fn starts_with(&self, options: &[&str], stubborn: &[usize]) -> (Vec<Launcher>, Group) {
        let start = |host: usize| match stubborn.contains(&host) {
            false => self.start_with(host, options, ""),
            true => {
                self.start_with(host, &[options, &["--shutdown-timeout", "600"]].concat(), STUBBORN)
            }
        };
        let nodes: Vec<Launcher> = (0..self.network.hosts.len()).map(start).collect();
        let group = self.job.group(nodes.len());
        self.is_served_by(0, &nodes[1..]);
        (nodes, group)
    }

    /// Waits until these launchers use the server of this host. To the others that may serve they have a connection at
    /// most, over which they ask.
    fn is_served_by<'a>(&self, host: usize, launchers: impl IntoIterator<Item = &'a Launcher>) {
        let server = |number: usize| format!("{}:{PORT}", address(number)).parse().unwrap();
        for launcher in launchers {
            until_true(
                &format!("launcher {} uses the server of host {host}", launcher.number),
                || {
                    let connected = connected(launcher.id());
                    let count = |number: usize| {
                        let address: SocketAddr = server(number);
                        connected.iter().filter(|remote| **remote == address).count()
                    };
                    let hosts = 0..self.network.hosts.len();
                    hosts.into_iter().all(|other| other == host || count(other) < count(host))
                },
            );
        }
    }

    /// Kills all processes of a host. Its kernel lives, and tells everybody.
    fn kill(&self, host: usize) -> Instant {
        let lost = Instant::now();
        self.network.hosts[host].kill();
        lost
    }

    /// A host loses its power: nobody is told.
    fn vanish(&self, host: usize) -> Instant {
        let lost = self.cut(host);
        self.kill(host);
        lost
    }

    /// A host loses its network: nobody is told, and it lives on.
    fn cut(&self, host: usize) -> Instant {
        let lost = Instant::now();
        self.network.plug(host, "down");
        lost
    }

    /// Waits for the group after this one, which has these launchers. The loss consumed no restart.
    fn regroups(&self, lost: Instant, before: &Group, launchers: &[usize]) -> Group {
        let group = self.regroups_late(lost, before, launchers);
        let restarts = |group: &Group| group.workers[0].number("TORCHELASTIC_RESTART_COUNT");
        assert_eq!(restarts(&group), restarts(before), "no worker has failed");
        group
    }

    /// The same in a job with long leases, for none of which a node waits: its peers have left, or are proved dead.
    fn regroups_at_once(&self, lost: Instant, before: &Group, launchers: &[usize]) -> Group {
        let group = self.regroups(lost, before, launchers);
        let taken = lost.elapsed();
        assert!(taken < NOT_WAITED, "it took {taken:?}: a lease of {LONG_LEASE:?} was waited for");
        group
    }

    /// Waits for the group after this one, whatever it costs.
    #[expect(
        clippy::print_stderr,
        reason = "the time is to be seen, and a test is no place to judge it"
    )]
    fn regroups_late(&self, lost: Instant, before: &Group, launchers: &[usize]) -> Group {
        let group = self.job.group_after(before, launchers.len());
        let test = std::thread::current();
        let name = test.name().unwrap_or_default().to_owned();
        eprintln!("{name}: round {} after {:.2?}", group.round, lost.elapsed());
        assert!(group.launchers().into_iter().eq(launchers.iter().copied()), "{group:?}");
        self.had_one_group();
        group
    }

    /// No worker has seen one of another round.
    fn had_one_group(&self) {
        let overlap = std::fs::read_to_string(self.job.path().join("overlap")).unwrap_or_default();
        assert_eq!(overlap, "", "two groups at once");
    }

    /// The workers are done, these nodes end well, and nothing is left.
    fn ends(&self, nodes: &mut [Launcher], group: &Group) {
        group.tell("exit 0");
        for node in nodes.iter_mut() {
            node.ends_with(0);
        }
        let finished: Vec<usize> = nodes.iter().map(|node| node.number).collect();
        self.is_over(&finished);
    }

    /// Nothing is left of the launchers, of which these have ended by themselves.
    fn is_over(&self, finished: &[usize]) {
        self.had_one_group();
        self.job.nothing_is_left();
        let launched = self.launched.borrow();
        let is_clean = |host: &usize| {
            let mut there = (0..launched.len()).filter(|launcher| launched[*launcher] == *host);
            there.all(|launcher| finished.contains(&launcher))
        };
        for host in (0..self.network.hosts.len()).filter(is_clean) {
            let left = std::fs::read_dir(self.temporary(host)).into_iter().flatten();
            let left: Vec<_> = left.collect();
            assert!(left.is_empty(), "host {host}: {left:?}");
        }
        self.job.replays(launched.len(), |launcher| finished.contains(&launcher));
    }
}
