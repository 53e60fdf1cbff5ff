//! Which host runs the server: decided once, for the launcher and for Python alike.

use std::net::{IpAddr, SocketAddr};

use super::rendezvous_config::ServerPlacement;
use super::this_host::{Meaning, ThisHost, listening, meaning};
use crate::rendezvous::Endpoint;

/// What it is decided by.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    /// Where the nodes meet.
    pub(crate) endpoint: &'a Endpoint,
    /// What the user says, or the rank that this node has.
    pub(crate) told: Option<bool>,
    pub(crate) max_nodes: usize,
    pub(crate) local_addr: Option<&'a str>,
    pub(crate) host: &'a ThisHost,
}

/// A decision, and what the user should know about it.
pub(crate) type Decision = (ServerPlacement, Option<String>);

impl Question<'_> {
    /// Decides it by what is known now. Blocks if a name has to be looked up.
    pub(crate) fn decide(&self) -> Decision {
        let Self { endpoint, told, local_addr, host, .. } = self;
        let meaning = self.meaning();
        match (told, meaning) {
            (Some(false), _) => return (ServerPlacement::Elsewhere, None),
            // An address does not change its meaning.
            (None, Meaning::Elsewhere) if endpoint.address().is_some() => {
                return (ServerPlacement::Elsewhere, None);
            }
            (None, Meaning::Elsewhere) => {
                return (ServerPlacement::Undecided { resolves: true }, None);
            }
            (None, Meaning::Unknown) => {
                return (ServerPlacement::Undecided { resolves: false }, None);
            }
            (Some(true), _) | (None, Meaning::Here(_) | Meaning::HereSomehow) => {}
        }
        let (ip, warning) = listening(&endpoint.host, meaning, *local_addr, host);
        let address = SocketAddr::new(ip, endpoint.port);
        (ServerPlacement::Here { address, required: told.is_some() }, warning)
    }

    /// What the endpoint means, given who is to come.
    fn meaning(&self) -> Meaning {
        match meaning(&self.endpoint.host, self.host) {
            // Whoever writes an address means it. A name of the loopback address is also what rank 0 is told by
            // programs that give the other nodes another name of its host.
            Meaning::Here(ip)
                if ip.is_loopback() && self.max_nodes > 1 && self.endpoint.address().is_none() =>
            {
                Meaning::HereSomehow
            }
            meaning => meaning,
        }
    }
}

impl Endpoint {
    /// The address, if it is written as one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.host.trim_matches(['[', ']']).parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::this_host::tests::host;

    #[test]
    fn it_is_decided_by_what_is_told_and_what_the_name_means() {
        let at = |text: &str, required| ServerPlacement::Here {
            address: text.parse().unwrap(),
            required,
        };
        let undecided = |resolves| ServerPlacement::Undecided { resolves };
        for (endpoint, told, max_nodes, expected) in [
            ("alias", None, 2, at("10.0.0.1:29400", false)),
            ("127.0.0.1:7", None, 2, at("127.0.0.1:7", false)),
            ("[::1]:7", None, 2, at("[::1]:7", false)),
            ("localhost:7", None, 1, at("127.0.0.1:7", false)),
            ("localhost:7", None, 2, at("0.0.0.0:7", false)),
            ("localhost4:7", None, 2, at("0.0.0.0:7", false)),
            ("debian", None, 2, at("0.0.0.0:29400", false)),
            ("other", None, 2, undecided(true)),
            ("10.0.0.2", None, 2, ServerPlacement::Elsewhere),
            ("unknown", None, 2, undecided(false)),
            ("unknown", Some(true), 2, at("0.0.0.0:29400", true)),
            ("unknown", Some(false), 2, ServerPlacement::Elsewhere),
            ("alias", Some(false), 2, ServerPlacement::Elsewhere),
            ("alias", Some(true), 2, at("10.0.0.1:29400", true)),
        ] {
            let endpoint = Endpoint::parse(endpoint, 29400).unwrap();
            let question =
                Question { endpoint: &endpoint, told, max_nodes, local_addr: None, host: &host() };
            assert_eq!(question.decide().0, expected, "{endpoint} {told:?} {max_nodes}");
        }
    }
}
