//! Parameters as a URL: `etcd://host:port/run?min_workers=1&max_workers=3&timeout=60`.
//!
//! Parsed by hand, since general parsers of URLs take no list of hosts. A plus sign is a plus sign.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

use super::error::ConfigError;
use super::parameters::{RendezvousParameters, check_not_reserved};

const SHAPE: &str =
    "write etcd://host:port/run?min_workers=1&max_workers=3, several hosts separated by commas";

impl RendezvousParameters {
    /// Reads a URL: the scheme is the backend, the path the run's name; `min_workers` and `max_workers`
    /// must be there, and everything else after the question mark is an option.
    ///
    /// ```
    /// use rallypoint::rendezvous::RendezvousParameters;
    ///
    /// let url = "etcd://a:2379,b:2379/job%207?min_workers=1&max_workers=3&timeout=60";
    /// let parameters = RendezvousParameters::from_url(url)?;
    /// assert_eq!(parameters.endpoint, "a:2379,b:2379");
    /// assert_eq!(parameters.run_id, "job 7");
    /// assert_eq!((parameters.min_nodes, parameters.max_nodes), (1, 3));
    /// assert_eq!(parameters.get("timeout"), Some("60"));
    /// # Ok::<(), rallypoint::rendezvous::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`] names the part that is wrong and what would be right.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let (rest, query) = url.split_once('?').unwrap_or((url, ""));
        // Only the part before the options is ever quoted: a password may be among them.
        let wrong = |fix: &str| Err(ConfigError::invalid("url", rest, fix));
        let (backend, place) = rest.split_once("://").unwrap_or(("", rest));
        let (hosts, run_id) = place.split_once('/').unwrap_or((place, ""));
        if hosts.contains('@') {
            let fix = "give user and password as options after the question mark";
            return Err(ConfigError::invalid("url", format!("{backend}://…@…"), fix));
        }
        if backend.is_empty() {
            return wrong(SHAPE);
        }
        if url.contains('#') {
            return wrong("nothing may follow after a #; write %23 if it belongs to a value");
        }
        if run_id.is_empty() {
            let fix = "give the name of the run after the host: etcd://host:port/run";
            return Err(ConfigError::missing("the run of the url", fix));
        }
        let mut config = options(query)?;
        let min_nodes = workers(&mut config, "min_workers")?;
        let max_nodes = workers(&mut config, "max_workers")?;
        let run_id = decode("run_id", run_id)?;
        let parameters = Self::new(backend, hosts, run_id, min_nodes, max_nodes)?;
        Ok(Self { config, ..parameters })
    }
}

/// Reads the options after the question mark.
fn options(query: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut config = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = decode("option", key)?;
        if key.is_empty() {
            return Err(ConfigError::missing("the name of an option", "write &name=value"));
        }
        if value.is_empty() {
            let fix = format!("write {key}=value, or leave it out");
            return Err(ConfigError::missing(format!("the value of {key:?}"), fix));
        }
        check_not_reserved(&key)?;
        let value = decode(&key, value)?;
        if config.insert(key.clone(), value).is_some() {
            return Err(ConfigError::invalid("option", key, "it is there twice; give it once"));
        }
    }
    Ok(config)
}

fn workers(
    config: &mut BTreeMap<String, String>,
    field: &'static str,
) -> Result<usize, ConfigError> {
    let Some(value) = config.remove(field) else {
        return Err(ConfigError::missing(field, format!("add {field}=1 after the question mark")));
    };
    match value.trim().parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(ConfigError::invalid(field, value, "give a whole number above 0")),
    }
}

/// Decodes percent-encoding: `%20` becomes a space.
fn decode(field: &str, text: &str) -> Result<String, ConfigError> {
    let escapes = text.split('%').skip(1);
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    // The value is not repeated here: it may be a password.
    let wrong = |fix: &str| ConfigError::invalid(format!("{field} of the url"), "…", fix);
    if !escapes.into_iter().all(is_escape) {
        return Err(wrong("two hexadecimal digits follow a %; write %25 for the sign itself"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| wrong("after decoding it must be UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let url =
            "etcd://[::1]:2379,b/my%20job?&min_workers=2&max_workers=4&topology=a%2Fb&x=a+b=c&";
        let parameters = RendezvousParameters::from_url(url).unwrap();
        assert_eq!(parameters.backend, "etcd");
        assert_eq!(parameters.endpoint, "[::1]:2379,b");
        assert_eq!(parameters.run_id, "my job");
        assert_eq!((parameters.min_nodes, parameters.max_nodes), (2, 4));
        let expected = [("topology", "a/b"), ("x", "a+b=c")];
        assert_eq!(parameters.config, expected.map(|(k, v)| (k.into(), v.into())).into());
        let local =
            RendezvousParameters::from_url("etcd:///j?min_workers=1&max_workers=1").unwrap();
        assert_eq!(local.endpoint, "");
    }

    #[test]
    fn every_wrong_part_is_named() {
        const LIMITS: &str = "min_workers=1&max_workers=2";
        for (url, words) in [
            ("", "url \"\": write etcd://host:port/run?"),
            ("host:1/job", "url \"host:1/job\": write etcd://"),
            ("://a/job", "url \"://a/job\": write etcd://"),
            ("me:hidden@a/job", "url \"://…@…\": give user and password as options"),
            ("etcd://me:hidden@a/job", "url \"etcd://…@…\": give user and password as options"),
            ("etcd://a/job?LIMITS#x", "url \"etcd://a/job\": nothing may follow after a #"),
            ("etcd://a?LIMITS", "the run of the url is missing: give the name of the run"),
            ("etcd://a/?LIMITS", "the run of the url is missing: give the name of the run"),
            ("etcd://a/b%2Fc?LIMITS", "run_id \"b/c\": give a name without slashes"),
            ("etcd://a/b/c?LIMITS", "run_id \"b/c\": give a name without slashes"),
            ("etcd://a/b%2?LIMITS", "run_id of the url \"…\": two hexadecimal digits"),
            ("etcd://a/%ff?LIMITS", "run_id of the url \"…\": after decoding it must be UTF-8"),
            ("etcd://a/j", "min_workers is missing: add min_workers=1"),
            ("etcd://a/j?min_workers=1", "max_workers is missing: add max_workers=1"),
            ("etcd://a/j?min_workers=0", "min_workers \"0\": give a whole number above 0"),
            ("etcd://a/j?min_workers=x", "min_workers \"x\": give a whole number above 0"),
            ("etcd://a/j?min_workers=3&max_workers=2", "max_nodes \"2\": give at least min_nodes"),
            ("etcd://a/j?LIMITS&=1", "the name of an option is missing"),
            ("etcd://a/j?LIMITS&x", "the value of \"x\" is missing: write x=value"),
            ("etcd://a/j?LIMITS&x=1&x=1", "option \"x\": it is there twice"),
            ("etcd://a/j?LIMITS&password=hidden%", "password of the url \"…\": two hexadecimal"),
            ("etcd://a/j?LIMITS&min_nodes=1", "option \"min_nodes\": this is not an option"),
        ] {
            let url = url.replace("LIMITS", LIMITS);
            let error = RendezvousParameters::from_url(&url).unwrap_err().to_string();
            assert!(error.starts_with(words), "{url}: {error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }
}
