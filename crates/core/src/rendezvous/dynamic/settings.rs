//! How large a group may be, and how long everything may take.

use std::time::Duration;

use thiserror::Error;

use crate::rendezvous::documents::Limits;

/// How large a group may be, and how long everything may take. The defaults are PyTorch's but for the
/// last.
///
/// ```
/// use rallypoint_core::rendezvous::dynamic::DynamicSettings;
/// use rallypoint_core::rendezvous::documents::Limits;
/// let settings = DynamicSettings::new(Limits { min: 2, max: 4 });
/// assert_eq!(settings.silence().as_secs(), 15);
/// let error = DynamicSettings::new(Limits { min: 5, max: 4 }).validate().unwrap_err().to_string();
/// assert_eq!(error, "max_nodes 4: give at least min_nodes, which is 5");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct DynamicSettings {
    /// How large a group may be.
    pub limits: Limits,
    /// How long a node waits for a group.
    pub join: Duration,
    /// How long a group that is large enough waits for more nodes.
    pub last_call: Duration,
    /// How long closing the run, or leaving it, may take.
    pub close: Duration,
    /// How long one heartbeat may take.
    pub heartbeat: Duration,
    /// How often a node shows that it lives.
    pub keep_alive_interval: Duration,
    /// So many intervals without a heartbeat, and a node counts as dead.
    pub keep_alive_max_attempt: u32,
    /// The longest pause before a write that lost against another is tried again. PyTorch's default
    /// is none, which makes a crowd of nodes trip over each other.
    pub cas_backoff_max: Duration,
}

/// A setting makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} {value}: {fix}")]
pub struct InvalidSetting {
    /// Which.
    pub what: &'static str,
    /// What it was.
    pub value: String,
    /// What would be right.
    pub fix: String,
}

impl DynamicSettings {
    /// Groups of this size, and the usual times.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            join: Duration::from_secs(600),
            last_call: Duration::from_secs(30),
            close: Duration::from_secs(30),
            heartbeat: Duration::from_secs(5),
            keep_alive_interval: Duration::from_secs(5),
            keep_alive_max_attempt: 3,
            cas_backoff_max: Duration::from_millis(100),
        }
    }

    /// How long a node may be silent before it counts as dead.
    pub fn silence(&self) -> Duration {
        self.keep_alive_interval.saturating_mul(self.keep_alive_max_attempt)
    }

    /// Checks all of it.
    ///
    /// # Errors
    /// [`InvalidSetting`] names the first that is wrong and what would be right.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        let wrong = |what, value: String, fix: String| Err(InvalidSetting { what, value, fix });
        let Limits { min, max } = self.limits;
        if min == 0 {
            return wrong("min_nodes", min.to_string(), "give at least 1".into());
        }
        if max < min {
            let fix = format!("give at least min_nodes, which is {min}");
            return wrong("max_nodes", max.to_string(), fix);
        }
        for (what, value) in [
            ("join_timeout", self.join),
            ("last_call_timeout", self.last_call),
            ("close_timeout", self.close),
            ("heartbeat_timeout", self.heartbeat),
            ("keep_alive_interval", self.keep_alive_interval),
        ] {
            if value.is_zero() {
                return wrong(what, format!("{value:?}"), "give more than 0 seconds".into());
            }
        }
        if self.keep_alive_max_attempt < 2 {
            // With one attempt a node that is late by an instant would count as dead.
            let value = self.keep_alive_max_attempt.to_string();
            return wrong("keep_alive_max_attempt", value, "give at least 2".into());
        }
        Ok(())
    }
}
