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
        ("alias,b:7", &[], "alias:29400,b:7", ServerPlacement::Order { is_here: true }),
        ("b,c:7", &[], "b:29400,c:7", ServerPlacement::Order { is_here: false }),
        (
            "alias,b",
            &[("is_host", "no")],
            "alias:29400,b:29400",
            ServerPlacement::Order { is_here: false },
        ),
        ("alias,b", &[("succession", "off")], "alias:29400", here("10.0.0.1:29400", false)),
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
        ("a,A:29400", &[], "endpoint \"A:29400\": this is the same as a:29400"),
        ("a,b", &[("succession", "no")], "succession \"no\": give on or off"),
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
    assert_eq!(with(RALLYPOINT_BACKEND, "a,b"), with(RALLYPOINT_BACKEND, "alias"));
    assert_eq!(with("etcd", "alias"), None);
}

#[test]
fn a_host_of_an_order_is_known_by_its_names_its_rank_or_its_position() {
    let endpoints = Endpoint::parse_all("unknown,alias,10.0.0.1:7,other", 29400).unwrap();
    let parameters = RendezvousParameters::new(RALLYPOINT_BACKEND, "", "job", 1, 4).unwrap();
    let at = |position: usize, address: &str| (position, address.parse().unwrap());
    let by_names = vec![at(1, "10.0.0.1:29400"), at(2, "10.0.0.1:7")];
    for (is_rank0, position, places, unresolved) in [
        (None, None, by_names.clone(), vec!["unknown"]),
        (Some(true), None, vec![at(0, "0.0.0.0:29400")], vec![]),
        (Some(false), None, by_names, vec![]),
        (None, Some(3), vec![at(3, "0.0.0.0:29400")], vec![]),
        (None, Some(4), Vec::new(), vec![]),
    ] {
        let hints = ServerHints { is_rank0, position, ..ServerHints::default() };
        let found = OwnPlaces::find(&endpoints, &parameters, hints, &host());
        assert_eq!(found.places, places, "{hints:?}");
        assert_eq!(found.unresolved, unresolved, "{hints:?}");
    }
}

#[test]
fn who_may_be_two_nodes_is_told_that_they_cannot_outvote_each_other() {
    let warned = |endpoint: &str, min: usize, max: usize, options: &[(&str, &str)]| {
        let parameters = RendezvousParameters::new(RALLYPOINT_BACKEND, endpoint, "job", min, max);
        let parameters = options
            .iter()
            .fold(parameters.unwrap(), |parameters, (name, value)| parameters.with(*name, *value));
        let config = RendezvousConfig::from_parameters(parameters, &host(), None).unwrap();
        let is_it = |text: &String| text.starts_with("two nodes cannot outvote each other");
        config.warnings.into_iter().find(is_it)
    };
    for (endpoint, min, max, options, words) in [
        ("alias,other", 2, 2, &[][..], Some("if the host that serves is lost")),
        ("alias,other,b", 1, 2, &[], Some("if the host that serves is lost")),
        ("alias,other,b", 2, 4, &[], Some("while the group has only two nodes")),
        ("alias,other,b", 1, 4, &[("node_unit", "2")], Some("while the group has only two nodes")),
        ("alias,other,b", 1, 4, &[("sizes", "1/4")], None),
        ("alias,other,b", 3, 3, &[], None),
        ("alias,other,b", 3, 4, &[], None),
        ("alias,other,b", 2, 4, &[("succession", "off")], None),
        ("alias", 1, 2, &[], None),
    ] {
        let found = warned(endpoint, min, max, options);
        let is_right = match words {
            Some(words) => found.as_ref().is_some_and(|found| found.contains(words)),
            None => found.is_none(),
        };
        assert!(is_right, "{endpoint} {min}:{max} {options:?}: {found:?}");
    }
}
