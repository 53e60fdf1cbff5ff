//! The messages to and from a guard, as text.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rallypoint_core::kv::Time;
use rustix::process::Pid;

/// The version that both sides must have.
pub(super) const HELLO: &str = concat!("rallypoint-guard ", env!("CARGO_PKG_VERSION"), " 1");

/// An entry that must not outlive this process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::process) enum GuardEntry {
    /// A process group. Its number must stay in use until the entry is removed: the leader is not reaped, or a
    /// process is left in the group.
    Group(Pid),
    /// A process group that is also killed when the fence passes.
    Workers(Pid),
    /// Every process that started with `NAME=value` in its environment, and all of their descendants. They
    /// are also killed when the fence passes.
    Marked(Vec<u8>),
    /// A directory with everything in it.
    Directory(PathBuf),
}

impl GuardEntry {
    /// A directory, by its absolute path: the guard has another working directory.
    pub(in crate::process) fn directory(path: &Path) -> io::Result<Self> {
        if !path.is_absolute() {
            let fix = "it must begin with /; TMPDIR names another place";
            let text = format!("cannot guard the directory {path:?}: {fix}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Self::Directory(path.to_owned()))
    }

    /// A mark. It must not be empty: an empty one would match every process.
    pub(in crate::process) fn marked(name: &str, value: &str) -> io::Result<Self> {
        let is_plain = |text: &str| !text.is_empty() && !text.contains('\0');
        if !is_plain(name) || name.contains('=') || !is_plain(value) || value.len() > 4096 {
            let text = format!(
                "cannot mark processes by {name:?}={value:?}: name and value must not be empty"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Self::Marked(format!("{name}={value}").into_bytes()))
    }

    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Group(leader) => format!("group {leader}").into_bytes(),
            Self::Workers(leader) => format!("workers {leader}").into_bytes(),
            Self::Marked(mark) => [b"marked ", &mark[..]].concat(),
            Self::Directory(path) => [b"directory ", path.as_os_str().as_bytes()].concat(),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = words(bytes)?;
        Some(match kind {
            b"group" => Self::Group(Pid::from_raw(number(rest)?)?),
            b"workers" => Self::Workers(Pid::from_raw(number(rest)?)?),
            b"marked" if rest.contains(&b'=') => Self::Marked(rest.to_owned()),
            b"directory" => Self::directory(Path::new(OsStr::from_bytes(rest))).ok()?,
            _ => return None,
        })
    }
}

/// A message to the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GuardOrder {
    Add(GuardEntry),
    Drop(GuardEntry),
    /// Set the fence: the time at which workers are killed unless a later one is set before.
    Fence(Option<Time>),
    /// Answer at a liveness socket, which is in the message's descriptors, with this token.
    Listen(String),
    /// Close the liveness socket with this token.
    Close(String),
}

impl GuardOrder {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Add(entry) => [b"add ", &entry.encode()[..]].concat(),
            Self::Drop(entry) => [b"drop ", &entry.encode()[..]].concat(),
            Self::Fence(None) => b"fence none".to_vec(),
            Self::Fence(Some(at)) => format!("fence {}", at.as_nanos()).into_bytes(),
            Self::Listen(token) => format!("listen {token}").into_bytes(),
            Self::Close(token) => format!("close {token}").into_bytes(),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (word, rest) = words(bytes)?;
        let text = || str::from_utf8(rest).ok().map(str::to_owned);
        Some(match word {
            b"add" => Self::Add(GuardEntry::decode(rest)?),
            b"drop" => Self::Drop(GuardEntry::decode(rest)?),
            b"fence" if rest == b"none" => Self::Fence(None),
            b"fence" => Self::Fence(Some(Duration::from_nanos(number(rest)?))),
            b"listen" => Self::Listen(text()?),
            b"close" => Self::Close(text()?),
            _ => return None,
        })
    }
}

/// A message from the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GuardReport {
    /// The guard runs, and has the same version.
    Hello,
    /// This fence has passed, and the workers were killed.
    Fenced(Time),
}

impl GuardReport {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello => HELLO.as_bytes().to_vec(),
            Self::Fenced(at) => format!("fenced {}", at.as_nanos()).into_bytes(),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes == HELLO.as_bytes() {
            return Some(Self::Hello);
        }
        let (word, rest) = words(bytes)?;
        (word == b"fenced").then_some(())?;
        Some(Self::Fenced(Duration::from_nanos(number(rest)?)))
    }
}

fn words(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = bytes.iter().position(|byte| *byte == b' ')?;
    Some((&bytes[..space], &bytes[space + 1..]))
}

fn number<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    str::from_utf8(bytes).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_decode_to_what_was_encoded() {
        let pid = Pid::from_raw(77).unwrap();
        let directory = GuardEntry::directory(Path::new("/tmp/ two\nlines \u{fc}")).unwrap();
        let entries = [
            GuardEntry::Group(pid),
            GuardEntry::Workers(pid),
            GuardEntry::marked("NAME", "a = b\n").unwrap(),
            directory,
        ];
        let mut orders = vec![
            GuardOrder::Fence(None),
            GuardOrder::Fence(Some(Duration::from_nanos(1 << 60))),
            GuardOrder::Listen("a1".to_owned()),
            GuardOrder::Close("a1".to_owned()),
        ];
        for entry in entries {
            orders.extend([GuardOrder::Add(entry.clone()), GuardOrder::Drop(entry)]);
        }
        for order in orders {
            assert_eq!(GuardOrder::decode(&order.encode()), Some(order));
        }
        for news in [GuardReport::Hello, GuardReport::Fenced(Duration::from_nanos(3))] {
            assert_eq!(GuardReport::decode(&news.encode()), Some(news));
        }
    }

    #[test]
    fn invalid_messages_are_ignored() {
        for bytes in [
            &b""[..],
            b"add",
            b"add group",
            b"add group 0",
            b"add group x",
            b"add directory relative",
            b"add marked nothing",
            b"fence",
            b"fence -1",
            b"fence 99999999999999999999999",
            b"stop everything",
        ] {
            assert_eq!(GuardOrder::decode(bytes), None, "{}", bytes.escape_ascii());
        }
        assert_eq!(GuardReport::decode(b"rallypoint-guard 0.0.0 1"), None);
    }

    #[test]
    fn relative_directories_and_empty_marks_are_refused() {
        let error = GuardEntry::directory(Path::new("relative")).unwrap_err().to_string();
        assert!(error.contains("\"relative\"") && error.contains("TMPDIR"), "{error}");
        for (name, value) in [("", "x"), ("NAME", ""), ("A=B", "x"), ("A", "\0")] {
            assert!(GuardEntry::marked(name, value).is_err(), "{name:?}={value:?}");
        }
    }
}
