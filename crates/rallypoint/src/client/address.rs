//! The address of one server, as people write it.

use std::fmt;
use std::net::Ipv6Addr;

use thiserror::Error;

/// The port that etcd listens on.
pub(crate) const ETCD_PORT: u16 = 2379;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// An address that cannot be read.
#[derive(Debug, Error)]
#[error("endpoint {text:?}: {fix}")]
pub(crate) struct WrongAddress {
    pub(crate) text: String,
    /// What would be right.
    pub(crate) fix: &'static str,
}

/// Where one server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) scheme: Scheme,
    /// A name, an IPv4 address, or an IPv6 address with its brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Reads `text`; where it names no scheme, it has `scheme`, and where no port, etcd's.
    pub(crate) fn parse(text: &str, scheme: Scheme) -> Result<Self, WrongAddress> {
        Self::parse_with_port(text, scheme, ETCD_PORT)
    }

    /// The same with another port for an address that names none.
    pub(crate) fn parse_with_port(
        text: &str,
        scheme: Scheme,
        default_port: u16,
    ) -> Result<Self, WrongAddress> {
        let wrong = |fix| Err(WrongAddress { text: text.to_owned(), fix });
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(_) => return wrong("the scheme must be http:// or https://"),
            None => (scheme, text),
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
                        "port 0 is any free port, which nobody else knows; give a number from 1 to 65535",
                    );
                }
                Ok(port) => port,
                _ => return wrong("the port must be a number from 1 to 65535"),
            },
        };
        Ok(Self { scheme, host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, expected) in [
            ("localhost", "http://localhost:2379"),
            ("localhost:1", "http://localhost:1"),
            ("10.0.0.1:65535", "http://10.0.0.1:65535"),
            ("http://node-1.cluster_a.local/", "http://node-1.cluster_a.local:2379"),
            ("https://a:443", "https://a:443"),
            ("[::1]", "http://[::1]:2379"),
            ("http://[fe80::1]:2380", "http://[fe80::1]:2380"),
        ] {
            let address = Address::parse(text, Scheme::Http).unwrap();
            assert_eq!(address.to_string(), expected);
            // What is printed must be readable to the transport too.
            expected.parse::<http::Uri>().unwrap();
        }
    }

    #[test]
    fn a_wrong_address_is_named_with_what_would_be_right() {
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
            let error = Address::parse(text, Scheme::Http).unwrap_err().to_string();
            assert!(error.contains(fix), "{text:?}: {error}");
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
