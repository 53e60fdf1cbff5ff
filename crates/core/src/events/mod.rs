//! Events: what the state machines of a node decided, when and why, as JSON lines for people and programs.
//!
//! - [`RunEvent`]: one line, with its [`EventBody`]. `docs/reference/events.md` describes every kind.
//! - [`EventObserver`]: the one place that derives events, from the inputs and outputs of [`Agent`](crate::agent::Agent) and
//!   [`Node`](crate::rendezvous::Node).
//! - [`Journal`]: the lines of one node: the events, and by choice the inputs and outputs between them.
//! - [`Replay`]: gives the recorded inputs to the machines again, and compares what they decide.
//! - [`run_events`]: the events of the run, from one state of its document to the next. The coordinator keeps the last
//!   of them in the keys of the run.
//!
//! ```
//! use rallypoint_core::events::{RunEvent, EventBody};
//!
//! let line = r#"{"format":1,"seq":7,"time":"2026-01-01T00:00:00.000Z","ms":12,"run_id":"job","node_id":"a",
//!     "round":2,"kind":"nodes_waiting","count":1,"a later field":true}"#;
//! let event = RunEvent::parse(line)?;
//! assert_eq!((event.round, event.body), (2, EventBody::NodesWaiting { count: 1 }));
//! let later = line.replace("nodes_waiting", "a_later_kind");
//! assert_eq!(RunEvent::parse(&later)?.body, EventBody::Unknown);
//! # Ok::<(), rallypoint_core::events::EventError>(())
//! ```

mod body;
mod journal;
mod observer;
mod replay;
mod run;
mod time;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::body::{EventBody, Registered};
pub use self::journal::{Detail, Journal, Moment};
pub use self::observer::{EventObserver, Observation};
pub use self::replay::{Replay, ReplayError, Replayed};
pub use self::run::{RUN_EVENTS, run_events};
pub(crate) use self::run::{Stamp, stored_events};
pub use self::time::{rfc3339, unix_millis};

/// The format of the events that this version writes and reads.
pub const FORMAT: u32 = 1;

/// One event, as a line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEvent {
    /// The format of the line: [`FORMAT`].
    pub format: u32,
    /// The number of the line among those of its node, from 1; in the keys of the run, the number among those of the
    /// run.
    pub seq: u64,
    /// The wall-clock time in UTC, by the clock of the node. It is for display only: clocks of hosts differ.
    pub time: String,
    /// The time since the start of the node, in milliseconds, by a clock that is never set.
    pub ms: u64,
    /// The run. Left out in the keys of the run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_id: String,
    /// The id of the node that recorded the event.
    pub node_id: String,
    /// The round that the event belongs to; 0 if it belongs to none.
    pub round: u64,
    /// The kind, and its fields.
    #[serde(flatten)]
    pub body: EventBody,
    /// Why, in a sentence; empty if there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Why a line is no event.
#[derive(Debug, Error)]
pub enum EventError {
    /// The line has another format.
    #[error(
        "the event has format {0}, and this version reads format {FORMAT}: use the version that wrote it"
    )]
    Format(u64),
    /// The line is malformed.
    #[error("the line is no event")]
    Malformed(#[from] serde_json::Error),
}

impl RunEvent {
    /// The event as one line, without a line feed.
    pub fn to_line(&self) -> String {
        // An event consists of numbers, strings and lists, which JSON can always represent.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a line. Fields of later versions are ignored, and a kind of a later version is [`EventBody::Unknown`].
    ///
    /// # Errors
    /// [`EventError`], if the line has another format or is malformed.
    pub fn parse(line: &str) -> Result<Self, EventError> {
        #[derive(Deserialize)]
        struct Format {
            format: u64,
        }
        let Format { format } = serde_json::from_str(line)?;
        if format != u64::from(FORMAT) {
            return Err(EventError::Format(format));
        }
        Ok(serde_json::from_str(line)?)
    }
}

/// Whole milliseconds.
fn millis(time: crate::kv::Time) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
