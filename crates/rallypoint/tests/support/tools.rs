//! Where the binaries are that `scripts/test-tools` fetched, and which ports are free.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// A line of etcd releases that the tests run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Debian's 3.4.
    V3_4,
    /// 3.5.
    V3_5,
    /// 3.6, on a machine where `RALLYPOINT_ETCD_3_6` names one.
    V3_6,
    /// 3.7, where `RALLYPOINT_ETCD_3_7` names one.
    V3_7,
}

impl Version {
    /// All that this machine has.
    pub fn all() -> Vec<Self> {
        let known = [Self::V3_4, Self::V3_5, Self::V3_6, Self::V3_7];
        known.into_iter().filter(|version| version.is_expected()).collect()
    }

    /// Whether tests run against it: `scripts/test-tools` fetches the first two, and a variable names a later one.
    pub fn is_expected(self) -> bool {
        matches!(self, Self::V3_4 | Self::V3_5) || std::env::var_os(self.variable()).is_some()
    }

    fn variable(self) -> &'static str {
        match self {
            Self::V3_4 => "RALLYPOINT_ETCD_3_4",
            Self::V3_5 => "RALLYPOINT_ETCD_3_5",
            Self::V3_6 => "RALLYPOINT_ETCD_3_6",
            Self::V3_7 => "RALLYPOINT_ETCD_3_7",
        }
    }

    /// As it is written in paths and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::V3_4 => "3.4",
            Self::V3_5 => "3.5",
            Self::V3_6 => "3.6",
            Self::V3_7 => "3.7",
        }
    }

    /// The path of this version's `etcd`.
    pub fn etcd(self) -> PathBuf {
        find(self, "etcd", self.variable())
    }

    /// The path of this version's `etcdctl`: from 3.6 on the one beside the binary, or else 3.5's.
    pub fn etcdctl(self) -> PathBuf {
        let beside = self.etcd().with_file_name("etcdctl");
        match self {
            Self::V3_6 | Self::V3_7 if beside.is_file() => beside,
            Self::V3_6 | Self::V3_7 => Self::V3_5.etcdctl(),
            Self::V3_4 | Self::V3_5 => find(self, "etcdctl", "RALLYPOINT_ETCDCTL"),
        }
    }
}

fn find(version: Version, program: &str, variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(
        || tools().join(format!("etcd-{}", version.name())).join(program),
        PathBuf::from,
    );
    assert!(
        path.is_file(),
        "there is no {program} {} at {}: run scripts/test-tools, or set {variable}",
        version.name(),
        path.display()
    );
    path
}

/// The path of Prometheus' `prometheus` or `promtool`.
pub fn prometheus(program: &str) -> PathBuf {
    let directory = std::env::var_os("RALLYPOINT_PROMETHEUS");
    let path = directory.map_or_else(|| tools().join("prometheus"), PathBuf::from).join(program);
    let at = path.display();
    assert!(
        path.is_file(),
        "there is no {at}: run scripts/test-tools, or set RALLYPOINT_PROMETHEUS"
    );
    path
}

/// The path of iproute2's `ip`: the system's, or the one that `scripts/test-tools` fetched.
pub fn ip() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut places = directories.chain([tools().join("iproute2")]).map(|at| at.join("ip"));
    places.find(|ip| ip.is_file()).expect("there is no `ip`: run scripts/test-tools")
}

/// The path of a Chromium without a window.
pub fn chromium() -> PathBuf {
    let named = std::env::var_os("RALLYPOINT_CHROMIUM").map(PathBuf::from);
    let path = named.unwrap_or_else(|| tools().join("chromium/chromium"));
    let at = path.display();
    assert!(path.is_file(), "there is no {at}: run scripts/test-tools, or set RALLYPOINT_CHROMIUM");
    path
}

/// The path of an example of this crate, which cargo builds before it runs all tests.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().with_file_name("examples").join(name);
    assert!(path.is_file(), "there is no {}: run cargo build --examples first", path.display());
    path
}

/// The `tools` directory of the target directory that this test was built in.
fn tools() -> PathBuf {
    // <target>/<profile>/deps/<test>, whatever the target directory is called.
    let test = std::env::current_exe().unwrap();
    test.ancestors()
        .skip(1)
        .map(|directory| directory.join("tools"))
        .find(|tools| tools.is_dir())
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools"))
}

/// A loopback port without a listener.
///
/// It lies below the range that the kernel gives to outgoing connections, which would otherwise take
/// the port of a server that is down for a moment.
pub fn free_port() -> u16 {
    for _ in 0..1000 {
        let port = fastrand::u16(12_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free loopback port between 12000 and 32000");
}
