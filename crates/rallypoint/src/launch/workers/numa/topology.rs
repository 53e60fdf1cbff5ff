//! The topology of the processors, and each worker's share of it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::launch::job::NumaBinding;

/// Processors, by number.
pub(super) type Processors = BTreeSet<usize>;

/// The groups of processors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Topology {
    /// The NUMA nodes that have processors.
    pub(super) nodes: BTreeMap<u32, Processors>,
    /// The sockets.
    pub(super) packages: BTreeSet<Processors>,
    /// The threads of one core.
    pub(super) cores: BTreeSet<Processors>,
    /// The processors that share a last-level cache.
    pub(super) caches: BTreeSet<Processors>,
}

impl Topology {
    /// The topology restricted to these processors.
    pub(super) fn within(&self, allowed: &Processors) -> Self {
        let node = |(node, processors): (&u32, &Processors)| (*node, processors & allowed);
        Self {
            nodes: self.nodes.iter().map(node).filter(|(_, rest)| !rest.is_empty()).collect(),
            packages: parts(&self.packages, allowed),
            cores: parts(&self.cores, allowed),
            caches: parts(&self.caches, allowed),
        }
    }

    /// One worker's processors; `homes` are the NUMA nodes of all workers. Never empty: an unknown level does
    /// not divide the node, and with more workers than parts, some workers share one.
    pub(super) fn share(
        &self,
        binding: NumaBinding,
        homes: &[u32],
        local_rank: usize,
    ) -> Processors {
        let home = homes[local_rank];
        let whole = self.nodes.get(&home).cloned().unwrap_or_default();
        let neighbours = homes.iter().filter(|node| **node == home).count();
        let number = homes[..local_rank].iter().filter(|node| **node == home).count();
        let share = match binding {
            NumaBinding::Node => Processors::new(),
            NumaBinding::Socket => {
                let touched = self.packages.iter().filter(|package| !package.is_disjoint(&whole));
                touched.flatten().copied().collect()
            }
            NumaBinding::Exclusive => {
                let cores: Vec<Processors> = parts(&self.cores, &whole).into_iter().collect();
                match cores.len() {
                    0 => Processors::new(),
                    count if count < neighbours => cores[number % count].clone(),
                    count => {
                        let from = number * count / neighbours;
                        let to = (number + 1) * count / neighbours;
                        cores[from..to].iter().flatten().copied().collect()
                    }
                }
            }
            NumaBinding::CoreComplex => {
                let mut complexes: Vec<Processors> =
                    parts(&self.caches, &whole).into_iter().collect();
                // The largest first, since a single worker gets the first.
                complexes.sort_by_key(|complex| std::cmp::Reverse(complex.len()));
                complexes.get(number % complexes.len().max(1)).cloned().unwrap_or_default()
            }
        };
        if share.is_empty() { whole } else { share }
    }
}

/// The intersections of these groups with `whole`, without empty ones.
fn parts(groups: &BTreeSet<Processors>, whole: &Processors) -> BTreeSet<Processors> {
    groups.iter().map(|group| group & whole).filter(|part| !part.is_empty()).collect()
}

/// Parses a list in the kernel's format: `0-3,8,10-11`.
pub(super) fn parse(list: &str) -> Option<Processors> {
    let mut processors = Processors::new();
    for range in list.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        processors.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(processors)
}

/// Formats a list in the kernel's format.
pub(super) fn list(processors: &Processors) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for processor in processors {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *processor => *last = *processor,
            _ => ranges.push((*processor, *processor)),
        }
    }
    let range = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}
