//! The sizes of a run's group in phrases: which it may have, what it waits for, and when it grows.

use super::{RunStatus, age, count};
use crate::rendezvous::documents::DisplayTime;

impl RunStatus {
    /// The sizes that a group may have: `4`, `2 to 8`, or `2, 4 or 8`.
    pub(super) fn wanted(&self) -> String {
        let counts = self.counts;
        match counts.limits().and_then(|limits| self.sizes.list(limits)) {
            Some(sizes) => match sizes.rsplit_once(", ") {
                Some((first, last)) => format!("{first} or {last}"),
                None => sizes,
            },
            None if counts.min == counts.max => counts.max.to_string(),
            None => format!("{} to {}", counts.min, counts.max),
        }
    }

    /// How many nodes are planned, if more of them may come.
    pub(super) fn planned(&self) -> Option<usize> {
        self.sizes.planned.filter(|planned| self.counts.present < *planned)
    }

    /// The next larger size of the group that runs.
    pub(super) fn next_size(&self) -> Option<usize> {
        self.sizes.next(self.counts.limits()?, self.counts.present)
    }

    /// What an enough large round waits for in its last call.
    pub(super) fn last_call(&self) -> String {
        let (here, wanted) = (self.counts.present, self.wanted());
        match self.planned() {
            Some(planned) => format!(
                "It has {here} of {planned} planned nodes ({wanted} wanted), which is enough, and waits for the others \
                 until the last call is over."
            ),
            None => format!(
                "It has {here} of {wanted} nodes, which is enough, and waits for more until the last call is over."
            ),
        }
    }

    /// Why spares stand by.
    pub(super) fn spares_because(&self) -> String {
        let present = self.counts.present;
        match self.next_size() {
            None => "the group is full".to_owned(),
            Some(next) => format!(
                "the group has {present} nodes, and its next size, {next}, needs {} in all",
                count(next.saturating_sub(present), "spare")
            ),
        }
    }

    /// When the group re-forms with late nodes.
    pub(super) fn grows(&self, now: DisplayTime) -> String {
        let after = self.sizes.scale_up_after();
        let lasted = self.since.map(|since| now.elapsed_since(since)).unwrap_or_default();
        match after.saturating_sub(lasted) {
            left if left.is_zero() => "the group re-forms with it after the notice".to_owned(),
            left => format!(
                "the group does not grow for {} after it has formed (scale_up_after), which is for {} more",
                age(after),
                age(left)
            ),
        }
    }

    /// What more nodes would do for a group that runs; none if it is full.
    pub(super) fn room(&self) -> Option<String> {
        let more = self.next_size()?.saturating_sub(self.counts.present);
        let lacks = more.saturating_sub(self.counts.spare);
        let one = if lacks == 1 { "one".to_owned() } else { lacks.to_string() };
        let largest = self.sizes.largest(self.counts.limits()?) - self.counts.present;
        let it = if lacks == 1 { "it" } else { "them" };
        let room = count(largest, "more node");
        (lacks > 0).then(|| {
            format!(
                "The group has room for {room}: start {one} with the same --rdzv-id and --rdzv-endpoint, and the group \
                 re-forms with {it}."
            )
        })
    }
}
