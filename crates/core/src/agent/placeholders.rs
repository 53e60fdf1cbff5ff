//! Placeholders in the arguments of a worker's program: `{rank}`, `{master_addr}`, `{port0}` and so on.
//!
//! A placeholder is a name of small letters, digits and underscores in braces, and stands for the value of an
//! [environment variable](super::environment). Two pairs of braces around a name leave it as it is: `{{rank}}` becomes
//! `{rank}`. Other braces, as in JSON, have no meaning.

use std::collections::BTreeMap;

use thiserror::Error;

use super::environment::port_variable;

/// The placeholders, and the variables that they stand for. `{port0}` and so on come in addition.
const PLACEHOLDERS: [(&str, &str); 13] = [
    ("rank", "RANK"),
    ("local_rank", "LOCAL_RANK"),
    ("node_rank", "GROUP_RANK"),
    ("world_size", "WORLD_SIZE"),
    ("local_world_size", "LOCAL_WORLD_SIZE"),
    ("nnodes", "GROUP_WORLD_SIZE"),
    ("master_addr", "MASTER_ADDR"),
    ("master_port", "MASTER_PORT"),
    ("role", "ROLE_NAME"),
    ("run_id", "TORCHELASTIC_RUN_ID"),
    ("restart_count", "TORCHELASTIC_RESTART_COUNT"),
    ("node_id", "RALLYPOINT_NODE_ID"),
    ("round", "RALLYPOINT_ROUND"),
];

/// An argument with a placeholder that stands for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlaceholderError {
    /// No placeholder has this name.
    #[error(
        "{{{name}}} stands for nothing; there are {}, and {{port0}} and so on with --ports; {{{{{name}}}}} is the text \
         itself",
        names()
    )]
    Unknown {
        /// The name in the braces.
        name: String,
    },
    /// The job has fewer ports.
    #[error("{{{name}}} is no port of this job, which has {ports}; give a larger --ports")]
    NoPort {
        /// The name in the braces.
        name: String,
        /// The number of ports of the job.
        ports: usize,
    },
}

/// Checks the placeholders of an argument. `ports` is the number of ports of the job.
///
/// # Errors
/// [`PlaceholderError`] for the first placeholder without a value.
pub fn check(argument: &str, ports: usize) -> Result<(), PlaceholderError> {
    for part in parts(argument) {
        if let Part::Placeholder(name) = part {
            variable(name, ports)?;
        }
    }
    Ok(())
}

/// The argument with the values of `variables` in place of its placeholders. A placeholder without a value stays.
///
/// ```
/// use std::collections::BTreeMap;
/// use rallypoint_core::agent::placeholders::expand;
///
/// let variables = BTreeMap::from([("RANK".to_owned(), "3".to_owned())]);
/// assert_eq!(expand(r#"{rank} {{rank}} {"a": 1}"#, &variables), r#"3 {rank} {"a": 1}"#);
/// ```
pub fn expand(argument: &str, variables: &BTreeMap<String, String>) -> String {
    let value = |part| match part {
        Part::Text(text) => text.to_owned(),
        Part::Escaped(name) => format!("{{{name}}}"),
        Part::Placeholder(name) => {
            let found = variable(name, usize::MAX).ok().and_then(|name| variables.get(&name));
            found.cloned().unwrap_or_else(|| format!("{{{name}}}"))
        }
    };
    parts(argument).into_iter().map(value).collect()
}

/// A part of an argument.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    Escaped(&'a str),
    Placeholder(&'a str),
}

fn parts(mut rest: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        parts.push(Part::Text(before));
        let escaped = from.strip_prefix("{{").and_then(|inner| named(inner, "}}"));
        let (part, after) = match (escaped, named(&from[1..], "}")) {
            (Some((name, after)), _) => (Part::Escaped(name), after),
            (None, Some((name, after))) => (Part::Placeholder(name), after),
            (None, None) => (Part::Text("{"), &from[1..]),
        };
        parts.push(part);
        rest = after;
    }
    parts.push(Part::Text(rest));
    parts
}

/// The name that `text` begins with, and what follows the end of the name.
fn named<'a>(text: &'a str, end: &str) -> Option<(&'a str, &'a str)> {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let (name, after) = text.split_at(text.find(|c| !is_letter(c))?);
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase());
    is_name.then_some((name, after.strip_prefix(end)?))
}

/// The variable of a placeholder.
fn variable(name: &str, ports: usize) -> Result<String, PlaceholderError> {
    if let Some(number) = name.strip_prefix("port").and_then(|number| number.parse().ok()) {
        let none = || PlaceholderError::NoPort { name: name.to_owned(), ports };
        return (number < ports).then(|| port_variable(number)).ok_or_else(none);
    }
    let known = PLACEHOLDERS.iter().find(|(known, _)| *known == name);
    let unknown = || PlaceholderError::Unknown { name: name.to_owned() };
    known.map(|(_, variable)| (*variable).to_owned()).ok_or_else(unknown)
}

fn names() -> String {
    PLACEHOLDERS.map(|(name, _)| format!("{{{name}}}")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> BTreeMap<String, String> {
        let pairs = [
            ("RANK", "5"),
            ("GROUP_RANK", "1"),
            ("MASTER_ADDR", "node7"),
            ("RALLYPOINT_PORT_0", "4001"),
            ("RALLYPOINT_PORT_12", "4012"),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn values_take_the_place_of_their_names() {
        for (argument, expected) in [
            ("{rank}", "5"),
            ("--addr={master_addr}:{port0}", "--addr=node7:4001"),
            ("{rank}{node_rank}{port12}", "514012"),
            ("{{rank}}", "{rank}"),
            ("{{rank}", "{5"),
            ("{rank}}", "5}"),
            (r#"{"rank": {rank}}"#, r#"{"rank": 5}"#),
            ("{}{ rank }{Rank}{0}{", "{}{ rank }{Rank}{0}{"),
            ("{rank", "{rank"),
            ("naïve {rank} ü", "naïve 5 ü"),
            ("", ""),
        ] {
            assert_eq!(expand(argument, &variables()), expected, "{argument}");
        }
    }

    #[test]
    fn a_name_without_a_value_is_named() {
        for (argument, words) in [
            ("{rank} {rnak}", "{rnak} stands for nothing; there are {rank}, {local_rank}, "),
            ("{port}", "{port} stands for nothing"),
            ("{port2}", "{port2} is no port of this job, which has 2; give a larger --ports"),
        ] {
            let error = check(argument, 2).unwrap_err().to_string();
            assert!(error.starts_with(words), "{argument}: {error}");
        }
        for argument in ["{port0}{port1}", "{{rnak}}", r#"{"a": {"b": 1}}"#, "${HOME}"] {
            assert_eq!(check(argument, 2), Ok(()), "{argument}");
        }
    }

    #[test]
    fn every_placeholder_stands_for_a_variable_of_a_worker() {
        use crate::agent::environment::{JobEnvironment, variables};
        use crate::agent::placement::Placement;
        use crate::agent::{NodeGroup, Start};
        use crate::rendezvous::documents::Address;
        let store = Address { host: "node7".into(), port: 29500 };
        let group = NodeGroup { round: 3, rank: 1, nodes: 2, restarts: 0, store };
        let start = Start { attempt: 2, group, placement: Placement::identical(1, 2, 4) };
        let found = variables(&JobEnvironment::default(), &start, 0, "");
        for (name, variable) in PLACEHOLDERS {
            assert!(found.contains_key(variable), "{name}");
        }
    }
}
