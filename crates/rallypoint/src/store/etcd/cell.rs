//! What lies under one name, digits and all, as of one revision.

use bytes::Bytes;
use rallypoint_core::kv::{Compare, KeyValue, Relation, Revision, Target};
use rallypoint_core::rendezvous::keys::NameKeys;

/// The value of one name: bytes, or what a counter began with and what was added since.
#[derive(Debug, Default)]
pub(super) struct Cell {
    base: Option<KeyValue>,
    /// The sum of all digits, if there are any.
    added: Option<i128>,
    revision: Revision,
}

/// A counter that did not begin with a whole number.
pub(super) struct NoNumber(pub(super) String);

impl Cell {
    /// What was found in the range of digits and value when the store was at this revision.
    pub(super) fn new(keys: &NameKeys, revision: Revision, found: Vec<KeyValue>) -> Self {
        let mut cell = Self { revision, ..Self::default() };
        for kv in found {
            if let Some(digit) = keys.digit_of(&kv.key) {
                // Each side stays below 2^127 even if every version were the largest there is.
                *cell.added.get_or_insert(0) += digit.weight() * i128::from(kv.version);
            } else {
                cell.base = Some(kv);
            }
        }
        cell
    }

    /// What a counter began with, or bytes that nothing was added to.
    pub(super) fn base(&self) -> Bytes {
        self.base.as_ref().map(|kv| kv.value.clone()).unwrap_or_default()
    }

    /// The value, if there is one.
    pub(super) fn value(&self) -> Result<Option<Bytes>, NoNumber> {
        match (&self.base, self.added) {
            (None, _) => Ok(None),
            (Some(kv), None) => Ok(Some(kv.value.clone())),
            (Some(_), Some(_)) => Ok(Some(self.sum()?.to_string().into())),
        }
    }

    /// The value as a number.
    pub(super) fn sum(&self) -> Result<i128, NoNumber> {
        let text = String::from_utf8_lossy(&self.base()).into_owned();
        let base: i64 = text.trim().parse().map_err(|_| NoNumber(text))?;
        Ok(i128::from(base) + self.added.unwrap_or(0))
    }

    /// Holds until somebody writes or deletes the value, however much is added.
    pub(super) fn same_base(&self, keys: &NameKeys) -> Compare {
        match &self.base {
            None => Compare::absent(keys.value()),
            Some(kv) => Compare::unchanged_since(keys.value(), kv.mod_revision),
        }
    }

    /// Holds while the value is this one. Whatever takes digits away writes the base too, or deletes it,
    /// so no digit needs to be named.
    pub(super) fn unchanged(&self, keys: &NameKeys) -> [Compare; 2] {
        let target = Target::Mod(self.revision + 1);
        let digits = Compare { range: keys.digits(), relation: Relation::Less, target };
        [self.same_base(keys), digits]
    }
}
