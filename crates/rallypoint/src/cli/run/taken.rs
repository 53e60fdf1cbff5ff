//! What was not on the command line, and where it came from: said in the log, so that nobody has to guess.

use std::collections::BTreeMap;
use std::fmt;

use super::error::RunError;

/// The environment, as far as it is text.
pub(crate) type Environment = BTreeMap<String, String>;

/// A value that was taken from somewhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) what: String,
    pub(crate) value: String,
    pub(crate) source: String,
}

impl Taken {
    pub(super) fn new(
        what: impl Into<String>,
        value: impl ToString,
        source: impl Into<String>,
    ) -> Self {
        Self { what: what.into(), value: value.to_string(), source: source.into() }
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, source } = self;
        write!(f, "{what} {value} from {source}")
    }
}

/// A value with the variable that it was found in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) source: String,
}

/// The first of the variables that is there and not empty, as it is.
pub(super) fn text<'a>(
    environment: &'a Environment,
    names: &[&'static str],
) -> Option<(&'static str, &'a str)> {
    let value = |name: &&'static str| {
        let value = environment.get(*name).filter(|value| !value.trim().is_empty())?;
        Some((*name, value.trim()))
    };
    names.iter().find_map(value)
}

/// The same, as a whole number.
pub(super) fn number(
    environment: &Environment,
    names: &[&'static str],
) -> Result<Option<Found<u32>>, RunError> {
    let Some((name, value)) = text(environment, names) else { return Ok(None) };
    match value.parse() {
        Ok(number) => Ok(Some(Found { value: number, source: name.to_owned() })),
        Err(_) => Err(RunError::invalid(
            name,
            value,
            "it should be a whole number; unset it, or give \
            the option instead",
        )),
    }
}
