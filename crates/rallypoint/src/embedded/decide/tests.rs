//! Which node runs the server.

use super::*;
use crate::embedded::this_host::tests::host;

fn config(
    endpoint: &str,
    max: usize,
    options: &[(&str, &str)],
) -> Result<RendezvousConfig, String> {
    let parameters =
        RendezvousParameters::new(RALLYPOINT_BACKEND, endpoint, "job", 1, max).unwrap();
    let parameters = options.iter().fold(parameters, |all, (key, value)| all.with(*key, *value));
    RendezvousConfig::from_parameters(parameters, &host(), None).map_err(|error| error.to_string())
}

fn here(text: &str, required: bool) -> ServerPlacement {
    ServerPlacement::Here { address: text.parse().unwrap(), required }
}

#[test]
fn the_server_is_placed_by_what_is_told_and_what_the_name_means() {
    let undecided = |resolves| ServerPlacement::Undecided { resolves };
    for (endpoint, told, max_nodes, expected) in [
        ("alias", None, 2, here("10.0.0.1:29400", false)),
        ("127.0.0.1:7", None, 2, here("127.0.0.1:7", false)),
        ("[::1]:7", None, 2, here("[::1]:7", false)),
        ("localhost:7", None, 1, here("127.0.0.1:7", false)),
        ("localhost:7", None, 2, here("0.0.0.0:7", false)),
        ("localhost4:7", None, 2, here("0.0.0.0:7", false)),
        ("debian", None, 2, here("0.0.0.0:29400", false)),
        ("other", None, 2, undecided(true)),
        ("10.0.0.2", None, 2, ServerPlacement::Elsewhere),
        ("unknown", None, 2, undecided(false)),
        ("unknown", Some(true), 2, here("0.0.0.0:29400", true)),
        ("unknown", Some(false), 2, ServerPlacement::Elsewhere),
        ("alias", Some(false), 2, ServerPlacement::Elsewhere),
        ("alias", Some(true), 2, here("10.0.0.1:29400", true)),
    ] {
        let endpoint = Endpoint::parse(endpoint, 29400).unwrap();
        let named = NamedServer { endpoint: &endpoint, max_nodes, local_addr: None };
        let (found, _) = named.placement(told, &host());
        assert_eq!(found, expected, "{endpoint} {told:?} {max_nodes}");
    }
}

#[test]
fn the_host_that_is_named_serves() {
    for (endpoint, options, completed, server) in [
        ("alias", &[][..], "alias:29400", here("10.0.0.1:29400", false)),
        ("127.0.0.1:7", &[], "127.0.0.1:7", here("127.0.0.1:7", false)),
        ("other:7", &[], "other:7", ServerPlacement::Undecided { resolves: true }),
        ("alias", &[("is_host", "no")], "alias:29400", ServerPlacement::Elsewhere),
        ("other", &[("is_host", "1")], "other:29400", here("0.0.0.0:29400", true)),
        ("alias,b:7", &[], "alias:2379,b:7", ServerPlacement::Elsewhere),
    ] {
        let found = config(endpoint, 2, options).unwrap();
        assert_eq!((&*found.parameters.endpoint, found.server), (completed, server));
        assert_eq!(found.parameters.get("is_host"), None);
    }
    for endpoint in ["", "localhost:0", "127.0.0.1:0"] {
        let found = config(endpoint, 1, &[]).unwrap();
        assert_eq!((&*found.parameters.endpoint, found.server), ("", ServerPlacement::Loopback));
    }
}

#[test]
fn what_cannot_be_is_named() {
    for (endpoint, options, words) in [
        ("", &[][..], "endpoint is missing: 2 nodes need a place to meet"),
        ("localhost:0", &[], "endpoint \"localhost:0\": port 0 is any free port"),
        ("0.0.0.0", &[], "endpoint \"0.0.0.0:29400\": this is no host"),
        ("a,b", &[("is_host", "true")], "is_host=true and an endpoint of several hosts"),
        ("alias", &[("is_host", "maybe")], "is_host \"maybe\": give true or false"),
        ("alias", &[("lease_tll", "3")], "unknown option \"lease_tll\""),
        (
            "alias",
            &[("is_hots", "1")],
            "unknown option \"is_hots\" of backend \"rallypoint\": did you mean is_host?",
        ),
        (
            "alias",
            &[("protocol", "https"), ("cacert", "x")],
            "cert is missing: this host runs the server",
        ),
    ] {
        let error = config(endpoint, 2, options).unwrap_err();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn a_secret_is_for_a_server_that_the_nodes_bring() {
    let with = |backend: &str, endpoint: &str| {
        let parameters = RendezvousParameters::new(backend, endpoint, "job", 1, 2).unwrap();
        let config = RendezvousConfig::from_parameters(parameters, &host(), Some("s"));
        config.unwrap().credentials.map(|credentials| (credentials.user, credentials.password))
    };
    assert_eq!(with(RALLYPOINT_BACKEND, "alias"), Some((SECRET_USER.to_owned(), "s".to_owned())));
    assert_eq!(with(RALLYPOINT_BACKEND, "a,b"), None);
    assert_eq!(with("etcd", "alias"), None);
}
