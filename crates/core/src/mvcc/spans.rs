//! An interval tree: ranges of keys, found by a key that lies in them.
//!
//! It is a balanced tree (AVL) in the order of the ranges, in which every node also holds the furthest end of
//! the ranges below it. A look-up skips every part of the tree that ends before the key or begins after it,
//! so that its cost depends on the number of hits, not on the number of ranges.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::kv::KeyRange;

/// The end of a range: before a key, or unbounded, which is larger than every key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Before(Bytes),
    Never,
}

impl End {
    fn is_behind(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => key < end.as_ref(),
            Self::Never => true,
        }
    }
}

/// A map from ranges to `T`.
#[derive(Debug)]
pub(super) struct Spans<T> {
    root: Tree<T>,
}

type Tree<T> = Option<Box<SpanNode<T>>>;

#[derive(Debug)]
struct SpanNode<T> {
    start: Bytes,
    end: End,
    value: T,
    /// The furthest end of this range and all below it.
    reach: End,
    height: u8,
    left: Tree<T>,
    right: Tree<T>,
}

impl<T> Default for Spans<T> {
    fn default() -> Self {
        Self { root: None }
    }
}

impl<T: Default> Spans<T> {
    /// The entry of `range`, created if there is none yet.
    pub(super) fn entry(&mut self, range: &KeyRange) -> &mut T {
        let (start, end) = ends(range);
        if get_mut(&mut self.root, &start, &end).is_none() {
            self.root = Some(insert(self.root.take(), start.clone(), end.clone()));
        }
        get_mut(&mut self.root, &start, &end).expect("it is there by now")
    }
}

impl<T> Spans<T> {
    pub(super) fn get_mut(&mut self, range: &KeyRange) -> Option<&mut T> {
        let (start, end) = ends(range);
        get_mut(&mut self.root, &start, &end)
    }

    pub(super) fn remove(&mut self, range: &KeyRange) {
        let (start, end) = ends(range);
        self.root = remove(self.root.take(), &start, &end);
    }

    /// Visits the entry of every range that contains `key`, in the order of the ranges.
    pub(super) fn containing(&self, key: &[u8], look: &mut impl FnMut(&T)) {
        containing(&self.root, key, look);
    }
}

/// The two ends of a range. The range of a single key ends before the next possible key.
fn ends(range: &KeyRange) -> (Bytes, End) {
    match range {
        KeyRange::Key(key) => (key.clone(), End::Before([key, &b"\0"[..]].concat().into())),
        KeyRange::Span(start, end) => (start.clone(), End::Before(end.clone())),
        KeyRange::From(start) => (start.clone(), End::Never),
    }
}

fn containing<T>(tree: &Tree<T>, key: &[u8], look: &mut impl FnMut(&T)) {
    let Some(node) = tree else { return };
    if !node.reach.is_behind(key) {
        return;
    }
    containing(&node.left, key, look);
    // Every range to the right begins no earlier.
    if node.start <= key {
        if node.end.is_behind(key) {
            look(&node.value);
        }
        containing(&node.right, key, look);
    }
}

fn get_mut<'a, T>(tree: &'a mut Tree<T>, start: &Bytes, end: &End) -> Option<&'a mut T> {
    let node = tree.as_mut()?;
    match node.compare(start, end) {
        Ordering::Less => get_mut(&mut node.left, start, end),
        Ordering::Equal => Some(&mut node.value),
        Ordering::Greater => get_mut(&mut node.right, start, end),
    }
}

/// Inserts a range that is not in the tree.
fn insert<T: Default>(tree: Tree<T>, start: Bytes, end: End) -> Box<SpanNode<T>> {
    let Some(mut node) = tree else {
        let (reach, value) = (end.clone(), T::default());
        return Box::new(SpanNode { start, end, value, reach, height: 1, left: None, right: None });
    };
    if node.compare(&start, &end).is_lt() {
        node.left = Some(insert(node.left.take(), start, end));
    } else {
        node.right = Some(insert(node.right.take(), start, end));
    }
    balanced(node)
}

fn remove<T>(tree: Tree<T>, start: &Bytes, end: &End) -> Tree<T> {
    let mut node = tree?;
    match node.compare(start, end) {
        Ordering::Less => node.left = remove(node.left.take(), start, end),
        Ordering::Greater => node.right = remove(node.right.take(), start, end),
        Ordering::Equal => {
            let (left, right) = (node.left.take(), node.right.take());
            // The next range in order takes its place.
            let Some(right) = right else { return left };
            let (rest, mut next) = take_first(right);
            (next.left, next.right) = (left, rest);
            node = next;
        }
    }
    Some(balanced(node))
}

/// Removes the first range of a tree, and returns it with the rest.
fn take_first<T>(mut node: Box<SpanNode<T>>) -> (Tree<T>, Box<SpanNode<T>>) {
    let Some(left) = node.left.take() else { return (node.right.take(), node) };
    let (rest, first) = take_first(left);
    node.left = rest;
    (Some(balanced(node)), first)
}

/// Rebalances a node whose sides differ by two levels at most, so that they differ by one.
fn balanced<T>(mut node: Box<SpanNode<T>>) -> Box<SpanNode<T>> {
    node.measure();
    if height(&node.left) > height(&node.right) + 1 {
        node.left = node.left.map(|left| {
            if height(&left.right) > height(&left.left) { rotate_left(left) } else { left }
        });
        rotate_right(node)
    } else if height(&node.right) > height(&node.left) + 1 {
        node.right = node.right.map(|right| {
            if height(&right.left) > height(&right.right) { rotate_right(right) } else { right }
        });
        rotate_left(node)
    } else {
        node
    }
}

fn rotate_left<T>(mut node: Box<SpanNode<T>>) -> Box<SpanNode<T>> {
    let mut top = node.right.take().expect("only the lower side is raised");
    node.right = top.left.take();
    node.measure();
    top.left = Some(node);
    top.measure();
    top
}

fn rotate_right<T>(mut node: Box<SpanNode<T>>) -> Box<SpanNode<T>> {
    let mut top = node.left.take().expect("only the lower side is raised");
    node.left = top.right.take();
    node.measure();
    top.right = Some(node);
    top.measure();
    top
}

fn height<T>(tree: &Tree<T>) -> u8 {
    tree.as_ref().map_or(0, |node| node.height)
}

impl<T> SpanNode<T> {
    /// The order of a range relative to this one.
    fn compare(&self, start: &Bytes, end: &End) -> Ordering {
        (start, end).cmp(&(&self.start, &self.end))
    }

    /// Updates height and furthest end from the nodes below.
    fn measure(&mut self) {
        self.height = 1 + height(&self.left).max(height(&self.right));
        let below = [&self.left, &self.right].into_iter().flatten().map(|node| &node.reach);
        self.reach = below.fold(&self.end, Ord::max).clone();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn check<T>(tree: &Tree<T>) -> usize {
        let Some(node) = tree else { return 0 };
        let (left, right) = (height(&node.left), height(&node.right));
        assert!(left.abs_diff(right) <= 1, "{left} levels on one side, {right} on the other");
        assert_eq!(node.height, 1 + left.max(right));
        let below = [&node.left, &node.right].into_iter().flatten().map(|node| &node.reach);
        assert_eq!(&node.reach, below.fold(&node.end, Ord::max));
        1 + check(&node.left) + check(&node.right)
    }

    fn key() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(prop_oneof![Just(0), Just(b'a'), Just(b'b'), Just(0xff)], 1..4)
            .prop_map(Bytes::from)
    }

    fn range() -> impl Strategy<Value = KeyRange> {
        prop_oneof![
            8 => (key(), key()).prop_map(|(one, other)| match one <= other {
                true => KeyRange::Span(one, other),
                false => KeyRange::Span(other, one),
            }),
            1 => key().prop_map(KeyRange::From),
            1 => key().prop_map(KeyRange::Key),
        ]
    }

    proptest! {
        /// After any insertions and removals, a look-up finds what a scan of all ranges would find.
        #[test]
        fn a_key_finds_the_ranges_it_is_in(
            steps in proptest::collection::vec((range(), any::<bool>()), 1..200),
            keys in proptest::collection::vec(key(), 1..20),
        ) {
            let mut spans: Spans<Vec<KeyRange>> = Spans::default();
            let mut plain: BTreeMap<(Bytes, End), Vec<KeyRange>> = BTreeMap::new();
            for (range, add) in steps {
                if add {
                    spans.entry(&range).push(range.clone());
                    plain.entry(ends(&range)).or_default().push(range);
                } else {
                    spans.remove(&range);
                    plain.remove(&ends(&range));
                }
                prop_assert_eq!(check(&spans.root), plain.len());
            }
            for key in keys {
                let mut found = Vec::new();
                spans.containing(&key, &mut |ranges| found.extend(ranges.iter().cloned()));
                let all = plain.values().flatten();
                let scanned: Vec<KeyRange> = all.filter(|it| it.contains(&key)).cloned().collect();
                prop_assert_eq!(found, scanned);
            }
        }
    }

    #[test]
    fn ranges_that_come_and_go_in_order_keep_it_flat() {
        let range = |number: u32| KeyRange::prefix(number.to_be_bytes().to_vec());
        let mut spans: Spans<u32> = Spans::default();
        for number in 0..10_000 {
            *spans.entry(&range(number)) = number;
        }
        assert_eq!(check(&spans.root), 10_000);
        assert!(height(&spans.root) <= 14 * 3 / 2);
        for number in 0..9_999 {
            spans.remove(&range(number));
        }
        assert_eq!(check(&spans.root), 1);
        assert_eq!(spans.get_mut(&range(9_999)), Some(&mut 9_999));
    }
}
