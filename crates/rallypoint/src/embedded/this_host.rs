//! Whether a name means this host, and the address that a server of that name listens on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use crate::util::host::host_name;

/// The names and addresses of this host.
#[derive(Debug, Clone)]
pub struct ThisHost {
    pub(crate) name: String,
    /// The addresses of its interfaces.
    pub(crate) addresses: Vec<IpAddr>,
    /// Resolves a name to its addresses; to none if it does not resolve.
    pub(crate) resolve: fn(&str) -> Vec<IpAddr>,
}

impl ThisHost {
    /// Reads the name and the addresses from the system.
    pub fn look() -> Self {
        let name = host_name();
        Self { name, addresses: addresses(), resolve }
    }

    /// The addresses that other hosts can use: neither loopback nor link-local.
    pub(crate) fn addresses_for_others(&self) -> Vec<IpAddr> {
        let is_for_others = |address: &&IpAddr| match address {
            IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
            IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
        };
        self.addresses.iter().filter(is_for_others).copied().collect()
    }
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

/// The meaning of a name on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameMeaning {
    /// This host, by this address.
    Here(IpAddr),
    /// This host, but at an address that other hosts do not reach. Debian, for one, has 127.0.1.1 for a host's own
    /// name, and others have 127.0.0.1.
    HereSomehow,
    /// Another host.
    Elsewhere,
    /// The name does not resolve, or not yet.
    Unknown,
}

/// The meaning of the host of an endpoint, `name` being without a port.
pub(crate) fn meaning(name: &str, host: &ThisHost) -> NameMeaning {
    let name = name.trim_matches(['[', ']']);
    let ours = |address: &IpAddr| address.is_loopback() || host.addresses.contains(address);
    if let Ok(address) = name.parse::<IpAddr>() {
        return if ours(&address) { NameMeaning::Here(address) } else { NameMeaning::Elsewhere };
    }
    if name.eq_ignore_ascii_case("localhost") {
        return NameMeaning::Here(Ipv4Addr::LOCALHOST.into());
    }
    let found = (host.resolve)(name);
    if let Some(address) = found.iter().find(|address| ours(address) && !address.is_loopback()) {
        return NameMeaning::Here(*address);
    }
    let loopback = found.iter().find(|address| address.is_loopback());
    match loopback {
        None if is_own_name(name, &host.name) => NameMeaning::HereSomehow,
        None if found.is_empty() => NameMeaning::Unknown,
        None => NameMeaning::Elsewhere,
        // Another name for localhost.
        Some(address) if is_usual_loopback(address) && !same_label(name, &host.name) => {
            NameMeaning::Here(*address)
        }
        Some(_) => NameMeaning::HereSomehow,
    }
}

/// The address on which a server of this name listens: the one that the name means; every address only if there is
/// no other way, and then with a warning.
pub(crate) fn listening(
    name: &str,
    meaning: NameMeaning,
    local_addr: Option<&str>,
    host: &ThisHost,
) -> (IpAddr, Option<String>) {
    if let NameMeaning::Here(address) = meaning {
        return (address, None);
    }
    let local = local_addr.and_then(|text| text.parse::<IpAddr>().ok());
    if let Some(local) = local.filter(|local| host.addresses.contains(local)) {
        return (local, None);
    }
    let warning = match name.eq_ignore_ascii_case("localhost") {
        true => "the server listens on all addresses of this host, for nodes on other hosts; their endpoint must name this \
                 host, since localhost means to each host itself. Give 127.0.0.1 if all nodes are on this host"
            .to_owned(),
        false => format!(
            "the server listens on all addresses of this host, since it cannot be told which of them {name} \
             means to other hosts; name one by --local-addr with an IP address"
        ),
    };
    let has_v4 = host.addresses.iter().any(|own| own.is_ipv4() && !own.is_loopback());
    let all = if has_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    (all, Some(warning))
}

/// A host knows itself by its name, and by the short form of it.
fn is_own_name(name: &str, own: &str) -> bool {
    name.eq_ignore_ascii_case(own) || (!name.contains('.') && same_label(name, own))
}

/// Whether two names begin alike, as a host's long and short names do.
fn same_label(one: &str, other: &str) -> bool {
    let label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    label(one) == label(other)
}

fn is_usual_loopback(address: &IpAddr) -> bool {
    *address == Ipv4Addr::LOCALHOST || *address == Ipv6Addr::LOCALHOST
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A host that is `node1.cluster`, has 10.0.0.1 and fd00::1, and knows some names.
    pub(crate) fn host() -> ThisHost {
        let addresses = ["127.0.0.1", "10.0.0.1", "fd00::1"].map(|text| text.parse().unwrap());
        let name = "node1.cluster".to_owned();
        ThisHost { name, addresses: addresses.to_vec(), resolve }
    }

    fn resolve(name: &str) -> Vec<IpAddr> {
        let text: &[&str] = match name {
            "alias" => &["127.0.0.1", "10.0.0.1"],
            // As in Debian, and as in Fedora.
            "debian" => &["127.0.1.1"],
            "node1.fedora" | "localhost4" => &["127.0.0.1"],
            "other" => &["10.0.0.2"],
            _ => &[],
        };
        text.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn every_host_has_a_name_and_a_loopback_address() {
        let host = ThisHost::look();
        assert!(!host.name.is_empty());
        assert!(host.addresses.iter().any(IpAddr::is_loopback), "{:?}", host.addresses);
        assert_eq!((host.resolve)("127.0.0.1"), [IpAddr::from([127, 0, 0, 1])]);
    }

    #[test]
    fn names_of_this_host_and_of_others() {
        let here = |text: &str| NameMeaning::Here(text.parse().unwrap());
        for (name, expected) in [
            ("localhost", here("127.0.0.1")),
            ("LocalHost", here("127.0.0.1")),
            ("127.0.0.1", here("127.0.0.1")),
            ("127.8.8.8", here("127.8.8.8")),
            ("[::1]", here("::1")),
            ("10.0.0.1", here("10.0.0.1")),
            ("[fd00::1]", here("fd00::1")),
            ("10.0.0.2", NameMeaning::Elsewhere),
            // The test's resolver knows these.
            ("alias", here("10.0.0.1")),
            ("debian", NameMeaning::HereSomehow),
            ("node1.fedora", NameMeaning::HereSomehow),
            ("localhost4", here("127.0.0.1")),
            ("other", NameMeaning::Elsewhere),
            // The host's own names, which it does not resolve.
            ("node1.cluster", NameMeaning::HereSomehow),
            ("Node1", NameMeaning::HereSomehow),
            ("node1.elsewhere", NameMeaning::Unknown),
            ("node10", NameMeaning::Unknown),
            ("unknown", NameMeaning::Unknown),
        ] {
            assert_eq!(meaning(name, &host()), expected, "{name}");
        }
    }
}
