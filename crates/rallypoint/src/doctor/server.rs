//! The port of the endpoint, and the program that answers there.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;

use super::finding::Finding;
use super::foreign::{Foreign, identify, listen};
use super::obstacle::Obstacle;
use super::place::{EndpointPlace, listed};
use super::way::connect;
use crate::client::{Client, ClientError, ClientOptions};
use crate::config::{ConnectionOptions, Endpoint};
use crate::embedded::{RUN_NAME, RendezvousConfig, ServerPlacement};

const CHECK: &str = "server";

/// How long a server may take to answer a request.
const REQUEST: Duration = Duration::from_millis(1200);

/// What answers at an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Rallypoint's server, of a run if a launcher embeds it.
    Rallypoint { run: Option<String> },
    /// An etcd of this version.
    Etcd { version: String },
    /// A server that refuses the user, the password or the shared secret, with this error.
    NotAuthenticated(String),
    /// A server whose certificate is not accepted, or that does not accept ours, with this error.
    NotTrusted(String),
    /// A program that is no etcd.
    Foreign(Foreign),
    /// Nothing: the connection is refused.
    Refused,
    /// Nothing: the connection is refused, and this host can listen there.
    Free,
    /// Nothing: the connection is refused, and this host cannot listen there, with this error.
    NotBindable(String),
    /// Nothing within the time limit.
    Silent,
    /// No host: the network says so.
    Unreachable(String),
    /// The name does not resolve.
    NoName,
    /// Another error of the client.
    Failed(String),
}

/// What the job expects at the endpoint.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    /// Whether a node of the job brings the server along.
    pub(super) is_embedded: bool,
    /// The run, if it has a name.
    pub(super) run_id: Option<String>,
}

/// Finds out what answers at the endpoint, within two and a half seconds. The client is for further questions, if a
/// server answers.
pub(super) async fn measure(
    endpoint: &Endpoint,
    place: &EndpointPlace,
    config: &RendezvousConfig,
) -> (Answer, Option<(Client, SocketAddr)>) {
    if place.addresses.is_empty() && !place.is_here() {
        return (Answer::NoName, None);
    }
    let reached = match connect(&place.addresses, endpoint.port).await {
        Ok(reached) => reached,
        Err(error) => return (nothing(&error, own_address(endpoint, place, config)).await, None),
    };
    match ask(endpoint, config).await {
        Ok((answer, client)) => (answer, Some((client, reached))),
        Err(error) => (refusal(&error, config, reached).await, None),
    }
}

/// The address on which a server of this host would listen for this endpoint.
fn own_address(
    endpoint: &Endpoint,
    place: &EndpointPlace,
    config: &RendezvousConfig,
) -> Option<SocketAddr> {
    match config.server {
        ServerPlacement::Here { address, .. } => Some(address),
        ServerPlacement::Order { .. } if place.is_here() => {
            let mut own = config.own_places.places.iter().map(|(_, address)| *address);
            own.find(|address| address.port() == endpoint.port)
        }
        _ => None,
    }
}

/// Nothing answers: whether this host could.
async fn nothing(error: &io::Error, own: Option<SocketAddr>) -> Answer {
    match (Obstacle::of_connection(error), own) {
        (Obstacle::Refused, Some(address)) => match TcpListener::bind(address).await {
            Ok(_) => Answer::Free,
            Err(error) => Answer::NotBindable(format!("{address}: {error}")),
        },
        (Obstacle::Refused, _) => Answer::Refused,
        (Obstacle::Silent, _) if error.kind() == io::ErrorKind::TimedOut => Answer::Silent,
        _ => Answer::Unreachable(error.to_string()),
    }
}

/// Asks the server which one it is.
async fn ask(
    endpoint: &Endpoint,
    config: &RendezvousConfig,
) -> Result<(Answer, Client), ClientError> {
    let connection = ConnectionOptions::of_backend(&config.parameters)?;
    let usual = connection.map_or_else(|| ClientOptions::new([""]), |found| found.client_options());
    let options = ClientOptions { endpoints: vec![endpoint.url()], timeout: REQUEST, ..usual };
    let client = Client::connect(options).await?;
    let members = client.members().await?;
    let answer = match members.iter().find(|member| member.is_ours()) {
        Some(own) => Answer::Rallypoint { run: own.name.strip_prefix(RUN_NAME).map(str::to_owned) },
        None => Answer::Etcd { version: client.status().await?.version },
    };
    Ok((answer, client))
}

/// The program that accepts connections and does not answer as a server should.
async fn refusal(error: &ClientError, config: &RendezvousConfig, address: SocketAddr) -> Answer {
    if let Some(secret) = config.secret_refused(error) {
        return Answer::NotAuthenticated(secret.to_string());
    }
    if error.is_unauthenticated() {
        return Answer::NotAuthenticated(error.to_string());
    }
    if error.is_tls_error() || matches!(error, ClientError::File { .. } | ClientError::Tls { .. }) {
        return Answer::NotTrusted(error.to_string());
    }
    if !error.is_transient() {
        return Answer::Failed(error.to_string());
    }
    Answer::Foreign(identify(&listen(address).await))
}

/// Whether the job finds its server at the endpoint.
pub(super) fn judge(
    endpoint: &Endpoint,
    place: &EndpointPlace,
    expected: &Expected,
    answer: &Answer,
) -> Finding {
    let at = match place.addresses().is_some() {
        true => format!("{endpoint} is {}.", listed(&place.addresses)),
        false => format!("{endpoint}:"),
    };
    let identity = place.identity();
    let fail =
        |message: String, remedy: &str| Finding::fail(CHECK, format!("{at} {message}"), remedy);
    let ok = |message: String| Finding::ok(CHECK, format!("{at} {message}"));
    let another_port = "Give --rdzv-endpoint another port, the same on every node";
    match answer {
        Answer::Rallypoint { run: None } => ok("Rallypoint's server answers.".to_owned()),
        Answer::Rallypoint { run: Some(run) } => match &expected.run_id {
            Some(own) if own != run => fail(
                format!("The server there is that of run {run:?}, and ends with it."),
                "Give this run another port in --rdzv-endpoint, or start a server for both (rallypoint serve)",
            ),
            _ => ok(format!("The server of run {run:?} answers, so a launcher of the run is up.")),
        },
        Answer::Etcd { version } => ok(format!("An etcd answers, version {version}.")),
        Answer::NotAuthenticated(error) => fail(
            format!("{error}."),
            "Give all nodes the same secret, by --secret-file or RALLYPOINT_SECRET; to an etcd, user and password in \
             --rdzv-conf",
        ),
        Answer::NotTrusted(error) => {
            fail(format!("{error}."), "Check --cacert, --cert and --key, and the date of this host")
        }
        Answer::Foreign(Foreign::Tls) => fail(
            "A program that speaks TLS answers, and this node has no certificate authority to trust.".to_owned(),
            "Give --cacert, as on the other nodes",
        ),
        Answer::Foreign(Foreign::Mute) => fail(
            "A program accepts connections there and says nothing: it hangs, or is no etcd.".to_owned(),
            another_port,
        ),
        Answer::Foreign(Foreign::Program(program)) => {
            fail(format!("The program that answers is no etcd, but {program}."), another_port)
        }
        Answer::Free => ok(format!(
            "Nothing listens there yet. {identity}, and can listen there: the first launcher runs the server."
        )),
        Answer::NotBindable(error) => fail(
            format!("Nothing listens there, and this host cannot either: {error}."),
            "Name an address of this host, or another port, in --rdzv-endpoint",
        ),
        Answer::Refused if expected.is_embedded => Finding::warn(
            CHECK,
            format!("{at} Refused: nothing listens there. {identity}."),
            "Start the launcher on that host, for which a launcher here would wait; or correct --rdzv-endpoint",
        ),
        Answer::Refused => fail(
            format!("Refused: nothing listens there. {identity}."),
            "Start the server there, or correct --rdzv-endpoint",
        ),
        Answer::Silent => fail(
            format!(
                "{}: a host that is up refuses a port on which nothing listens. {identity}.",
                Obstacle::DROPPED
            ),
            "Let connections to that port pass; or correct --rdzv-endpoint, if that host is down",
        ),
        Answer::Unreachable(error) => fail(
            format!("{error}: no host with that address answers, or no route leads there. {identity}."),
            "Start that host, or correct --rdzv-endpoint or the routes of this host",
        ),
        Answer::NoName => Finding::skip(CHECK, format!("{endpoint}: not checked, since its name does not resolve.")),
        Answer::Failed(error) => fail(format!("{error}."), "Is the endpoint (--rdzv-endpoint) right?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;
    use crate::embedded::tests::host;

    fn judged(name: &str, is_embedded: bool, answer: Answer) -> (Verdict, String) {
        let endpoint = Endpoint::parse(name, 29400).unwrap();
        let place = EndpointPlace::look(&endpoint.host, &host());
        let expected = Expected { is_embedded, run_id: Some("job".to_owned()) };
        let found = judge(&endpoint, &place, &expected, &answer);
        assert_eq!(found.remedy.is_some(), found.verdict > Verdict::Skip, "{}", found.message);
        (found.verdict, found.message)
    }

    #[test]
    fn whatever_answers_is_named_with_what_it_means() {
        let run = |name: &str| Answer::Rallypoint { run: Some(name.to_owned()) };
        let program = Answer::Foreign(Foreign::Program("a Redis server".to_owned()));
        let text = || "words".to_owned();
        let not_it = "This host is not it: its addresses are 10.0.0.1, fd00::1.";
        let refused = format!("other:29400 is 10.0.0.2. Refused: nothing listens there. {not_it}");
        for (name, is_embedded, answer, verdict, words) in [
            ("other", true, Answer::Refused, Verdict::Warn, refused.as_str()),
            ("other", false, Answer::Refused, Verdict::Fail, "Refused"),
            ("10.0.0.2", true, Answer::Refused, Verdict::Warn, "10.0.0.2:29400: Refused"),
            (
                "other",
                true,
                Answer::Silent,
                Verdict::Fail,
                "No answer, so a firewall rather than a dead process",
            ),
            (
                "other",
                true,
                Answer::Unreachable(text()),
                Verdict::Fail,
                "words: no host with that address",
            ),
            ("other", true, Answer::NoName, Verdict::Skip, "does not resolve"),
            ("alias", true, Answer::Free, Verdict::Ok, "This host is it, and can listen there"),
            ("alias", true, Answer::NotBindable(text()), Verdict::Fail, "cannot either: words"),
            ("other", true, run("job"), Verdict::Ok, "The server of run \"job\" answers"),
            (
                "other",
                true,
                run("another"),
                Verdict::Fail,
                "that of run \"another\", and ends with it",
            ),
            (
                "other",
                true,
                Answer::Rallypoint { run: None },
                Verdict::Ok,
                "Rallypoint's server answers",
            ),
            (
                "other",
                true,
                Answer::Etcd { version: "3.5.9".to_owned() },
                Verdict::Ok,
                "etcd answers, version 3.5.9",
            ),
            ("other", true, program, Verdict::Fail, "is no etcd, but a Redis server"),
            ("other", true, Answer::Foreign(Foreign::Mute), Verdict::Fail, "says nothing"),
            ("other", true, Answer::Foreign(Foreign::Tls), Verdict::Fail, "speaks TLS"),
            ("other", true, Answer::NotAuthenticated(text()), Verdict::Fail, "words"),
            ("other", true, Answer::NotTrusted(text()), Verdict::Fail, "words"),
            ("other", true, Answer::Failed(text()), Verdict::Fail, "words"),
        ] {
            let (found, message) = judged(name, is_embedded, answer);
            assert_eq!(found, verdict, "{message}");
            assert!(message.contains(words), "{message}");
        }
    }
}
