//! The options of the backends, each with its type, its default and its limits.
//!
//! An option that a backend does not know is an error: a slip in a name would otherwise go unnoticed until
//! the job behaves as if it had not been given.

mod connection;
mod dynamic;
mod etcd;

use std::time::Duration;

pub use self::connection::{ConnectionOptions, PASSWORD, add_password};
pub use self::dynamic::DynamicOptions;
pub use self::etcd::EtcdOptions;

use super::parameters::{ParameterError, RendezvousParameters};
use super::suggest::suggest;

/// What everyone may give who connects to an etcd; of the same line, the same thing in the words of
/// PyTorch's `etcd` and of its `etcd-v2`.
const CONNECTION: &[&str] = &[
    "protocol",
    "cacert",
    "ca_cert",
    "cert",
    "ssl_cert",
    "key",
    "ssl_cert_key",
    "read_timeout",
    "user",
    "password",
    "password_file",
];

/// A year. Whoever means for ever gives no more, and sums of times cannot overflow.
const LONGEST_SECONDS: u32 = 365 * 24 * 3600;

/// Refuses options that are neither in `own` nor a connection's.
fn check_names(
    parameters: &RendezvousParameters,
    own: &[&'static str],
) -> Result<(), ParameterError> {
    let known: Vec<&'static str> = own.iter().chain(CONNECTION).copied().collect();
    let Some(option) = parameters.config.keys().find(|key| !known.contains(&key.as_str())) else {
        return Ok(());
    };
    Err(ParameterError::UnknownOption {
        backend: parameters.backend.clone(),
        option: option.clone(),
        suggestion: suggest(option, known.iter().copied()).map(str::to_owned),
        known,
    })
}

/// Whether a time may be none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zero {
    Allowed,
    Refused,
}

/// An option that is a time in seconds, whole or not.
fn time(
    parameters: &RendezvousParameters,
    key: &str,
    default: Duration,
    zero: Zero,
) -> Result<Duration, ParameterError> {
    let Some(text) = parameters.get(key) else {
        return Ok(default);
    };
    let longest = f64::from(LONGEST_SECONDS);
    // A time below a millisecond is no time to anything here.
    let least = if zero == Zero::Allowed { 0.0 } else { 0.001 };
    match text.trim().parse::<f64>() {
        Ok(value) if (least..=longest).contains(&value) => Ok(Duration::from_secs_f64(value)),
        _ => {
            let fix = format!("give seconds from {least} to {LONGEST_SECONDS}, such as 30 or 0.5");
            Err(ParameterError::invalid(key, text, fix))
        }
    }
}

/// An option that is a whole number, from `least` to `most`.
fn count(
    parameters: &RendezvousParameters,
    key: &str,
    least: u32,
    most: u32,
) -> Result<Option<u32>, ParameterError> {
    let Some(value) = parameters.get_as_int(key)? else { return Ok(None) };
    match u32::try_from(value) {
        Ok(value) if (least..=most).contains(&value) => Ok(Some(value)),
        _ => {
            let fix = format!("give a whole number from {least} to {most}");
            Err(ParameterError::invalid(key, value.to_string(), fix))
        }
    }
}

/// An option that is text, which must not be empty.
fn text(parameters: &RendezvousParameters, key: &str) -> Result<Option<String>, ParameterError> {
    match parameters.get(key) {
        Some("") => Err(ParameterError::invalid(key, "", "give a value, or leave it out")),
        value => Ok(value.map(str::to_owned)),
    }
}

#[cfg(test)]
mod tests;
