//! Values in environment variables.

use super::error::RunError;
use crate::launch::job::Environment;

/// A value, and the variable that it was found in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundValue<T> {
    pub(super) value: T,
    pub(super) source: String,
}

/// The first of the variables that is set and not blank, with its name.
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

/// The first of the variables that is set and not blank, as a whole number.
pub(super) fn number(
    environment: &Environment,
    names: &[&'static str],
) -> Result<Option<FoundValue<u32>>, RunError> {
    let Some((name, value)) = text(environment, names) else { return Ok(None) };
    match value.parse() {
        Ok(number) => Ok(Some(FoundValue { value: number, source: name.to_owned() })),
        Err(_) => Err(RunError::invalid(
            name,
            value,
            "it should be a whole number; unset it, or give \
            the option instead",
        )),
    }
}
