//! Keys read back, for operators: which runs a server has, and what each key of a run is about.

use super::Keys;
use crate::kv::KeyRange;

/// What a key of a run is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunKey<'a> {
    /// [`Keys::active`].
    Active,
    /// [`Keys::round`].
    Round,
    /// [`Keys::restarts`].
    Restarts,
    /// [`Keys::failure`].
    Failure,
    /// [`Keys::hang`].
    Hang,
    /// A place of [`Keys::events`].
    Event(u64),
    /// [`Keys::node`] of this id.
    Node(&'a str),
    /// [`Keys::exit`] of this name.
    Exit(&'a str),
    /// [`Keys::waiting`] of this id.
    Waiting(&'a str),
    /// [`Keys::spare`] of this id.
    Spare(&'a str),
    /// [`Keys::objector`] of this id.
    Objector(&'a str),
    /// [`Keys::suspect`] of this id.
    Suspect(&'a str),
    /// [`Keys::member`] of this round and id.
    Member(u64, &'a str),
    /// [`Keys::rank`] of this round and id.
    Rank(u64, &'a str),
    /// [`Keys::ready`] of this round and id.
    Ready(u64, &'a str),
    /// [`Keys::left`] of this round and id.
    Left(u64, &'a str),
}

impl Keys {
    /// The documents of a run that belong to no round: two ranges, since the rounds, which have stores of any size, are
    /// between them.
    pub fn documents(&self) -> [KeyRange; 2] {
        let (start, end) = (format!("{}rdzv/", self.root), format!("{}rdzv/v_", self.root));
        [KeyRange::Span(start.into(), end.into()), self.all_waiting()]
    }

    /// The members, ranks and confirmations of a round.
    pub fn membership(&self, round: u64) -> [KeyRange; 3] {
        [self.members(round), self.ranks(round), self.all_ready(round)]
    }

    /// What this key of the run is about; `None` for other keys.
    ///
    /// ```
    /// use rallypoint_core::rendezvous::keys::{Keys, RunKey};
    /// let keys = Keys::new("/torchelastic/p2p", "job-7");
    /// assert_eq!(keys.parse(keys.member(3, "a").as_bytes()), Some(RunKey::Member(3, "a")));
    /// assert_eq!(keys.parse(keys.active().as_bytes()), Some(RunKey::Active));
    /// assert_eq!(keys.parse(keys.history().as_bytes()), None);
    /// ```
    pub fn parse<'a>(&self, key: &'a [u8]) -> Option<RunKey<'a>> {
        let rest =
            std::str::from_utf8(key).ok()?.strip_prefix(&self.root)?.strip_prefix("rdzv/")?;
        let of_round = |rest: &'a str| {
            let (round, rest) = rest.split_once('/')?;
            let (kind, id) = rest.split_once('/')?;
            let round = round.parse().ok()?;
            match kind {
                "member" => Some(RunKey::Member(round, id)),
                "rank" => Some(RunKey::Rank(round, id)),
                "ready" => Some(RunKey::Ready(round, id)),
                "left" => Some(RunKey::Left(round, id)),
                _ => None,
            }
        };
        match rest.split_once('/') {
            None => match rest {
                "active" => Some(RunKey::Active),
                "round" => Some(RunKey::Round),
                "restarts" => Some(RunKey::Restarts),
                "failure" => Some(RunKey::Failure),
                "hang" => Some(RunKey::Hang),
                _ => None,
            },
            Some(("events", place)) => place.parse().ok().map(RunKey::Event),
            Some(("node", id)) => Some(RunKey::Node(id)),
            Some(("exit", name)) => Some(RunKey::Exit(name)),
            Some(("waiting", id)) => Some(RunKey::Waiting(id)),
            Some(("spare", id)) => Some(RunKey::Spare(id)),
            Some(("objector", id)) => Some(RunKey::Objector(id)),
            Some(("suspect", id)) => Some(RunKey::Suspect(id)),
            Some(_) => of_round(rest.strip_prefix("v_")?),
        }
    }

    /// The keys of all runs below `prefix`, or those after the run of a key that was found there. The first key of this
    /// range tells the next run, so that the runs of a server are listed without reading all of their keys.
    ///
    /// ```
    /// use rallypoint_core::rendezvous::keys::Keys;
    /// let [a, b] = ["a", "b"].map(|run| Keys::new("/p", run).active());
    /// assert!(Keys::runs("/p", None).contains(b.as_bytes()));
    /// assert!(Keys::runs("/p", Some(a.as_bytes())).contains(b.as_bytes()));
    /// assert!(!Keys::runs("/p", Some(b.as_bytes())).contains(b.as_bytes()));
    /// assert_eq!(Keys::run_of("/p", b.as_bytes()), Some("b"));
    /// ```
    pub fn runs(prefix: &str, after: Option<&[u8]>) -> KeyRange {
        let all = KeyRange::prefix(format!("{}/run_", prefix.trim_end_matches('/')));
        let (KeyRange::Span(_, end), Some(found)) = (&all, after) else { return all };
        let run = Self::run_of(prefix, found).map(|run| Self::new(prefix, run).root);
        let next = match run.map(KeyRange::prefix) {
            Some(KeyRange::Span(_, next)) => next,
            // No key of a run: the one after it.
            _ => [found, b"\0"].concat().into(),
        };
        KeyRange::Span(next, end.clone())
    }

    /// The id of the run that this key belongs to.
    pub fn run_of<'a>(prefix: &str, key: &'a [u8]) -> Option<&'a str> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(prefix.trim_end_matches('/'))?;
        let (run, _) = rest.strip_prefix("/run_")?.split_once("/rdzv/")?;
        Some(run)
    }
}
