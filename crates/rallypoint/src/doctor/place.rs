//! The host of an endpoint, seen from this host: its addresses, and whether it is this one.

use std::net::IpAddr;
use std::sync::mpsc;
use std::time::Duration;

use crate::embedded::{NameMeaning, ThisHost, meaning};

/// How long a name server may take.
const LOOKUP: Duration = Duration::from_millis(1200);

/// The most addresses that a sentence names.
const MOST_NAMED: usize = 6;

/// The host of an endpoint, seen from this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndpointPlace {
    /// The host as the endpoint names it, without brackets.
    pub(crate) host: String,
    /// The addresses of the name; the address itself, if the endpoint has one.
    pub(crate) addresses: Vec<IpAddr>,
    /// What the name means here.
    pub(crate) meaning: NameMeaning,
    /// The addresses by which other hosts reach this one.
    pub(crate) own: Vec<IpAddr>,
}

impl EndpointPlace {
    /// Looks the host of an endpoint up. Blocks on the name server.
    pub(crate) fn look(host: &str, here: &ThisHost) -> Self {
        let host = host.trim_matches(['[', ']']).to_owned();
        let addresses = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => unique((here.resolve)(&host)),
        };
        let meaning = meaning(&host, here);
        Self { host, addresses, meaning, own: here.addresses_for_others() }
    }

    /// Whether it is this host.
    pub(crate) fn is_here(&self) -> bool {
        matches!(self.meaning, NameMeaning::Here(_) | NameMeaning::HereSomehow)
    }

    /// The addresses of the name, unless it is an address itself: "head is 10.0.0.1".
    pub(crate) fn addresses(&self) -> Option<String> {
        let is_address = self.host.parse::<IpAddr>().is_ok();
        let known = !is_address && !self.addresses.is_empty();
        known.then(|| format!("{} is {}", self.host, listed(&self.addresses)))
    }

    /// Whether this host is it, with the addresses of this host if it is not.
    pub(crate) fn identity(&self) -> String {
        match (self.is_here(), &self.own[..]) {
            (true, _) => "This host is it".to_owned(),
            (false, []) => "This host is not it, and has only loopback addresses".to_owned(),
            (false, own) => format!("This host is not it: its addresses are {}", listed(own)),
        }
    }
}

/// The same host with lookups that end in time: a name server that does not answer is a name without addresses.
pub(crate) fn within_time(host: ThisHost) -> ThisHost {
    ThisHost { resolve: resolve_within_time, ..host }
}

fn resolve_within_time(name: &str) -> Vec<IpAddr> {
    let name = name.to_owned();
    looked_up(move || (ThisHost::look().resolve)(&name)).unwrap_or_default()
}

/// The result of a lookup, if it ends in time. Blocks until then.
pub(super) fn looked_up<T: Send + 'static>(
    lookup: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, found) = mpsc::channel();
    // The thread ends with the lookup, or with the process: a lookup cannot be cancelled.
    let thread = std::thread::Builder::new().name("lookup".to_owned());
    let started = thread.spawn(move || {
        let _ = sender.send(lookup());
    });
    started.ok().and_then(|_| found.recv_timeout(LOOKUP).ok())
}

/// Addresses for a sentence.
pub(crate) fn listed(addresses: &[IpAddr]) -> String {
    let named: Vec<String> = addresses.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    match addresses.len().saturating_sub(MOST_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Without the duplicates that a resolver lists for each kind of socket.
fn unique(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for address in addresses {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::tests::host;

    #[test]
    fn a_place_is_described_by_its_addresses_and_those_of_this_host() {
        let not_it = "This host is not it: its addresses are 10.0.0.1, fd00::1";
        for (name, addresses, identity) in [
            ("other", Some("other is 10.0.0.2"), not_it),
            ("10.0.0.2", None, not_it),
            ("alias", Some("alias is 127.0.0.1, 10.0.0.1"), "This host is it"),
            ("[fd00::1]", None, "This host is it"),
            ("unknown", None, not_it),
        ] {
            let place = EndpointPlace::look(name, &host());
            assert_eq!(place.addresses().as_deref(), addresses, "{name}");
            assert_eq!(place.identity(), identity, "{name}");
        }
    }

    #[test]
    fn a_long_list_is_cut() {
        let many: Vec<IpAddr> = (1..=8).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        assert_eq!(listed(&many[..2]), "10.0.0.1, 10.0.0.2");
        assert!(listed(&many).ends_with("10.0.0.6 and 2 more"));
    }
}
