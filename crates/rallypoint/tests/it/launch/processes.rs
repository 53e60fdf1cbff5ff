//! What the kernel knows: which processes belong to a job, and where they listen.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::etcd_server::lives;

/// The living processes that have `text` in the environment that they were started with.
pub fn with_environment(text: &Path) -> BTreeSet<u32> {
    let of_process = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.ok()?.file_name();
        let pid = name.to_str()?.parse().ok()?;
        (has_environment(pid, text) && lives(pid)).then_some(pid)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(of_process).collect()
}

/// Whether a process has `text` in the environment that it was started with. Numbers are used again, so
/// this tells a process from a stranger that has its number.
pub fn has_environment(pid: u32, text: &Path) -> bool {
    let text = text.as_os_str().as_encoded_bytes();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.windows(text.len()).any(|part| part == text)
}

/// Where a process listens for TCP connections.
pub fn listening(pid: u32) -> Vec<SocketAddr> {
    connections(pid, "0A").into_iter().map(|(local, _)| local).collect()
}

/// What the TCP connections of a process lead to.
pub fn connected(pid: u32) -> Vec<SocketAddr> {
    connections(pid, "01").into_iter().map(|(_, remote)| remote).collect()
}

/// Both ends of the TCP connections of a process that are in this state.
fn connections(pid: u32, wanted: &str) -> Vec<(SocketAddr, SocketAddr)> {
    let sockets = sockets(pid);
    let mut found = Vec::new();
    // Of its own network namespace.
    for table in ["tcp", "tcp6"] {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, remote, state, _, _, _, _, _, inode, ..] = fields[..] else { continue };
            if state == wanted && sockets.contains(inode) {
                found.push((address(local), address(remote)));
            }
        }
    }
    found
}

/// The inodes of the sockets that a process has open.
fn sockets(pid: u32) -> BTreeSet<String> {
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeSet::new() };
    let inode = |file: std::io::Result<std::fs::DirEntry>| {
        let target = std::fs::read_link(file.ok()?.path()).ok()?;
        Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    files.filter_map(inode).collect()
}

/// An address as the kernel's tables have it: groups of four bytes as numbers of this machine.
fn address(text: &str) -> SocketAddr {
    let (host, port) = text.split_once(':').unwrap();
    let number = |digits: &str| u32::from_str_radix(digits, 16).unwrap().to_ne_bytes();
    let bytes: Vec<u8> =
        (0..host.len()).step_by(8).flat_map(|at| number(&host[at..at + 8])).collect();
    let ip = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(v4) => IpAddr::from(Ipv4Addr::from(v4)),
        Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..]).unwrap()).into(),
    };
    SocketAddr::new(ip, u16::from_str_radix(port, 16).unwrap())
}

#[test]
fn a_listener_is_seen_as_what_it_is() {
    for ip in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
        let listener = std::net::TcpListener::bind(ip).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(listening(std::process::id()).contains(&address), "{address}");
        drop(listener);
        assert!(!listening(std::process::id()).contains(&address), "{address}");
    }
}
