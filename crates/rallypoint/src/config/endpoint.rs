//! Endpoints: where the servers are, as users write it.

use std::fmt;
use std::str::FromStr;

use super::parameters::ParameterError;
use crate::client::{Address, ETCD_PORT, Scheme, WrongAddress};

/// How to speak to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// In the clear.
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
    type Err = ParameterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().to_ascii_lowercase().as_str() {
            "http" => Ok(Self::Http),
            "https" => Ok(Self::Https),
            _ => Err(ParameterError::invalid("protocol", text, "give http or https")),
        }
    }
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The protocol, if the text named one.
    pub protocol: Option<Protocol>,
    /// A name, an IPv4 address, or an IPv6 address with its brackets.
    pub host: String,
    /// Its port.
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
    /// use rallypoint::rendezvous::Endpoint;
    ///
    /// let found = Endpoint::parse_list("node-1, [fe80::1]:2380")?;
    /// let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    /// assert_eq!(found, ["node-1:2379", "[fe80::1]:2380"]);
    /// # Ok::<(), rallypoint::rendezvous::ParameterError>(())
    /// ```
    ///
    /// # Errors
    /// [`ParameterError::Invalid`] names the endpoint that is wrong and what would be right.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ParameterError> {
        let text = if text.trim().is_empty() { "localhost" } else { text };
        text.split(',').map(|one| Self::parse(one.trim(), ETCD_PORT)).collect()
    }

    /// Reads one endpoint, whose port is `default_port` unless given.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Self, ParameterError> {
        let address = Address::parse_with_port(text, Scheme::Http, default_port)
            .map_err(|WrongAddress { text, fix }| ParameterError::invalid("endpoint", text, fix))?;
        let protocol = match address.scheme {
            _ if !text.contains("://") => None,
            Scheme::Http => Some(Protocol::Http),
            Scheme::Https => Some(Protocol::Https),
        };
        Ok(Self { protocol, host: address.host, port: address.port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_people_write_them() {
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
    fn a_protocol_has_two_names() {
        assert_eq!(" HTTPS ".parse(), Ok(Protocol::Https));
        assert_eq!("Http".parse(), Ok(Protocol::Http));
        let error = "grpc".parse::<Protocol>().unwrap_err().to_string();
        assert_eq!(error, "protocol \"grpc\": give http or https");
    }
}
