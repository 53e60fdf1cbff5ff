//! Endpoints: the addresses of servers, as users write them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use super::error::ConfigError;

/// The port that etcd listens on.
pub(crate) const ETCD_PORT: u16 = 2379;

/// The protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// Unencrypted.
    #[default]
    Http,
    /// Over TLS.
    Https,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

impl FromStr for Protocol {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().to_ascii_lowercase().as_str() {
            "http" => Ok(Self::Http),
            "https" => Ok(Self::Https),
            _ => Err(ConfigError::invalid("protocol", text, "give http or https")),
        }
    }
}

/// The address of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The protocol, if the text names one.
    pub protocol: Option<Protocol>,
    /// A name, an IPv4 address, or an IPv6 address with its brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    /// `host:port`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Endpoint {
    /// Reads one or more endpoints, separated by commas. The port is 2379 unless given. Empty text means
    /// `localhost:2379`.
    ///
    /// ```
    /// use rallypoint::config::Endpoint;
    ///
    /// let found = Endpoint::parse_list("node-1, [fe80::1]:2380")?;
    /// let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    /// assert_eq!(found, ["node-1:2379", "[fe80::1]:2380"]);
    /// # Ok::<(), rallypoint::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] names the endpoint that is wrong, and the remedy.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ConfigError> {
        let text = if text.trim().is_empty() { "localhost" } else { text };
        Self::parse_all(text, ETCD_PORT)
    }

    /// Reads endpoints that are separated by commas, and whose port is `default_port` unless given.
    pub(crate) fn parse_all(text: &str, default_port: u16) -> Result<Vec<Self>, ConfigError> {
        text.split(',').map(|one| Self::parse(one.trim(), default_port)).collect()
    }

    /// Reads one endpoint, whose port is `default_port` unless given.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Self, ConfigError> {
        let wrong = |fix: &str| Err(ConfigError::invalid("endpoint", text, fix));
        let (protocol, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some(Protocol::Http), rest),
            Some(("https", rest)) => (Some(Protocol::Https), rest),
            Some(_) => return wrong("the scheme must be http:// or https://"),
            None => (None, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() {
            return wrong("give host:port, for example 10.0.0.1:2379");
        }
        if rest.contains(['/', '?', '#', '@']) {
            return wrong("give host:port alone, without a user or a path");
        }
        let (host, port) = if let Some(inner) = rest.strip_prefix('[') {
            let Some((address, port)) = inner.split_once(']') else {
                return wrong("the bracket is not closed; write [::1]:2379");
            };
            if address.parse::<Ipv6Addr>().is_err() {
                return wrong("there is no IPv6 address in the brackets; write [::1]:2379");
            }
            (format!("[{address}]"), port)
        } else if rest.parse::<Ipv6Addr>().is_ok() {
            return wrong("put an IPv6 address in brackets: [::1]:2379");
        } else {
            let (host, port) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if host.is_empty() {
                return wrong("the host is missing; give host:port, for example 10.0.0.1:2379");
            }
            if !host.chars().all(allowed) {
                return wrong("a host is a name or an IP address; give host:port");
            }
            (host.to_owned(), port)
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => default_port,
            None => return wrong("after the bracket only :port may follow"),
            Some(port) => match port.parse() {
                Ok(0) => {
                    return wrong(
                        "port 0 is any free port, which no other node knows; give a number from 1 to 65535",
                    );
                }
                Ok(port) => port,
                _ => return wrong("the port must be a number from 1 to 65535"),
            },
        };
        Ok(Self { protocol, host, port })
    }

    /// The endpoint with its protocol, if it has one, so that [`parse_list`](Self::parse_list) reads it again.
    pub(crate) fn url(&self) -> String {
        match self.protocol {
            Some(protocol) => format!("{protocol}://{self}"),
            None => self.to_string(),
        }
    }

    /// The IP address, if the host is written as one.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.host.trim_matches(['[', ']']).parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_endpoints_are_read_as_people_write_them() {
        for (text, expected) in [
            ("", "localhost:2379"),
            (" ", "localhost:2379"),
            ("node-1.cluster", "node-1.cluster:2379"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("[::1]", "[::1]:2379"),
            ("[::1]:65535", "[::1]:65535"),
            ("a:1, b ,[::1]:3", "a:1 b:2379 [::1]:3"),
            ("http://a:1,b:2", "a:1 b:2"),
        ] {
            let found = Endpoint::parse_list(text).unwrap();
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), expected, "{text:?}");
        }
        let found = Endpoint::parse_list("https://a,b").unwrap();
        assert_eq!((found[0].protocol, found[1].protocol), (Some(Protocol::Https), None));
    }

    #[test]
    fn an_endpoint_with_its_protocol_is_a_uri() {
        for (text, expected) in [
            ("localhost", "localhost:2379"),
            ("localhost:1", "localhost:1"),
            ("http://10.0.0.1:65535", "http://10.0.0.1:65535"),
            ("http://node-1.cluster_a.local/", "http://node-1.cluster_a.local:2379"),
            ("https://a:443", "https://a:443"),
            ("http://[::1]", "http://[::1]:2379"),
            ("http://[fe80::1]:2380", "http://[fe80::1]:2380"),
        ] {
            let endpoint = Endpoint::parse(text, ETCD_PORT).unwrap();
            assert_eq!(endpoint.url(), expected);
            // The transport must be able to read it too.
            expected.parse::<http::Uri>().unwrap();
            assert_eq!(Endpoint::parse(expected, 1).unwrap(), endpoint);
        }
    }

    #[test]
    fn the_wrong_one_of_several_is_named() {
        for (text, words) in [
            ("a,b:x", "endpoint \"b:x\": the port must be a number from 1 to 65535"),
            ("a,,b", "endpoint \"\": give host:port"),
            ("a,", "endpoint \"\": give host:port"),
            ("::1", "endpoint \"::1\": put an IPv6 address in brackets"),
            ("a:70000", "endpoint \"a:70000\": the port"),
            ("etcd://a", "endpoint \"etcd://a\": the scheme must be"),
        ] {
            let error = Endpoint::parse_list(text).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn a_wrong_endpoint_is_named_with_the_remedy() {
        for (text, fix) in [
            ("", "give host:port"),
            ("http://", "give host:port"),
            ("etcd://a:1", "http:// or https://"),
            ("a:0", "1 to 65535"),
            ("a:", "1 to 65535"),
            ("a:65536", "1 to 65535"),
            ("a:1:2", "1 to 65535"),
            ("a:http", "1 to 65535"),
            (":2379", "host is missing"),
            ("::1", "in brackets"),
            ("fe80::1", "in brackets"),
            ("[::1", "not closed"),
            ("[a]:1", "no IPv6 address"),
            ("[::1]x", "only :port"),
            ("a b", "name or an IP address"),
            ("ä", "name or an IP address"),
            ("u:p@a:1", "without a user"),
            ("http://a:1/v3", "without a user or a path"),
        ] {
            let error = Endpoint::parse(text, ETCD_PORT).unwrap_err().to_string();
            assert!(error.contains(fix), "{text:?}: {error}");
            assert!(error.starts_with(&format!("endpoint {text:?}: ")), "{error}");
        }
    }

    #[test]
    fn a_protocol_has_two_names() {
        assert_eq!(" HTTPS ".parse(), Ok(Protocol::Https));
        assert_eq!("Http".parse(), Ok(Protocol::Http));
        let error = "grpc".parse::<Protocol>().unwrap_err().to_string();
        assert_eq!(error, "protocol \"grpc\": give http or https");
    }
}
