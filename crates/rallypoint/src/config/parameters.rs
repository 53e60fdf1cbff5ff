//! What a node is told about the group that it shall be in, whatever brings the group together.
//!
//! Options are text, as on a command line; what they mean is up to the backend ([`super::options`]).

use std::collections::BTreeMap;
use std::fmt;
use std::num::ParseIntError;

use rallypoint_core::rendezvous::documents::LivenessAddress;
use rallypoint_core::rendezvous::ranks::UnknownRankPolicy;
use thiserror::Error;

use super::suggest::{did_you_mean, list};

/// Options may not have these names: they are parameters of their own.
const RESERVED: [&str; 6] =
    ["backend", "endpoint", "run_id", "min_nodes", "max_nodes", "local_addr"];

/// A parameter or an option that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// It cannot be what it is.
    #[error("{field} {value:?}: {fix}")]
    Invalid {
        /// Which parameter or option.
        field: String,
        /// What it was.
        value: String,
        /// What would be right.
        fix: String,
    },
    /// It should be a whole number.
    #[error("{field} {value:?}: give a whole number ({source})")]
    NotInteger {
        /// Which option.
        field: String,
        /// What it was.
        value: String,
        /// Why it is none.
        source: ParseIntError,
    },
    /// It has to be there.
    #[error("{field} is missing: {fix}")]
    Missing {
        /// Which parameter or option.
        field: String,
        /// What to give.
        fix: String,
    },
    /// Two options exclude each other, or two names of one option have two values.
    #[error("{first} and {second} contradict each other: {fix}")]
    Conflict {
        /// One option.
        first: String,
        /// The other one.
        second: String,
        /// What would be right.
        fix: String,
    },
    /// The backend has no such option.
    #[error(
        "unknown option {option:?} of backend {backend:?}{}It knows: {}",
        did_you_mean(.suggestion.as_deref()),
        list(.known)
    )]
    UnknownOption {
        /// The backend.
        backend: String,
        /// The option.
        option: String,
        /// The option that was probably meant.
        suggestion: Option<String>,
        /// The options that there are.
        known: Vec<&'static str>,
    },
    /// There is no such rank policy.
    #[error(transparent)]
    RankPolicy(#[from] UnknownRankPolicy),
}

impl ParameterError {
    pub(crate) fn invalid(
        field: impl Into<String>,
        value: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::Invalid { field: field.into(), value: value.into(), fix: fix.into() }
    }

    pub(crate) fn missing(field: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Missing { field: field.into(), fix: fix.into() }
    }
}

/// What it takes to make a [`RendezvousHandler`](super::RendezvousHandler).
///
/// ```
/// use rallypoint::rendezvous::RendezvousParameters;
///
/// let parameters = RendezvousParameters::new("etcd", "10.0.0.1:2379", "job-7", 4, 8)?
///     .with("last_call_timeout", 5)
///     .with("protocol", "http");
/// assert_eq!(parameters.get_as_int("last_call_timeout")?, Some(5));
/// assert_eq!(parameters.get("lease_ttl"), None);
/// # Ok::<(), rallypoint::rendezvous::ParameterError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RendezvousParameters {
    /// The name of the backend, as it was registered.
    pub backend: String,
    /// Where the servers are: `host:port`, several separated by commas. Empty for the backend's usual
    /// place.
    pub endpoint: String,
    /// The name of the run that the nodes of one job share.
    pub run_id: String,
    /// A group has at least so many nodes.
    pub min_nodes: usize,
    /// A group has at most so many nodes.
    pub max_nodes: usize,
    /// The address under which the other nodes reach this one, if it cannot find that out by itself.
    pub local_addr: Option<String>,
    /// The liveness socket that this process, its guard and its workers hold, without a host: that is the address
    /// under which the other nodes reach this one. With it the others can prove that the node is dead.
    pub liveness: Option<LivenessAddress>,
    /// No other node can come, not even as a spare.
    pub sole: bool,
    /// The backend's options.
    pub config: BTreeMap<String, String>,
}

impl fmt::Debug for RendezvousParameters {
    /// Without the password, which has no business in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut config = self.config.clone();
        if let Some(password) = config.get_mut("password") {
            *password = "…".to_owned();
        }
        f.debug_struct("RendezvousParameters")
            .field("backend", &self.backend)
            .field("endpoint", &self.endpoint)
            .field("run_id", &self.run_id)
            .field("min_nodes", &self.min_nodes)
            .field("max_nodes", &self.max_nodes)
            .field("local_addr", &self.local_addr)
            .field("config", &config)
            .finish()
    }
}

impl RendezvousParameters {
    /// Parameters without options.
    ///
    /// # Errors
    /// As for [`validate`](Self::validate).
    pub fn new(
        backend: impl Into<String>,
        endpoint: impl Into<String>,
        run_id: impl Into<String>,
        min_nodes: usize,
        max_nodes: usize,
    ) -> Result<Self, ParameterError> {
        let parameters = Self {
            backend: backend.into(),
            endpoint: endpoint.into(),
            run_id: run_id.into(),
            min_nodes,
            max_nodes,
            local_addr: None,
            liveness: None,
            sole: false,
            config: BTreeMap::new(),
        };
        parameters.validate()?;
        Ok(parameters)
    }

    /// The same with one more option, or another value for it.
    pub fn with(mut self, key: impl Into<String>, value: impl ToString) -> Self {
        self.config.insert(key.into(), value.to_string());
        self
    }

    /// The same, for a node that the others reach under `address`.
    pub fn with_local_addr(self, address: impl Into<String>) -> Self {
        Self { local_addr: Some(address.into()), ..self }
    }

    /// Checks what every backend needs. The options and the endpoint are checked by the backend.
    ///
    /// # Errors
    /// [`ParameterError`] names the first parameter that is wrong and what would be right.
    pub fn validate(&self) -> Result<(), ParameterError> {
        let wrong = |field, value: &dyn fmt::Display, fix: String| {
            Err(ParameterError::invalid(field, value.to_string(), fix))
        };
        let Self { backend, run_id, min_nodes, max_nodes, .. } = self;
        if backend.is_empty() {
            return wrong(
                "backend",
                backend,
                "give the name of a backend, for example etcd".into(),
            );
        }
        if run_id.is_empty() {
            let fix = "give a name that only the nodes of this job share, for example the job's id";
            return wrong("run_id", run_id, fix.into());
        }
        // It becomes one part of the path of every key of the run.
        if run_id.contains('/') || run_id.chars().any(char::is_control) {
            let fix = "give a name without slashes and control characters";
            return wrong("run_id", run_id, fix.into());
        }
        if *min_nodes == 0 {
            return wrong("min_nodes", min_nodes, "a group has at least 1 node".into());
        }
        if max_nodes < min_nodes {
            let fix = format!("give at least min_nodes, which is {min_nodes}");
            return wrong("max_nodes", max_nodes, fix);
        }
        if self.local_addr.as_deref() == Some("") {
            let fix = "give the address under which the other nodes reach this one, or none";
            return wrong("local_addr", &"", fix.into());
        }
        Ok(())
    }

    /// The value of an option.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.config.get(key).map(String::as_str)
    }

    /// An option that is on (`1`, `true`, `t`, `yes`, `y`) or off (`0`, `false`, `f`, `no`, `n`), in
    /// small or capital letters.
    ///
    /// # Errors
    /// [`ParameterError::Invalid`] for everything else.
    pub fn get_as_bool(&self, key: &str) -> Result<Option<bool>, ParameterError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.to_ascii_lowercase().as_str() {
            "1" | "true" | "t" | "yes" | "y" => Ok(Some(true)),
            "0" | "false" | "f" | "no" | "n" => Ok(Some(false)),
            _ => Err(ParameterError::invalid(key, value, "give true or false")),
        }
    }

    /// An option that is a whole number.
    ///
    /// # Errors
    /// [`ParameterError::NotInteger`] if it is none.
    pub fn get_as_int(&self, key: &str) -> Result<Option<i64>, ParameterError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.trim().parse().map_err(|source| ParameterError::NotInteger {
            field: key.to_owned(),
            value: value.to_owned(),
            source,
        })?;
        Ok(Some(number))
    }
}

/// Reads options as they are given to `--rdzv-conf`: `key=value`, several separated by commas. Of two
/// values for one key the later one counts.
///
/// ```
/// let config = rallypoint::rendezvous::parse_config("timeout=60, topology=rack=2")?;
/// assert_eq!(config["timeout"], "60");
/// assert_eq!(config["topology"], "rack=2");
/// # Ok::<(), rallypoint::rendezvous::ParameterError>(())
/// ```
///
/// # Errors
/// [`ParameterError`] names the part that has no key or no value, or whose key is a parameter of its own.
pub fn parse_config(text: &str) -> Result<BTreeMap<String, String>, ParameterError> {
    let mut config = BTreeMap::new();
    if text.trim().is_empty() {
        return Ok(config);
    }
    for pair in text.split(',') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() {
            let fix = "a key is missing; give key=value, several separated by commas";
            return Err(ParameterError::invalid("rdzv_conf", text, fix));
        }
        if value.is_empty() {
            let fix = format!("give {key}=value, or leave it out");
            return Err(ParameterError::missing(format!("the value of {key:?}"), fix));
        }
        check_not_reserved(key)?;
        config.insert(key.to_owned(), value.to_owned());
    }
    Ok(config)
}

/// An option must not hide behind, or be taken for, a parameter.
pub(super) fn check_not_reserved(key: &str) -> Result<(), ParameterError> {
    if RESERVED.contains(&key) {
        let fix = "this is not an option but a parameter of its own; give it there";
        return Err(ParameterError::invalid("option", key, fix));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> RendezvousParameters {
        RendezvousParameters::new("etcd", "", "job", 1, 2).unwrap()
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (backend, run_id, min, max, words) in [
            ("", "j", 1, 1, "backend \"\": give the name of a backend"),
            ("b", "", 1, 1, "run_id \"\": give a name that only"),
            ("b", "a/b", 1, 1, "run_id \"a/b\": give a name without slashes"),
            ("b", "a\n", 1, 1, "run_id \"a\\n\": give a name without slashes"),
            ("b", "j", 0, 1, "min_nodes \"0\": a group has at least 1 node"),
            ("b", "j", 3, 2, "max_nodes \"2\": give at least min_nodes, which is 3"),
        ] {
            let error = RendezvousParameters::new(backend, "", run_id, min, max).unwrap_err();
            assert!(error.to_string().starts_with(words), "{error}");
        }
        assert!(RendezvousParameters::new("b", "", "job 7_ä.x", 2, 2).is_ok());
        let error = parameters().with_local_addr("").validate().unwrap_err().to_string();
        assert!(error.starts_with("local_addr \"\": give the address under which"), "{error}");
        assert!(parameters().with_local_addr("10.0.0.9").validate().is_ok());
    }

    #[test]
    fn booleans_have_ten_spellings() {
        for (spellings, expected) in
            [(["1", "TRUE", "t", "Yes", "y"], true), (["0", "False", "F", "no", "N"], false)]
        {
            for text in spellings {
                let read = parameters().with("k", text).get_as_bool("k");
                assert_eq!(read, Ok(Some(expected)), "{text}");
            }
        }
        assert_eq!(parameters().with("k", true).get_as_bool("k"), Ok(Some(true)));
        assert_eq!(parameters().get_as_bool("k"), Ok(None));
        for text in ["", "2", "on", " true"] {
            let error = parameters().with("k", text).get_as_bool("k").unwrap_err();
            assert_eq!(error.to_string(), format!("k {text:?}: give true or false"));
        }
    }

    #[test]
    fn numbers_are_whole() {
        for (text, number) in [("7", 7), (" -3 ", -3), ("+1", 1)] {
            assert_eq!(parameters().with("k", text).get_as_int("k"), Ok(Some(number)));
        }
        assert_eq!(parameters().get_as_int("k"), Ok(None));
        for text in ["", "1.5", "x", "99999999999999999999"] {
            let error = parameters().with("k", text).get_as_int("k").unwrap_err();
            let words = format!("k {text:?}: give a whole number (");
            assert!(error.to_string().starts_with(&words), "{error}");
            assert!(std::error::Error::source(&error).is_some());
        }
    }

    #[test]
    fn a_configuration_is_split_as_torchrun_does() {
        let parsed = parse_config(" a = 1 ,b=x=y,a=2").unwrap();
        assert_eq!(parsed, [("a", "2"), ("b", "x=y")].map(|(k, v)| (k.into(), v.into())).into());
        assert!(parse_config("  ").unwrap().is_empty());
        for (text, words) in [
            ("=1", "rdzv_conf \"=1\": a key is missing"),
            ("a=1,", "rdzv_conf \"a=1,\": a key is missing"),
            ("a", "the value of \"a\" is missing: give a=value"),
            ("a=1,b= ", "the value of \"b\" is missing: give b=value"),
            ("run_id=x", "option \"run_id\": this is not an option"),
        ] {
            let error = parse_config(text).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn the_password_is_not_printed() {
        let printed = format!("{:?}", parameters().with("password", "hidden").with("user", "me"));
        assert!(printed.contains("me") && !printed.contains("hidden"), "{printed}");
    }
}
