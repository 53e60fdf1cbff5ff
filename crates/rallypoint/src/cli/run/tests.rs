//! The whole way, from a command line to a plan.

use std::net::IpAddr;

use super::devices::Count;
use super::taken::Environment;
use super::*;

mod arguments;
mod meeting;
mod options;
mod refusals;

/// A host that is `node1.cluster`, has 10.0.0.1 and fd00::1, four processors and no GPU, and knows some
/// names.
pub(super) fn host(environment: &[(&str, &str)]) -> Host {
    let environment: Environment =
        environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let addresses = ["127.0.0.1", "10.0.0.1", "fd00::1"].map(|text| text.parse().unwrap());
    Host {
        environment,
        name: "node1.cluster".to_owned(),
        addresses: addresses.to_vec(),
        processors: 4,
        devices: Count { devices: 0, source: "/dev/nvidia*" },
        resolve,
        fresh_id: "5eed".to_owned(),
    }
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

/// What `rallypoint run` makes of these arguments on this host.
fn errand_on(host: &Host, arguments: &[&str]) -> Result<Errand, RunError> {
    let line = std::iter::once("run").chain(arguments.iter().copied());
    let matches = command(&host.environment)
        .try_get_matches_from(line)
        .map_err(|error| explain(error, &host.environment))?;
    prepare(&matches, host, &RendezvousHandlerRegistry::with_builtin())
}

pub(super) fn plan_on(host: &Host, arguments: &[&str]) -> Result<Plan, RunError> {
    match errand_on(host, arguments)? {
        Errand::Launch(plan) => Ok(*plan),
        Errand::Show(text) => panic!("{text}"),
    }
}

fn plan(arguments: &[&str]) -> Plan {
    plan_on(&host(&[]), arguments).unwrap()
}

fn refusal(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    plan_on(&host(environment), arguments).unwrap_err().to_string()
}
