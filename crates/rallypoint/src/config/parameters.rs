//! The parameters of a rendezvous: the run, its servers and its size, and the options of the backend as text.
//!
//! Options are text, as on a command line; [`super::options`] reads them by the table of the backend.

use std::collections::BTreeMap;
use std::fmt;

use rallypoint_core::rendezvous::documents::LivenessAddress;

use super::error::ConfigError;
use super::values;
use crate::events::EventRecorder;
use crate::succession::HostOrder;

/// Options may not have these names: they are parameters of their own.
const RESERVED: [&str; 6] =
    ["backend", "endpoint", "run_id", "min_nodes", "max_nodes", "local_addr"];

/// The parameters from which a [`RendezvousHandler`](crate::rendezvous::RendezvousHandler) is made.
///
/// ```
/// use rallypoint::rendezvous::RendezvousParameters;
///
/// let parameters = RendezvousParameters::new("etcd", "10.0.0.1:2379", "job-7", 4, 8)?
///     .with("last_call_timeout", 5)
///     .with("protocol", "http");
/// assert_eq!(parameters.get_as_int("last_call_timeout")?, Some(5));
/// assert_eq!(parameters.get("lease_ttl"), None);
/// # Ok::<(), rallypoint::rendezvous::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RendezvousParameters {
    /// The name of the backend, as it was registered.
    pub backend: String,
    /// The addresses of the servers: `host:port`, several separated by commas. Empty for the backend's default.
    pub endpoint: String,
    /// The name of the run that the nodes of one job share.
    pub run_id: String,
    /// The smallest number of nodes of a group.
    pub min_nodes: usize,
    /// The largest number of nodes of a group.
    pub max_nodes: usize,
    /// The address at which the other nodes reach this one. Without it, the node finds it out by itself.
    pub local_addr: Option<String>,
    /// The liveness socket that this process, its guard and its workers hold, without a host: that is the address
    /// at which the other nodes reach this one. By it the other nodes can prove that this one is dead.
    pub liveness: Option<LivenessAddress>,
    /// Whether no other node can join, not even as a spare.
    pub sole: bool,
    /// The hosts that may serve, where they succeed each other.
    pub(crate) succession: Option<HostOrder>,
    /// Records the events of the node.
    pub recorder: Option<EventRecorder>,
    /// The backend's options.
    pub config: BTreeMap<String, String>,
}

impl fmt::Debug for RendezvousParameters {
    /// Without the password, which must not be logged.
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
    ) -> Result<Self, ConfigError> {
        let (backend, endpoint, run_id) = (backend.into(), endpoint.into(), run_id.into());
        let parameters = Self::unchecked(backend, endpoint, run_id, min_nodes, max_nodes);
        parameters.validate()?;
        Ok(parameters)
    }

    /// Parameters without options, of a caller that validates them itself.
    pub(super) fn unchecked(
        backend: String,
        endpoint: String,
        run_id: String,
        min_nodes: usize,
        max_nodes: usize,
    ) -> Self {
        let config = BTreeMap::new();
        let (local_addr, liveness, sole, succession, recorder) = (None, None, false, None, None);
        Self {
            backend,
            endpoint,
            run_id,
            min_nodes,
            max_nodes,
            local_addr,
            liveness,
            sole,
            succession,
            recorder,
            config,
        }
    }

    /// Adds an option, or replaces its value.
    pub fn with(mut self, key: impl Into<String>, value: impl ToString) -> Self {
        self.config.insert(key.into(), value.to_string());
        self
    }

    /// Sets the address at which the other nodes reach this one.
    pub fn with_local_addr(self, address: impl Into<String>) -> Self {
        Self { local_addr: Some(address.into()), ..self }
    }

    /// Checks what every backend needs. The backend checks the options and the endpoint.
    ///
    /// # Errors
    /// [`ConfigError`] names the first parameter that is wrong, and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.backend.is_empty() {
            let fix = "give the name of a backend, for example etcd";
            return Err(ConfigError::invalid("backend", "", fix));
        }
        validate_run(&self.run_id, self.min_nodes, self.max_nodes)?;
        if self.local_addr.as_deref() == Some("") {
            let fix = "give the address under which the other nodes reach this one, or none";
            return Err(ConfigError::invalid("local_addr", "", fix));
        }
        Ok(())
    }

    /// The value of an option.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.config.get(key).map(String::as_str)
    }

    /// The value of an option that is a switch: `1`, `true`, `t`, `yes`, `y` or `0`, `false`, `f`, `no`, `n`, in
    /// small or capital letters.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for every other value.
    pub fn get_as_bool(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        let read = |text| values::switch(text).map_err(|fix| ConfigError::invalid(key, text, fix));
        self.get(key).map(read).transpose()
    }

    /// The value of an option that is a whole number.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] if the value is no whole number.
    pub fn get_as_int(&self, key: &str) -> Result<Option<i64>, ConfigError> {
        let read = |text| values::integer(text).map_err(|fix| ConfigError::invalid(key, text, fix));
        self.get(key).map(read).transpose()
    }
}

/// Checks the name of a run and the size of its group: the one place where they are checked.
pub(crate) fn validate_run(
    run_id: &str,
    min_nodes: usize,
    max_nodes: usize,
) -> Result<(), ConfigError> {
    if run_id.is_empty() {
        let fix = "give a name that only the nodes of this job share, for example the job's id";
        return Err(ConfigError::invalid("run_id", run_id, fix));
    }
    // The name becomes one part of the path of every key of the run.
    if run_id.contains('/') || run_id.chars().any(char::is_control) {
        let fix = "give a name without slashes and control characters";
        return Err(ConfigError::invalid("run_id", run_id, fix));
    }
    if min_nodes == 0 {
        return Err(ConfigError::invalid("min_nodes", "0", "a group has at least 1 node"));
    }
    if max_nodes < min_nodes {
        let fix = format!("give at least min_nodes, which is {min_nodes}");
        return Err(ConfigError::invalid("max_nodes", max_nodes.to_string(), fix));
    }
    Ok(())
}

/// Reads options as they are given to `--rdzv-conf`: `key=value`, several separated by commas. Of two
/// values for one key the later one counts.
///
/// ```
/// let config = rallypoint::rendezvous::parse_config("timeout=60, topology=rack=2")?;
/// assert_eq!(config["timeout"], "60");
/// assert_eq!(config["topology"], "rack=2");
/// # Ok::<(), rallypoint::rendezvous::ConfigError>(())
/// ```
///
/// # Errors
/// [`ConfigError`] names the part that has no key or no value, or whose key is a parameter of its own.
pub fn parse_config(text: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut config = BTreeMap::new();
    if text.trim().is_empty() {
        return Ok(config);
    }
    for pair in text.split(',') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() {
            let fix = "a key is missing; give key=value, several separated by commas";
            return Err(ConfigError::invalid("rdzv_conf", text, fix));
        }
        if value.is_empty() {
            let fix = format!("give {key}=value, or leave it out");
            return Err(ConfigError::missing(format!("the value of {key:?}"), fix));
        }
        check_not_reserved(key)?;
        config.insert(key.to_owned(), value.to_owned());
    }
    Ok(config)
}

/// Refuses an option that has the name of a parameter.
pub(super) fn check_not_reserved(key: &str) -> Result<(), ConfigError> {
    if RESERVED.contains(&key) {
        let fix = "this is not an option but a parameter of its own; give it there";
        return Err(ConfigError::invalid("option", key, fix));
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
            assert!(error.to_string().ends_with(')'), "without the cause: {error}");
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
