//! What a plan needs to know of this host. Everything that must be looked up, in one place, before planning.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use super::devices::{self, Count};
use super::taken::Environment;

/// This host, and what this process was started with.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(super) environment: Environment,
    pub(super) name: String,
    /// The addresses of its interfaces.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) processors: u32,
    pub(super) devices: Count,
    /// What a name stands for; nothing if that cannot be found out.
    pub(super) resolve: fn(&str) -> Vec<IpAddr>,
    /// A name for a run that no other run has.
    pub(super) fresh_id: String,
}

impl Host {
    /// Looks around. Names are looked up later, and block then, so plan before a runtime is started.
    pub(crate) fn look(environment: Environment) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            environment,
            name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            addresses: addresses(),
            processors: u32::try_from(processors).unwrap_or(u32::MAX),
            devices: devices::count(Path::new("/")),
            resolve,
            fresh_id: format!("{:016x}", fastrand::u64(..)),
        }
    }
}

/// The environment of this process, as far as it is text.
pub(crate) fn environment() -> Environment {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

fn addresses() -> Vec<IpAddr> {
    // Without them a host is still known by its name.
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let address = |interface: nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    interfaces.filter_map(address).collect()
}

fn resolve(name: &str) -> Vec<IpAddr> {
    let found = (name, 0).to_socket_addrs();
    found.into_iter().flatten().map(|address: SocketAddr| address.ip()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_a_name_a_processor_and_a_loopback_address() {
        let (one, other) = (Host::look(Environment::new()), Host::look(Environment::new()));
        assert!(!one.name.is_empty() && one.processors > 0);
        assert!(one.addresses.iter().any(IpAddr::is_loopback), "{:?}", one.addresses);
        assert_ne!(one.fresh_id, other.fresh_id);
        assert_eq!((one.resolve)("127.0.0.1"), [IpAddr::from([127, 0, 0, 1])]);
    }
}
