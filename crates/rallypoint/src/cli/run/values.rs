//! The options' values, parsed from text. Each error says what would be right; clap, or the reader of the
//! environment, adds the option and the value.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use rallypoint_core::agent::{HangPolicy, RestartBackoff, signal_name};

use crate::config::progress::hang_policy;
use crate::config::sizes::sizes;
use crate::config::values;
use crate::launch::job::{LocalRanks, NumaBinding, SignalList, StreamSelection, Streams};

/// The number of nodes: `N`, or `MIN:MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) min: usize,
    pub(crate) max: usize,
}

impl FromStr for Nodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once(':').unwrap_or((text, text));
        match (min.trim().parse(), max.trim().parse()) {
            (Ok(min), Ok(max)) if 0 < min && min <= max => Ok(Self { min, max }),
            _ => Err("give a number of nodes, such as 4, or MIN:MAX, such as 2:4".to_owned()),
        }
    }
}

/// The only sizes that a group may have: `2,4,8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SizeList(pub(crate) Vec<usize>);

impl FromStr for SizeList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        sizes(text).map(Self).map_err(|_| "give numbers of nodes, such as 2,4,8".to_owned())
    }
}

/// The number of workers of a node, or the devices to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workers {
    Count(u32),
    /// The number of GPUs, or of processors without a GPU.
    Auto,
    Cpu,
    Gpu,
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "gpu" => Ok(Self::Gpu),
            _ => match text.parse() {
                Ok(count) if count > 0 => Ok(Self::Count(count)),
                _ => {
                    Err("give a number of at least 1, or auto, cpu or gpu; other devices are not \
                          counted, so give their number"
                        .to_owned())
                }
            },
        }
    }
}

/// The server that the job brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Rallypoint's own, in the process of one launcher.
    Embedded,
    /// A cluster of real etcds, one on each of some hosts.
    Etcd,
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "embedded" => Ok(Self::Embedded),
            "etcd" => Ok(Self::Etcd),
            _ => Err("give embedded or etcd".to_owned()),
        }
    }
}

/// Parses a time in seconds, with or without a fraction.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    values::seconds(text, 0.0)
}

/// Parses a number of ports.
pub(super) fn ports(text: &str) -> Result<usize, String> {
    const MOST: usize = 64;
    let count = text.parse().ok().filter(|count| *count <= MOST);
    count.ok_or_else(|| format!("give a number of ports from 0 to {MOST}"))
}

/// Parses an interval, which must not be 0.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    match seconds(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("give seconds above 0, such as 0.1".to_owned()),
    }
}

/// Parses text that must not be empty.
pub(super) fn name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("give a name, or leave the option out".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses a command of the shell, which must not be blank.
pub(super) fn shell_command(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("give a command, or leave the option out".to_owned());
    }
    Ok(text.to_owned())
}

/// A time limit, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeLimit(pub(crate) Option<Duration>);

impl FromStr for TimeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        seconds(text).map(|time| Self(Some(time))).map_err(|fix| format!("{fix}, or none"))
    }
}

/// The restart backoff: the first pause, and the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delay(pub(crate) RestartBackoff);

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, longest) = text.split_once(':').unwrap_or((text, text));
        let wrong = |fix| format!("{fix}; the longest pause may follow: 1:30");
        let delay = RestartBackoff {
            first: seconds(first).map_err(wrong)?,
            longest: seconds(longest).map_err(wrong)?,
        };
        if delay.longest < delay.first {
            return Err("the longest pause comes after the colon: give 1:30, not 30:1".to_owned());
        }
        Ok(Self(delay))
    }
}

/// The limits of a time without progress: between two signs of it, and before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HangAfter(pub(crate) HangPolicy);

impl FromStr for HangAfter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        hang_policy(text).map(Self)
    }
}

/// What follows from the report of a hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HangAction {
    Report,
    Restart,
}

impl FromStr for HangAction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "report" => Ok(Self::Report),
            "restart" => Ok(Self::Restart),
            _ => Err("give report or restart".to_owned()),
        }
    }
}

/// The exit code of a non-retryable failure, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRestart(pub(crate) Option<i32>);

impl FromStr for NoRestart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "none" => Ok(Self(None)),
            Ok(code @ 1..=255) => Ok(Self(Some(code))),
            _ => Err("give an exit code from 1 to 255, or none".to_owned()),
        }
    }
}

/// The signals that a process can handle and that do not report a fault of its own.
const HANDLED: [i32; 8] = [1, 2, 3, 10, 12, 14, 15, 24];

fn handled_signal(name: &str) -> Result<i32, String> {
    let name = name.trim();
    let found = HANDLED.into_iter().find(|signal| signal_name(*signal) == Some(name));
    found.ok_or_else(|| {
        let known: Vec<&str> = HANDLED.into_iter().filter_map(signal_name).collect();
        format!("{name:?} is no signal that can be handled; there are {}", known.join(", "))
    })
}

impl FromStr for SignalList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut signals = Vec::new();
        for name in text.split(',') {
            let signal = handled_signal(name)?;
            if !signals.contains(&signal) {
                signals.push(signal);
            }
        }
        Ok(Self(signals))
    }
}

/// The notice to workers before a stop: its time, and its signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoticeOption {
    pub(crate) time: Duration,
    pub(crate) signal: i32,
}

impl Default for NoticeOption {
    /// No notice. SIGUSR1 is the signal if the user gives a time alone.
    fn default() -> Self {
        Self { time: Duration::ZERO, signal: 10 }
    }
}

impl FromStr for NoticeOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (time, signal) = match text.split_once(':') {
            None => (text, Self::default().signal),
            Some((time, name)) => (time, handled_signal(name)?),
        };
        let wrong = |fix| format!("{fix}; a signal may follow: 30:SIGUSR2");
        Ok(Self { time: seconds(time).map_err(wrong)?, signal })
    }
}

impl FromStr for Streams {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            digit @ ("0" | "1" | "2" | "3") => {
                Ok(Self { stdout: matches!(digit, "1" | "3"), stderr: matches!(digit, "2" | "3") })
            }
            _ => Err(
                "give 0 (none), 1 (standard output), 2 (standard error) or 3 (both), or some of \
                      them by local rank, such as 0:3,11:1"
                    .to_owned(),
            ),
        }
    }
}

impl FromStr for StreamSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains(':') {
            return text.parse().map(Self::All);
        }
        let mut ranks = BTreeMap::new();
        for pair in text.split(',') {
            let (rank, streams) = pair.split_once(':').unwrap_or((pair, ""));
            let streams: Streams = streams.parse()?;
            let rank: u32 = rank.trim().parse().map_err(|_| {
                format!("{rank:?} is no local rank; give 0:3,11:1 for local ranks 0 and 11")
            })?;
            if ranks.insert(rank, streams).is_some() {
                return Err(format!("local rank {rank} is there twice; give it once"));
            }
        }
        Ok(Self::Some(ranks))
    }
}

impl FromStr for LocalRanks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ranks = text.split(',').map(str::trim).filter(|_| !text.trim().is_empty());
        let ranks: Result<_, _> = ranks.map(str::parse).collect();
        let wrong = |_| "give local ranks, several separated by commas, such as 0,3".to_owned();
        ranks.map(Self).map_err(wrong)
    }
}

impl ValueEnum for NumaBinding {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Node, Self::Socket, Self::Exclusive, Self::CoreComplex]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Node => "node",
            Self::Socket => "socket",
            Self::Exclusive => "exclusive",
            Self::CoreComplex => "core-complex",
        }))
    }
}

#[cfg(test)]
mod tests;
