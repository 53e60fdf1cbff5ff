//! Signs of progress and their limits, as users write them: for the launcher and for the plugin of torchrun.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use rallypoint_core::agent::HangPolicy;

use super::values::{MIN_SECONDS, seconds};

/// How much longer than the next one the first sign of progress may take.
const FIRST_FACTOR: u32 = 3;

/// Reads the limits of a time without progress: `600`, or with the limit of the first sign `600:1800`.
pub(crate) fn hang_policy(text: &str) -> Result<HangPolicy, String> {
    let interval = |text: &str| {
        let fix =
            |fix| format!("{fix}; the limit of the first sign of progress may follow: 600:1800");
        seconds(text, MIN_SECONDS).map_err(fix)
    };
    let (after, first) = match text.split_once(':') {
        None => (interval(text)?, None),
        Some((after, first)) => (interval(after)?, Some(interval(first)?)),
    };
    let first = first.unwrap_or_else(|| after.saturating_mul(FIRST_FACTOR));
    Ok(HangPolicy { after, first })
}

/// The sign by which workers show progress.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ProgressSign {
    /// Beats, once a worker of this node has beaten. Until then the output of the workers of the node of rank 0, since
    /// often rank 0 alone prints. Output that the node does not see is not expected.
    #[default]
    Auto,
    /// Output of any worker of the node.
    Output,
    /// Beats: writes to the worker's file.
    Beat,
    /// A change of this file.
    File(PathBuf),
}

impl fmt::Display for ProgressSign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Output => f.write_str("output"),
            Self::Beat => f.write_str("beat"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// The error is the remedy.
impl FromStr for ProgressSign {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("file:")) {
            ("auto", _) => Ok(Self::Auto),
            ("output", _) => Ok(Self::Output),
            ("beat", _) => Ok(Self::Beat),
            (_, Some(path)) if !path.is_empty() => Ok(Self::File(path.into())),
            _ => Err("give auto, output, beat or file:PATH".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_progress_may_be_longer_at_first() {
        let limits = |text: &str| {
            let HangPolicy { after, first } = hang_policy(text).unwrap();
            (after.as_secs_f64(), first.as_secs_f64())
        };
        assert_eq!(limits("600"), (600.0, 1800.0));
        assert_eq!(limits("1.5:1"), (1.5, 1.0));
        for text in ["", "0", "1:0", "1:", ":1", "-1", "none"] {
            assert!(hang_policy(text).is_err(), "{text}");
        }
        for text in ["auto", "output", "beat", "file:/a b"] {
            assert_eq!(text.parse::<ProgressSign>().unwrap().to_string(), text);
        }
        for text in ["", "file:", "file", "Beat"] {
            assert!(text.parse::<ProgressSign>().is_err(), "{text}");
        }
    }
}
