//! The whole way, from a command line to a plan.

use super::devices::Count;
use super::*;
use crate::embedded::tests as hosts;
use crate::launch::job::Environment;

mod arguments;
mod engine;
mod options;
mod refusals;
mod rendezvous;

/// A host with four processors and no GPU; see [`hosts::host`] for its names and addresses.
pub(super) fn host(environment: &[(&str, &str)]) -> HostFacts {
    let environment: Environment =
        environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    HostFacts {
        environment,
        here: hosts::host(),
        processors: 4,
        devices: Count { devices: 0, source: "/dev/nvidia*" },
        python: "python3".to_owned(),
        fresh_id: "5eed".to_owned(),
    }
}

/// What `rallypoint run` makes of these arguments on this host.
fn errand_on(host: &HostFacts, arguments: &[&str]) -> Result<RunAction, RunError> {
    let line = std::iter::once("run").chain(arguments.iter().copied());
    let matches = command(&host.environment)
        .try_get_matches_from(line)
        .map_err(|error| explain(error, &host.environment))?;
    prepare(&matches, host)
}

pub(super) fn plan_on(host: &HostFacts, arguments: &[&str]) -> Result<JobSpec, RunError> {
    match errand_on(host, arguments)? {
        RunAction::Launch(plan) => Ok(*plan),
        RunAction::Show(text) => panic!("{text}"),
    }
}

fn plan(arguments: &[&str]) -> JobSpec {
    plan_on(&host(&[]), arguments).unwrap()
}

fn refusal(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    plan_on(&host(environment), arguments).unwrap_err().to_string()
}
