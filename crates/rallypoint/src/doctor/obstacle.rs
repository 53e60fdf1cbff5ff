//! The cause for which no server answers, by the error of a client.

use std::error::Error;
use std::io::{self, ErrorKind};

use crate::client::{ClientError, describe};

/// The cause for which no server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The host name does not resolve.
    Name,
    /// The connection is refused: no program listens on the port.
    Refused,
    /// A program answers in another protocol.
    Foreign,
    /// No packet comes back.
    Silent,
    /// Another cause.
    Other,
}

impl Obstacle {
    pub(crate) fn of(error: &ClientError) -> Self {
        let (ClientError::Unavailable { source, .. } | ClientError::OutcomeUnknown { source, .. }) =
            error
        else {
            return Self::Other;
        };
        let text = describe(source);
        // By the text, since these layers keep nothing else of the error below.
        if text.contains("dns error") || text.contains("failed to lookup address") {
            return Self::Name;
        }
        // A server of another protocol answers in its own, or closes the connection.
        let foreign = [
            "http2 error",
            "protocol error",
            "broken pipe",
            "Connection reset",
            "connection closed",
        ];
        if foreign.iter().any(|sign| text.contains(sign)) {
            return Self::Foreign;
        }
        if text.contains("no answer within") || text.contains("has gone silent") {
            return Self::Silent;
        }
        let mut cause: Option<&(dyn Error + 'static)> = source.source();
        while let Some(error) = cause {
            match error.downcast_ref::<io::Error>() {
                Some(error) => return Self::of_connection(error),
                None => cause = error.source(),
            }
        }
        Self::Other
    }

    /// The cause for which a TCP connection was not made.
    pub(crate) fn of_connection(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                Self::Silent
            }
            _ => Self::Other,
        }
    }

    /// What was found.
    pub(crate) fn finding(self) -> &'static str {
        match self {
            Self::Name => "its name does not resolve on this host",
            Self::Refused => "nothing listens there",
            Self::Foreign => "the program that answers is no etcd",
            Self::Silent => "nothing comes back",
            Self::Other => "the connection fails",
        }
    }

    /// What helps.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Name => {
                "If it never does, the endpoint (--rdzv-endpoint) is misspelt, or this host needs another name server"
            }
            Self::Refused => {
                "The node that the endpoint (--rdzv-endpoint) names has not started, or the port is another"
            }
            Self::Foreign => {
                "Give the endpoint (--rdzv-endpoint) another port, the same on every node"
            }
            Self::Silent => {
                "The host that the endpoint (--rdzv-endpoint) names is down, a firewall drops what is sent there, or another \
                 program has the port"
            }
            Self::Other => "Is the endpoint (--rdzv-endpoint) right?",
        }
    }

    /// Why nothing comes back from a host that was asked for a connection.
    pub(crate) const DROPPED: &str = "No answer, so a firewall rather than a dead process";

    /// The finding, the remedy and the error in one sentence.
    pub(crate) fn sentence(self, servers: &str, error: &ClientError) -> String {
        let cause = match error {
            ClientError::Unavailable { source, .. }
            | ClientError::OutcomeUnknown { source, .. } => describe(source),
            error => error.to_string(),
        };
        let (finding, remedy) = (self.finding(), self.remedy());
        format!("no server answers at {servers}: {finding}. {remedy}: {cause}")
    }
}
