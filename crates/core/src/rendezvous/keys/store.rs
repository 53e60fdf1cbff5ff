//! The keys of a store on etcd: values, counters and queues, by name.
//!
//! All keys of one name begin with `{prefix}{length}:{name}`. The length makes sure that no name is a prefix of another,
//! whatever bytes it has. The rest of the key says what it holds, in this order:
//!
//! | | |
//! |---|---|
//! | `+05`, `-05` | a digit: the number of its puts is how often 2⁵ was added or subtracted |
//! | `=` | the value, or the initial value of a counter |
//! | `>…` | an item of the queue |

use bytes::Bytes;

use crate::kv::KeyRange;

/// The keys of one store.
///
/// ```
/// use rallypoint_core::rendezvous::keys::StoreKeys;
/// let keys = StoreKeys::new("/jobs/7/");
/// assert_eq!(keys.of(b"master").value(), "/jobs/7/6:master=");
/// assert_eq!(keys.name_of_value(b"/jobs/7/6:master=").unwrap(), b"master");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreKeys {
    prefix: Bytes,
}

impl StoreKeys {
    /// The keys that begin with exactly `prefix`.
    pub fn new(prefix: impl Into<Bytes>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// Every key of the store.
    pub fn all(&self) -> KeyRange {
        KeyRange::prefix(self.prefix.clone())
    }

    /// Every key of the store after this one.
    pub fn behind(&self, key: &[u8]) -> KeyRange {
        let next = [key, b"\0"].concat().into();
        match self.all() {
            KeyRange::Span(_, end) => KeyRange::Span(next, end),
            KeyRange::Key(_) | KeyRange::From(_) => KeyRange::From(next),
        }
    }

    /// The keys of one name.
    pub fn of(&self, name: &[u8]) -> NameKeys {
        let length = format!("{}:", name.len());
        NameKeys { stem: [&self.prefix, length.as_bytes(), name].concat() }
    }

    /// The name whose value has this key, if it is the key of a value.
    pub fn name_of_value<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let behind = key.strip_prefix(self.prefix.as_ref())?;
        let colon = behind.iter().position(|byte| *byte == b':')?;
        let length = std::str::from_utf8(&behind[..colon]).ok()?.parse().ok()?;
        let (name, kind) = behind[colon + 1..].split_at_checked(length)?;
        (kind == b"=").then_some(name)
    }
}

/// One digit of a counter: a power of two, added or subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digit {
    bit: u32,
    negative: bool,
}

impl Digit {
    /// The digits that make up `amount`.
    ///
    /// ```
    /// use rallypoint_core::rendezvous::keys::Digit;
    /// let weights: Vec<i128> = Digit::of(-5).map(Digit::weight).collect();
    /// assert_eq!(weights, [-1, -4]);
    /// ```
    pub fn of(amount: i64) -> impl Iterator<Item = Self> {
        let bits = (0..u64::BITS).filter(move |bit| amount.unsigned_abs() >> bit & 1 == 1);
        bits.map(move |bit| Self { bit, negative: amount < 0 })
    }

    /// The digit that undoes this one.
    #[must_use]
    pub fn opposite(self) -> Self {
        Self { negative: !self.negative, ..self }
    }

    /// The amount that one put of the digit adds.
    pub fn weight(self) -> i128 {
        if self.negative { -(1 << self.bit) } else { 1 << self.bit }
    }
}

/// The keys of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameKeys {
    stem: Vec<u8>,
}

impl NameKeys {
    fn key(&self, kind: &[u8]) -> Bytes {
        [&self.stem, kind].concat().into()
    }

    fn span(&self, from: &[u8], to: &[u8]) -> KeyRange {
        KeyRange::Span(self.key(from), self.key(to))
    }

    /// The smallest length of a key of this name.
    pub fn length(&self) -> usize {
        self.stem.len()
    }

    /// The value.
    pub fn value(&self) -> Bytes {
        self.key(b"=")
    }

    /// One digit of a counter.
    pub fn digit(&self, digit: Digit) -> Bytes {
        let sign = if digit.negative { '-' } else { '+' };
        self.key(format!("{sign}{:02}", digit.bit).as_bytes())
    }

    /// The digit that has this key, if it is the key of a digit.
    pub fn digit_of(&self, key: &[u8]) -> Option<Digit> {
        let (sign, bit) = key.strip_prefix(self.stem.as_slice())?.split_first()?;
        let bit = std::str::from_utf8(bit).ok()?.parse().ok()?;
        let negative = match sign {
            b'+' => false,
            b'-' => true,
            _ => return None,
        };
        (bit < u64::BITS).then_some(Digit { bit, negative })
    }

    /// All digits.
    pub fn digits(&self) -> KeyRange {
        self.span(b"+", b".")
    }

    /// All digits, and the value.
    pub fn digits_and_value(&self) -> KeyRange {
        self.span(b"+", b">")
    }

    /// The value and the queue: the name exists if this range has a key.
    pub fn value_and_queue(&self) -> KeyRange {
        self.span(b"=", b"?")
    }

    /// An item of the queue. `number` must be unique; the order of the queue is the order of creation.
    pub fn item(&self, number: u128) -> Bytes {
        self.key(format!(">{number:032x}").as_bytes())
    }

    /// The whole queue.
    pub fn queue(&self) -> KeyRange {
        self.span(b">", b"?")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&[u8]; 12] =
        [b"", b"a", b"aa", b"a=", b"a>", b"a+00", b"1:a", b"0:", b":", b"=", b"\0", b"\xff\xff"];

    #[test]
    fn the_keys_of_a_name_are_in_its_ranges_and_in_no_other_name_s() {
        for prefix in ["/job/", "", "1:"] {
            let keys = StoreKeys::new(prefix);
            for name in NAMES {
                let own = keys.of(name);
                let digits: Vec<Bytes> = Digit::of(-1)
                    .chain(Digit::of(i64::MIN))
                    .map(|digit| own.digit(digit))
                    .collect();
                let all = [own.value(), own.item(0), own.item(u128::MAX), digits[0].clone()];
                for key in all.iter().chain(&digits) {
                    assert!(keys.all().contains(key));
                    assert_eq!(own.digits().contains(key), digits.contains(key), "{key:?}");
                    assert_eq!(own.queue().contains(key), key.len() > own.value().len() + 9);
                    let counter = digits.contains(key) || *key == own.value();
                    assert_eq!(own.digits_and_value().contains(key), counter, "{key:?}");
                    assert_eq!(own.value_and_queue().contains(key), !digits.contains(key));
                    for other in NAMES.into_iter().filter(|other| *other != name) {
                        let other = keys.of(other);
                        let ranges = [other.digits_and_value(), other.value_and_queue()];
                        assert!(!ranges.iter().any(|range| range.contains(key)), "{key:?}");
                    }
                }
                assert_eq!(keys.name_of_value(&own.value()), Some(name));
                assert_eq!(keys.name_of_value(&own.item(7)), None);
                assert_eq!(keys.name_of_value(&digits[0]), None);
            }
        }
    }

    #[test]
    fn what_lies_elsewhere_is_no_name() {
        let keys = StoreKeys::new("/job/");
        let elsewhere: [&[u8]; 7] =
            [b"/job/", b"/job/=", b"/job/1=", b"/job/2:a=", b"/job/-1:=", b"/other/1:a=", b""];
        for key in elsewhere {
            assert_eq!(keys.name_of_value(key), None, "{key:?}");
        }
        let own = keys.of(b"n");
        for key in [&b"/job/1:n+64"[..], b"/job/1:n+x", b"/job/1:n+", b"/job/1:n=", b"/job/1:m+00"]
        {
            assert_eq!(own.digit_of(key), None, "{key:?}");
        }
    }

    #[test]
    fn digits_make_up_their_amount() {
        for amount in [0, 1, -1, 7, -1_000_000_007, i64::MAX, i64::MIN, i64::MIN + 1] {
            assert_eq!(Digit::of(amount).map(Digit::weight).sum::<i128>(), i128::from(amount));
            let keys = StoreKeys::new("/").of(b"n");
            for digit in Digit::of(amount) {
                assert_eq!(digit.opposite().weight(), -digit.weight());
                assert_eq!(keys.digit_of(&keys.digit(digit)), Some(digit));
            }
        }
    }

    #[test]
    fn reading_on_skips_nothing() {
        let keys = StoreKeys::new("/job/");
        let (key, next) = (keys.of(b"a").value(), keys.of(b"a").item(0));
        assert!(!keys.behind(&key).contains(&key) && keys.behind(&key).contains(&next));
        assert!(!keys.behind(&key).contains(b"/job0"));
        assert!(StoreKeys::new("").behind(&key).contains(b"\xff\xff"));
    }
}
