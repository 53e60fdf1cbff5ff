//! The name in the endpoint: whether it resolves, and whether every node understands the same host by it.

use super::finding::Finding;
use super::place::{EndpointPlace, listed};
use crate::embedded::NameMeaning;

const CHECK: &str = "endpoint";

/// What a decision about an endpoint depends on, besides its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) nodes: usize,
    pub(super) node_rank: Option<u32>,
}

/// Whether the nodes of the job can meet at this place.
pub(super) fn judge(place: &EndpointPlace, job: Job) -> Finding {
    let EndpointPlace { host, addresses, meaning, .. } = place;
    let Job { nodes, node_rank } = job;
    let described = |rest: String| match place.addresses() {
        Some(addresses) => format!("{addresses}. {rest}."),
        None => format!("{rest}."),
    };
    let is_localhost = host.eq_ignore_ascii_case("localhost");
    match meaning {
        NameMeaning::Unknown => Finding::fail(
            CHECK,
            format!("{host} does not resolve on this host."),
            "Correct the name in --rdzv-endpoint, /etc/hosts or the name server. In Kubernetes a name may resolve some \
             seconds late",
        ),
        _ if is_localhost && nodes > 1 && node_rank == Some(0) => Finding::warn(
            CHECK,
            format!(
                "The endpoint is localhost and --nnodes is {nodes}: only this host, with --node-rank 0, may say so."
            ),
            "The other nodes must name this host in --rdzv-endpoint",
        ),
        _ if is_localhost && nodes > 1 => Finding::fail(
            CHECK,
            format!(
                "The endpoint is localhost and --nnodes is {nodes}: every host would meet only itself."
            ),
            "Name a host that all nodes can reach in --rdzv-endpoint; 127.0.0.1, if all of them are on this host",
        ),
        _ if nodes > 1
            && addresses.iter().all(|address| address.is_loopback())
            && place.host.parse::<std::net::IpAddr>().is_ok() =>
        {
            Finding::warn(
                CHECK,
                format!(
                    "The endpoint is {host}, a loopback address: only nodes on this host can meet there."
                ),
                "Name a host that all nodes can reach in --rdzv-endpoint, unless all of them are on this host",
            )
        }
        NameMeaning::HereSomehow => Finding::ok(
            CHECK,
            match addresses.is_empty() {
                true => format!(
                    "{host} is this host, which does not resolve it. The server listens on all addresses."
                ),
                false => format!(
                    "{host} is this host, and means {} to it. The server listens on all addresses.",
                    listed(addresses)
                ),
            },
        ),
        NameMeaning::Here(_) | NameMeaning::Elsewhere => {
            Finding::ok(CHECK, described(place.identity()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;
    use crate::embedded::tests::host;

    #[test]
    fn an_endpoint_should_mean_one_host_to_all_nodes() {
        for (name, nodes, node_rank, verdict, words) in [
            (
                "other",
                2,
                None,
                Verdict::Ok,
                "other is 10.0.0.2. This host is not it: its addresses are 10.0.0.1, fd00::1.",
            ),
            ("10.0.0.2", 2, None, Verdict::Ok, "This host is not it"),
            ("alias", 2, None, Verdict::Ok, "This host is it"),
            ("unknown", 2, None, Verdict::Fail, "unknown does not resolve on this host."),
            (
                "localhost",
                2,
                None,
                Verdict::Fail,
                "The endpoint is localhost and --nnodes is 2: every host would meet only itself.",
            ),
            ("localhost", 2, Some(1), Verdict::Fail, "every host would meet only itself"),
            (
                "localhost",
                2,
                Some(0),
                Verdict::Warn,
                "only this host, with --node-rank 0, may say so",
            ),
            ("localhost", 1, None, Verdict::Ok, "This host is it"),
            ("127.0.0.1", 2, None, Verdict::Warn, "only nodes on this host can meet there"),
            ("127.0.0.1", 1, None, Verdict::Ok, "This host is it"),
            ("debian", 2, None, Verdict::Ok, "debian is this host, and means 127.0.1.1 to it"),
            ("node1", 2, None, Verdict::Ok, "node1 is this host, which does not resolve it"),
        ] {
            let found = judge(&EndpointPlace::look(name, &host()), Job { nodes, node_rank });
            assert_eq!(found.verdict, verdict, "{name} {nodes}: {}", found.message);
            assert!(found.message.contains(words), "{name}: {}", found.message);
        }
    }
}
