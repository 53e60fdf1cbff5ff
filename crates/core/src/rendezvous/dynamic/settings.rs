//! The settings of a dynamic rendezvous: the limits of the group size, and the timeouts.

use std::time::Duration;

use thiserror::Error;

use crate::rendezvous::documents::Limits;

/// The settings of a dynamic rendezvous: the limits of the group size, and the timeouts. The defaults are PyTorch's,
/// except for `cas_backoff_max`.
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
    /// The smallest and largest size of a group.
    pub limits: Limits,
    /// How long a node waits for a group.
    pub join: Duration,
    /// How long a group that is large enough waits for more nodes.
    pub last_call: Duration,
    /// How long closing the run, or leaving it, may take.
    pub close: Duration,
    /// How long one heartbeat may take.
    pub heartbeat: Duration,
    /// The interval between two heartbeats of a node.
    pub keep_alive_interval: Duration,
    /// The number of intervals without a heartbeat after which a node counts as dead.
    pub keep_alive_max_attempt: u32,
    /// The longest backoff before a write that lost against another one is retried. PyTorch has no backoff by
    /// default, so the writes of many nodes conflict again and again.
    pub cas_backoff_max: Duration,
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} {value}: {fix}")]
pub struct InvalidSetting {
    /// The name of the setting.
    pub what: &'static str,
    /// Its value.
    pub value: String,
    /// The remedy.
    pub fix: String,
}

impl DynamicSettings {
    /// Settings with these limits and the default timeouts.
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

    /// The time without a heartbeat after which a node counts as dead.
    pub fn silence(&self) -> Duration {
        self.keep_alive_interval.saturating_mul(self.keep_alive_max_attempt)
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// [`InvalidSetting`] names the first invalid setting and a remedy.
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
            // With one interval, a node whose heartbeat is late by an instant would count as dead.
            let value = self.keep_alive_max_attempt.to_string();
            return wrong("keep_alive_max_attempt", value, "give at least 2".into());
        }
        Ok(())
    }
}
