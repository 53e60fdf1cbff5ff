//! The name of this host: its addresses, and the names of those addresses.

use std::net::IpAddr;

use super::finding::Finding;
use super::place::{listed, looked_up};
use crate::embedded::ThisHost;

const CHECK: &str = "host_name";

/// What was found about the name of this host.
#[derive(Debug)]
pub(super) struct NameMeasurement {
    pub(super) name: String,
    /// The addresses of the name, without duplicates.
    pub(super) addresses: Vec<IpAddr>,
    /// The addresses of this host.
    pub(super) own: Vec<IpAddr>,
    /// The name of the first own address, if it has one.
    pub(super) reverse: Option<(IpAddr, String)>,
}

/// Looks the name up in both directions. Blocks on the name server.
pub(super) fn measure(host: &ThisHost) -> NameMeasurement {
    let mut addresses = (host.resolve)(&host.name);
    addresses.sort_unstable();
    addresses.dedup();
    let own = host.addresses_for_others();
    let is_own = |address: &&IpAddr| own.contains(address);
    let asked = addresses.iter().find(is_own).or_else(|| own.first()).copied();
    let reverse = asked.and_then(|address| {
        let name = looked_up(move || dns_lookup::lookup_addr(&address).ok())??;
        Some((address, name))
    });
    NameMeasurement { name: host.name.clone(), addresses, own, reverse }
}

/// Whether programs that publish their own host's name publish something that other hosts can use.
pub(super) fn judge(measured: &NameMeasurement, nodes: usize) -> Finding {
    let NameMeasurement { name, addresses, own, reverse } = measured;
    let back = match reverse {
        Some((address, found)) => format!(" The name of {address} is {found}."),
        None => String::new(),
    };
    let (warning, remedy) = if addresses.is_empty() {
        (
            format!("{name}, the name of this host, does not resolve on it."),
            format!(
                "Add it to /etc/hosts: {} {name}",
                own.first().map_or_else(|| "ADDRESS".to_owned(), ToString::to_string)
            ),
        )
    } else if addresses.iter().all(IpAddr::is_loopback) {
        let debian = "Debian and Ubuntu write such a line into /etc/hosts.";
        (
            format!(
                "To this host its name, {name}, means {} alone. {debian} Rallypoint does not publish it, but programs that \
                 publish the address of their own name, such as gloo, do, and other hosts cannot use it.",
                listed(addresses)
            ),
            format!(
                "Put an address that other hosts reach into that line of /etc/hosts{}, or set GLOO_SOCKET_IFNAME",
                own.first().map(|address| format!(" ({address})")).unwrap_or_default()
            ),
        )
    } else if !addresses.iter().any(|address| own.contains(address)) {
        (
            format!(
                "{name}, the name of this host, means {}, and this host has {}.",
                listed(addresses),
                if own.is_empty() { "only loopback addresses".to_owned() } else { listed(own) }
            ),
            "Correct /etc/hosts or the name server".to_owned(),
        )
    } else {
        let text = format!("{name}, the name of this host, means {}.{back}", listed(addresses));
        return Finding::ok(CHECK, text);
    };
    match nodes {
        1 => Finding::ok(CHECK, format!("{warning} A job of one node does not need it.")),
        _ => Finding::warn(CHECK, warning + &back, remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn a_name_should_mean_an_address_that_other_hosts_reach() {
        let ips = |texts: &[&str]| -> Vec<IpAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        for (addresses, own, nodes, verdict, words) in [
            (
                &["10.0.0.1"][..],
                &["10.0.0.1"][..],
                2,
                Verdict::Ok,
                "h1, the name of this host, means 10.0.0.1. The name of 10.0.0.1 is h1.cluster.",
            ),
            (&["127.0.1.1"], &["10.0.0.1"], 2, Verdict::Warn, "means 127.0.1.1 alone. Debian"),
            (&["127.0.1.1"], &["10.0.0.1"], 1, Verdict::Ok, "does not need it"),
            (
                &["127.0.1.1", "10.0.0.1"],
                &["10.0.0.1"],
                2,
                Verdict::Ok,
                "means 127.0.1.1, 10.0.0.1",
            ),
            (
                &["10.0.0.9"],
                &["10.0.0.1"],
                2,
                Verdict::Warn,
                "means 10.0.0.9, and this host has 10.0.0.1",
            ),
            (&["10.0.0.9"], &[], 2, Verdict::Warn, "only loopback addresses"),
            (&[], &["10.0.0.1"], 2, Verdict::Warn, "does not resolve on it"),
        ] {
            let (addresses, own) = (ips(addresses), ips(own));
            let reverse = own.first().map(|address| (*address, "h1.cluster".to_owned()));
            let measured = NameMeasurement { name: "h1".to_owned(), addresses, own, reverse };
            let found = judge(&measured, nodes);
            assert_eq!(found.verdict, verdict, "{measured:?}");
            assert!(found.message.contains(words), "{}", found.message);
            assert_eq!(found.remedy.is_some(), verdict == Verdict::Warn);
        }
    }
}
