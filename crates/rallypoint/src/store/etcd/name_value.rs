//! The value under one name, with its counter digits, as of one revision.

use bytes::Bytes;
use rallypoint_core::kv::{Compare, CompareTarget, KeyValue, Relation, Revision};
use rallypoint_core::rendezvous::keys::NameKeys;

/// The value of one name: bytes, or the base of a counter and the sum of its additions.
#[derive(Debug, Default)]
pub(super) struct NameValue {
    base: Option<KeyValue>,
    /// The sum of all digits, if there are any.
    added: Option<i128>,
    revision: Revision,
}

/// The error of a counter whose base is not a whole number.
pub(super) struct NoNumber(pub(super) String);

impl NameValue {
    /// The value from the pairs in the range of digits and value, read at this revision.
    pub(super) fn new(keys: &NameKeys, revision: Revision, found: Vec<KeyValue>) -> Self {
        let mut current = Self { revision, ..Self::default() };
        for kv in found {
            if let Some(digit) = keys.digit_of(&kv.key) {
                // Each side stays below 2^127 even if every version has the largest value.
                *current.added.get_or_insert(0) += digit.weight() * i128::from(kv.version);
            } else {
                current.base = Some(kv);
            }
        }
        current
    }

    /// The base of a counter, or the bytes of a value without additions.
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

    /// A condition that holds until the value is written or deleted; additions do not affect it.
    pub(super) fn same_base(&self, keys: &NameKeys) -> Compare {
        match &self.base {
            None => Compare::absent(keys.value()),
            Some(kv) => Compare::unchanged_since(keys.value(), kv.mod_revision),
        }
    }

    /// A condition that holds while the value is unchanged. Every operation that removes digits also writes or
    /// deletes the base, so no digit needs to be compared.
    pub(super) fn unchanged(&self, keys: &NameKeys) -> [Compare; 2] {
        let target = CompareTarget::Mod(self.revision + 1);
        let digits = Compare { range: keys.digits(), relation: Relation::Less, target };
        [self.same_base(keys), digits]
    }
}
