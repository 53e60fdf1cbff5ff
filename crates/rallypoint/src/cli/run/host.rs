//! Facts about this host that a job depends on, looked up in one place.

use std::path::Path;

use super::devices::{self, Count};
use crate::embedded::ThisHost;
use crate::launch::job::Environment;
use crate::util::random;

/// This host, and the environment of this process.
#[derive(Debug, Clone)]
pub(crate) struct HostFacts {
    pub(super) environment: Environment,
    pub(super) here: ThisHost,
    pub(super) processors: u32,
    pub(super) devices: Count,
    /// The interpreter of scripts and modules, unless the environment names another.
    pub(super) python: String,
    /// A random run id.
    pub(super) fresh_id: String,
}

impl HostFacts {
    /// Looks up the facts. Names are looked up later, which blocks, so resolve the job before a runtime is started.
    pub(crate) fn look(environment: Environment) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            environment,
            here: ThisHost::look(),
            processors: u32::try_from(processors).unwrap_or(u32::MAX),
            devices: devices::count(Path::new("/")),
            python: "python3".to_owned(),
            fresh_id: format!("{:016x}", random::number()),
        }
    }

    /// These facts with name lookups that end in time.
    pub(crate) fn within_time(self) -> Self {
        Self { here: crate::doctor::within_time(self.here), ..self }
    }

    /// These facts with the interpreter of the Python package that has this command.
    pub(crate) fn under(self, python: Option<String>) -> Self {
        Self { python: python.unwrap_or(self.python), ..self }
    }
}

/// The environment of this process, as far as it is valid UTF-8.
pub(crate) fn environment() -> Environment {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_a_processor_and_fresh_names() {
        let (one, other) =
            (HostFacts::look(Environment::new()), HostFacts::look(Environment::new()));
        assert!(one.processors > 0);
        assert_ne!(one.fresh_id, other.fresh_id);
    }
}
