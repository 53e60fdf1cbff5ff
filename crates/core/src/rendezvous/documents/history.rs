//! The id of a history of a run.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Identifies one history of a run on a server, as a generation number does. A server that has lost its state begins
/// another history.
///
/// ```
/// use rallypoint_core::rendezvous::documents::RunHistory;
/// let history = RunHistory::new(0xab);
/// assert_eq!(history.to_string(), "00000000000000ab");
/// assert_eq!("00000000000000ab".parse(), Ok(history));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunHistory(u64);

impl RunHistory {
    /// The history of this number, which must be random.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The value of `rdzv/history`. Transactions compare its bytes, so they are the same in every version.
    pub(in crate::rendezvous) fn to_json(self) -> Bytes {
        format!("\"{self}\"").into()
    }
}

impl fmt::Display for RunHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<RunHistory> for String {
    fn from(history: RunHistory) -> Self {
        history.to_string()
    }
}

impl std::str::FromStr for RunHistory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = u64::from_str_radix(text, 16);
        number.map(Self).map_err(|error| format!("{text:?} is no history: {error}"))
    }
}

impl TryFrom<String> for RunHistory {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
