//! Every option: what it is unless given, what it may be, and what is said of anything else.

use std::time::Duration;

use rallypoint_core::rendezvous::ranks::RankPolicy;

use super::*;
use crate::client::Pem;

fn parameters(endpoint: &str, options: &[(&str, &str)]) -> RendezvousParameters {
    let parameters = RendezvousParameters::new("etcd", endpoint, "job", 1, 2).unwrap();
    options.iter().fold(parameters, |parameters, (key, value)| parameters.with(*key, *value))
}

fn etcd(options: &[(&str, &str)]) -> Result<EtcdOptions, ConfigError> {
    EtcdOptions::from_parameters(&parameters("", options))
}

fn dynamic(options: &[(&str, &str)]) -> Result<DynamicOptions, ConfigError> {
    DynamicOptions::from_parameters(&parameters("", options))
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn etcd_has_the_defaults_of_pytorch() {
    let options = etcd(&[]).unwrap();
    assert_eq!(options.handler.timeout, 600 * SECOND);
    assert_eq!(options.handler.last_call, 30 * SECOND);
    assert_eq!(options.handler.prefix, "/torchelastic/p2p");
    assert_eq!(options.handler.lease_ttl, 10 * SECOND);
    assert_eq!(options.handler.rank_policy, RankPolicy::Stable);
    assert_eq!((options.handler.node_rank, options.handler.local_workers), (None, 1));
    assert_eq!(options.handler.topology, None);
    let client = options.client_options();
    assert_eq!(client.endpoints, ["localhost:2379"]);
    assert!(client.tls.is_none() && client.credentials.is_none());
    assert_eq!(client.timeout, 10 * SECOND);
    client.validate().unwrap();
}

#[test]
fn etcd_takes_what_it_is_given() {
    let options = etcd(&[
        ("timeout", "900"),
        ("last_call_timeout", "0"),
        ("etcd_prefix", "custom/runs/"),
        ("lease_ttl", "2"),
        ("rank_policy", "Topology"),
        ("node_rank", "0"),
        ("topology", "rack2/node1"),
        ("local_world_size", "8"),
        ("use_agent_store", "no"),
        ("read_timeout", "2.5"),
    ])
    .unwrap();
    assert_eq!(options.handler.timeout, 900 * SECOND);
    assert_eq!(options.handler.last_call, Duration::ZERO);
    assert_eq!(options.handler.prefix, "/custom/runs");
    assert_eq!(options.handler.lease_ttl, 2 * SECOND);
    assert_eq!(options.handler.rank_policy, RankPolicy::Topology);
    assert_eq!((options.handler.node_rank, options.handler.local_workers), (Some(0), 8));
    assert_eq!(options.handler.topology.as_deref(), Some("rack2/node1"));
    assert_eq!(options.client_options().timeout, Duration::from_millis(2500));
}

#[test]
fn certificates_go_by_two_sets_of_names() {
    for [ca, cert, key] in [["cacert", "cert", "key"], ["ca_cert", "ssl_cert", "ssl_cert_key"]] {
        let files = [(ca, "/ca"), (cert, "/cert"), (key, "/key"), ("protocol", " HTTPS ")];
        let tls = etcd(&files).unwrap().client_options().tls.unwrap();
        let path = |pem: Pem| match pem {
            Pem::File(path) => path.display().to_string(),
            Pem::Bytes(_) => String::new(),
        };
        let (certificate, private) = tls.identity.unwrap();
        assert_eq!([tls.ca, certificate, private].map(path), ["/ca", "/cert", "/key"]);
    }
    // Both names are fine if they agree.
    let twice = [("cacert", "/ca"), ("ca_cert", "/ca"), ("protocol", "https")];
    assert!(etcd(&twice).unwrap().client_options().tls.is_some());
}

#[test]
fn the_endpoint_may_name_the_protocol() {
    let options = parameters("https://a:1,b:2", &[("cacert", "/ca")]);
    let client = EtcdOptions::from_parameters(&options).unwrap().client_options();
    assert!(client.tls.is_some());
    assert_eq!(client.endpoints, ["a:1", "b:2"]);
    client.validate().unwrap();
    for (endpoint, options, words) in [
        (
            "http://a:1",
            &[("protocol", "https"), ("cacert", "/ca")][..],
            "protocol https and endpoint \"http://a:1\" contradict each other: speak to all",
        ),
        (
            "http://a:1,https://b:1",
            &[],
            "protocol http and endpoint \"https://b:1\" contradict each other: speak to all",
        ),
        ("a:x", &[], "endpoint \"a:x\": the port must be a number"),
    ] {
        let error = EtcdOptions::from_parameters(&parameters(endpoint, options)).unwrap_err();
        assert!(error.to_string().starts_with(words), "{error}");
    }
}

#[test]
fn wrong_options_are_named_with_what_would_be_right() {
    const SECONDS: &str = "give seconds from 0.001 to 31536000, such as 30 or 0.5";
    let mut cases: Vec<(Vec<(&str, &str)>, String)> = Vec::new();
    for value in ["0", "-1", "x", "", "inf", "nan", "1e9", "1e-9"] {
        cases.push((vec![("timeout", value)], format!("timeout {value:?}: {SECONDS}")));
        cases.push((vec![("read_timeout", value)], format!("read_timeout {value:?}: {SECONDS}")));
    }
    for (key, value, words) in [
        ("last_call_timeout", "-1", "give seconds from 0 to 31536000, such as 30 or 0.5"),
        ("etcd_prefix", "", "give a value, or leave it out"),
        ("lease_ttl", "1", "give a whole number from 2 to 31536000"),
        ("lease_ttl", "2.5", "give a whole number (invalid digit found in string)"),
        ("rank_policy", "best", "give stable, hint, topology or arrival"),
        ("node_rank", "-1", "give a whole number from 0 to 4294967295"),
        ("topology", "", "give a value, or leave it out"),
        ("local_world_size", "0", "give a whole number from 1 to 4294967295"),
        ("use_agent_store", "maybe", "give true or false"),
        ("hang_after", "0", "give seconds from 0.001 to 31536000, such as 30 or 0.5; the limit"),
        ("progress", "moon", "give auto, output, beat or file:PATH"),
        ("http", "9480", "give an IP address and a port, such as 127.0.0.1:9480"),
        ("planned", "0", "give a whole number from 1 to"),
        ("planned", "16", "give a number that a group may have: from "),
        ("sizes", "2/x", "give numbers of nodes, such as 2/4/8"),
        ("sizes", "1/16", "16 is not within "),
        ("node_unit", "16", "no multiple of 16 is within "),
        ("scale_up_after", "-1", "give seconds from 0 to 31536000, such as 30 or 0.5"),
        ("protocol", "grpc", "give http or https"),
        ("user", "", "give a value, or leave it out"),
    ] {
        cases.push((vec![(key, value)], format!("{key} {value:?}: {words}")));
    }
    let https = ("protocol", "https");
    for (options, words) in [
        (vec![https], "cacert is missing: with protocol https give the file of the CA certificate"),
        (vec![("cacert", "/a")], "cacert and protocol http contradict each other: certificates"),
        (vec![("ssl_cert", "/a")], "ssl_cert and protocol http contradict each other"),
        (
            vec![https, ("cacert", "/a"), ("ca_cert", "/b")],
            "cacert \"/a\" and ca_cert \"/b\" contradict each other: they are names of one option",
        ),
        (
            vec![https, ("cacert", "/a"), ("ssl_cert", "/c")],
            "key is missing: give the file of the private key that belongs to ssl_cert",
        ),
        (
            vec![https, ("cacert", "/a"), ("key", "/k")],
            "cert is missing: give the file of the certificate that belongs to key",
        ),
        (vec![("user", "me")], "password is missing: give the password of user \"me\""),
        (vec![("password", "hidden")], "user is missing: give the user whose password it is"),
    ] {
        cases.push((options, words.to_owned()));
    }
    for (options, words) in cases {
        let error = etcd(&options).unwrap_err().to_string();
        assert!(error.starts_with(&words), "{error:?} should begin with {words:?}");
        assert!(!error.contains("hidden"));
    }
}

#[test]
fn an_unknown_option_is_refused_with_a_guess() {
    let error = etcd(&[("last_call_timout", "5")]).unwrap_err();
    assert!(matches!(error, ConfigError::UnknownOption { .. }));
    let words = "unknown option \"last_call_timout\" of backend \"etcd\": did you mean \
                 last_call_timeout? It knows: timeout, join_timeout, server_timeout, last_call_timeout, planned, sizes, \
                 node_unit, scale_up_after, etcd_prefix, lease_ttl, rank_policy, node_rank, topology, local_world_size, use_agent_store, store_ports, reopen, \
                 hang_after, progress, http, protocol, cacert, ca_cert, cert, ssl_cert, key, ssl_cert_key, read_timeout, user, password, \
                 password_file, is_host";
    assert_eq!(error.to_string(), words);
    assert!(etcd(&[("is_host", "true")]).is_ok(), "it does nothing, and is no error");
    let error = etcd(&[("colour", "red")]).unwrap_err().to_string();
    assert!(error.starts_with("unknown option \"colour\" of backend \"etcd\". It knows: timeout,"));
    let error = dynamic(&[("heartbeat", "5")]).unwrap_err().to_string();
    assert!(error.contains("did you mean heartbeat_timeout?"), "{error}");
    let error = dynamic(&[("lease_ttl", "5")]).unwrap_err().to_string();
    assert!(error.starts_with("unknown option \"lease_ttl\""), "{error}");
    let connection = |options| ConnectionOptions::from_parameters(&parameters("", options));
    assert_eq!(connection(&[("read_timeout", "5")]).unwrap().timeout, 5 * SECOND);
    let error = connection(&[("timeout", "5")]).unwrap_err().to_string();
    assert!(error.starts_with("unknown option \"timeout\""), "{error}");
}

#[test]
fn dynamic_has_the_defaults_of_pytorch_but_for_a_pause_between_conflicts() {
    let options = dynamic(&[]).unwrap();
    assert_eq!(options.settings.join, 600 * SECOND);
    assert_eq!(options.settings.last_call, 30 * SECOND);
    assert_eq!(options.settings.close, 30 * SECOND);
    assert_eq!(options.settings.heartbeat, 5 * SECOND);
    assert_eq!(options.settings.keep_alive_interval, 5 * SECOND);
    assert_eq!(options.settings.keep_alive_max_attempt, 3);
    assert_eq!(options.settings.cas_backoff_max, Duration::from_millis(100));
    assert_eq!(options.client_options().timeout, 60 * SECOND);
}

#[test]
fn etcd_understands_those_who_come_from_c10d() {
    let both = etcd(&[("timeout", "900"), ("join_timeout", "5")]).unwrap();
    assert_eq!(both.handler.timeout, 5 * SECOND);
    let error = etcd(&[("join_timeout", "0")]).unwrap_err().to_string();
    assert!(error.starts_with("join_timeout \"0\": give seconds from 0.001"), "{error}");
}

#[test]
fn dynamic_takes_what_it_is_given() {
    assert_eq!(dynamic(&[("timeout", "900")]).unwrap().settings.join, 900 * SECOND);
    let both = dynamic(&[("timeout", "900"), ("join_timeout", "5")]).unwrap();
    assert_eq!(both.settings.join, 5 * SECOND);
    let options = dynamic(&[("cas_backoff_max_seconds", "0.25"), ("keep_alive_max_attempt", "2")]);
    let options = options.unwrap();
    assert_eq!(options.settings.cas_backoff_max, Duration::from_millis(250));
    assert_eq!(options.settings.keep_alive_max_attempt, 2);
    for key in [
        "timeout",
        "join_timeout",
        "last_call_timeout",
        "close_timeout",
        "heartbeat_timeout",
        "keep_alive_interval",
        "keep_alive_max_attempt",
        "read_timeout",
    ] {
        let error = dynamic(&[(key, "0")]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{key} \"0\": give ")), "{error}");
    }
    let error = dynamic(&[("cas_backoff_max_seconds", "inf")]).unwrap_err().to_string();
    assert!(error.starts_with("cas_backoff_max_seconds \"inf\": give seconds from 0"), "{error}");
}

#[test]
fn a_password_may_be_in_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let read = |text: &str| {
        std::fs::write(path, text).unwrap();
        let options = etcd(&[("user", "me"), ("password_file", path)]);
        let credentials = options.map(|options| options.connection.credentials.unwrap());
        credentials.map(|found| found.password).map_err(|error| error.to_string())
    };
    for text in ["hidden", "hidden\n", "hidden\r\n"] {
        assert_eq!(read(text), Ok("hidden".to_owned()));
    }
    assert_eq!(read("two\n\n"), Ok("two\n".to_owned()));
    assert!(read("\n").unwrap_err().ends_with("it is empty; write the password into it"));
    for (options, words) in [
        (vec![("password_file", path)], "password_file"),
        (
            vec![("user", "me"), ("password", "x"), ("password_file", path)],
            "password and password_file contradict each other",
        ),
        (
            vec![("user", "me"), ("password_file", "/no/such")],
            "password_file \"/no/such\": it cannot",
        ),
    ] {
        let error = etcd(&options).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn a_password_that_was_found_belongs_to_a_user_without_one() {
    let added = |given: &[&str], found: Option<&str>| {
        let mut config: BTreeMap<String, String> =
            given.iter().map(|key| ((*key).to_owned(), "given".to_owned())).collect();
        add_password(&mut config, found.map(str::to_owned));
        config.remove("password")
    };
    assert_eq!(added(&["user"], Some("found")), Some("found".to_owned()));
    assert_eq!(added(&["user", "password"], Some("found")), Some("given".to_owned()));
    assert_eq!(added(&["user", "password_file"], Some("found")), None);
    assert_eq!(added(&[], Some("found")), None);
    assert_eq!(added(&["user"], Some("")), None);
}

#[test]
fn secrets_are_not_printed() {
    let options = [("user", "me"), ("password", "hidden")];
    let printed = format!("{:?} {:?}", etcd(&options).unwrap(), dynamic(&options).unwrap());
    assert!(printed.contains("me") && !printed.contains("hidden"), "{printed}");
    let client = etcd(&options).unwrap().client_options();
    assert_eq!(client.credentials.unwrap().password, "hidden");
}

#[test]
fn every_default_is_a_value_that_the_option_takes() {
    for backend in [Backend::Rallypoint, Backend::Etcd, Backend::Dynamic, Backend::Client] {
        let name = if backend == Backend::Rallypoint { backend } else { Backend::Etcd }.name();
        for row in rows(backend).filter(|row| row.default.is_some()) {
            let default = row.default.unwrap_or_default();
            let given =
                RendezvousParameters::new(name, "", "job", 1, 2).unwrap().with(row.name, default);
            let read = match backend {
                Backend::Rallypoint | Backend::Etcd => {
                    EtcdOptions::from_parameters(&given).map(drop)
                }
                Backend::Dynamic => DynamicOptions::from_parameters(&given).map(drop),
                Backend::Client => ConnectionOptions::from_parameters(&given).map(drop),
            };
            assert_eq!(read, Ok(()), "{}", row.name);
        }
        let names: Vec<&str> =
            rows(backend).flat_map(|row| row.aliases.iter().chain([&row.name])).copied().collect();
        let unique: std::collections::BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(unique.len(), names.len(), "a name is in the table of {backend:?} twice");
    }
}

#[test]
fn the_handler_has_the_defaults_of_the_table() {
    let read = etcd(&[]).unwrap().handler;
    assert_eq!(format!("{:?}", HandlerOptions::new("job", 1, 2)), format!("{read:?}"));
    let core = rallypoint_core::rendezvous::dynamic::DynamicSettings::new(
        dynamic(&[]).unwrap().settings.limits,
    );
    assert_eq!(format!("{:?}", dynamic(&[]).unwrap().settings), format!("{core:?}"));
}

/// Compares the part of a file between two marks with `expected`, or writes it with `UPDATE_DOCS=1`.
fn check_file(path: &str, first: &str, last: &str, expected: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(first).unwrap();
    let (found, after) = rest.split_once(last).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{first}{expected}{last}{after}")).unwrap();
    } else {
        let path = path.display();
        assert_eq!(
            found, expected,
            "{path} is not what the table says; run this test with UPDATE_DOCS=1"
        );
    }
}

#[test]
fn the_reference_of_the_book_comes_from_the_table() {
    for backend in [Backend::Rallypoint, Backend::Dynamic] {
        let name = backend.name();
        let first =
            format!("<!-- begin options of {name}: written from the table of options -->\n\n");
        let last = format!("\n<!-- end options of {name} -->");
        check_file("docs/reference/options.md", &first, &last, &render::markdown(backend));
    }
}

#[test]
fn the_docstring_of_python_comes_from_the_table() {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../py/src/rendezvous/options.txt");
    let expected = render::docstring(Backend::Rallypoint);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found,
        expected,
        "{} differs from the table; run this test with UPDATE_DOCS=1",
        path.display()
    );
}

#[test]
fn the_help_lists_every_option_of_the_launcher_within_100_columns() {
    let help = help();
    for row in rows(Backend::Rallypoint) {
        let is_listed = help.contains(&format!("\n  {} ", row.name));
        assert_eq!(is_listed, !is_own_of_launcher(row.name), "{help}");
    }
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
}
