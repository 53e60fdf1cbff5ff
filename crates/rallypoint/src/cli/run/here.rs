//! Whether a name means this host, and the address that a server of that name should listen on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::host::Host;

/// What a name means to this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// This host, by this address.
    Here(IpAddr),
    /// This host, but other hosts will not reach it by what the name stands for here. Debian, for one, has
    /// 127.0.1.1 for a host's own name, and others have 127.0.0.1.
    HereSomehow,
    /// Another host, or none that is known.
    Elsewhere,
}

/// What the host of an endpoint means, `name` being without a port.
pub(super) fn meaning(name: &str, host: &Host) -> Meaning {
    let name = name.trim_matches(['[', ']']);
    let ours = |address: &IpAddr| address.is_loopback() || host.addresses.contains(address);
    if let Ok(address) = name.parse::<IpAddr>() {
        return if ours(&address) { Meaning::Here(address) } else { Meaning::Elsewhere };
    }
    if name.eq_ignore_ascii_case("localhost") {
        return Meaning::Here(Ipv4Addr::LOCALHOST.into());
    }
    let found = (host.resolve)(name);
    if let Some(address) = found.iter().find(|address| ours(address) && !address.is_loopback()) {
        return Meaning::Here(*address);
    }
    let loopback = found.iter().find(|address| address.is_loopback());
    match loopback {
        None if is_own_name(name, &host.name) => Meaning::HereSomehow,
        None => Meaning::Elsewhere,
        // Another name for localhost.
        Some(address) if is_usual_loopback(address) && !same_label(name, &host.name) => {
            Meaning::Here(*address)
        }
        Some(_) => Meaning::HereSomehow,
    }
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
mod tests {
    use super::*;
    use crate::cli::run::tests::host;

    #[test]
    fn names_of_this_host_and_of_others() {
        let here = |text: &str| Meaning::Here(text.parse().unwrap());
        for (name, expected) in [
            ("localhost", here("127.0.0.1")),
            ("LocalHost", here("127.0.0.1")),
            ("127.0.0.1", here("127.0.0.1")),
            ("127.8.8.8", here("127.8.8.8")),
            ("[::1]", here("::1")),
            ("10.0.0.1", here("10.0.0.1")),
            ("[fd00::1]", here("fd00::1")),
            ("10.0.0.2", Meaning::Elsewhere),
            // The test's resolver knows these.
            ("alias", here("10.0.0.1")),
            ("debian", Meaning::HereSomehow),
            ("node1.fedora", Meaning::HereSomehow),
            ("localhost4", here("127.0.0.1")),
            ("other", Meaning::Elsewhere),
            // The host's own names, which it does not resolve.
            ("node1.cluster", Meaning::HereSomehow),
            ("Node1", Meaning::HereSomehow),
            ("node1.elsewhere", Meaning::Elsewhere),
            ("node10", Meaning::Elsewhere),
            ("unknown", Meaning::Elsewhere),
        ] {
            assert_eq!(meaning(name, &host(&[])), expected, "{name}");
        }
    }
}
