//! Reading: limits, filters and order on top of the history.

use std::cmp::Ordering;

use super::history::History;
use crate::kv::{KeyValue, KvError, Range, RangeResult, Revision, SortOrder, SortTarget};

/// Executes `range`, `now` being the newest revision that the reader sees.
pub(super) fn range(
    history: &History,
    range: &Range,
    now: Revision,
) -> Result<RangeResult, KvError> {
    let at = readable(history, range.revision, now)?;
    let mut found = history.range(&range.range, at);
    if range.count_only {
        return Ok(RangeResult {
            revision: now,
            count: found.count() as i64,
            ..Default::default()
        });
    }
    let limit = usize::try_from(range.limit).unwrap_or(0);
    // Sorting and filtering need every pair before the limit; otherwise the rest is only counted. One
    // more than the limit shows whether there are more. As in etcd, a target without an order sorts only
    // the pairs within the limit.
    let take = if limit == 0 || range.sort_order != SortOrder::None || is_filtered(range) {
        usize::MAX
    } else {
        limit + 1
    };
    let mut kvs: Vec<KeyValue> =
        found.by_ref().take(take).filter_map(|(key, version)| version.live(key)).collect();
    let count = kvs.len() + found.count();
    kvs.retain(|kv| passes(range, kv));
    sort(range, &mut kvs);
    let more = limit > 0 && kvs.len() > limit;
    if more {
        kvs.truncate(limit);
    }
    if range.keys_only {
        kvs.iter_mut().for_each(|kv| kv.value.clear());
    }
    Ok(RangeResult { revision: now, kvs, more, count: count as i64 })
}

/// The revision to read at; an error if it cannot be read.
pub(super) fn readable(
    history: &History,
    asked: Revision,
    now: Revision,
) -> Result<Revision, KvError> {
    if asked <= 0 {
        Ok(now)
    } else if asked > now {
        Err(KvError::FutureRevision)
    } else if asked < history.compacted() {
        Err(KvError::Compacted)
    } else {
        Ok(asked)
    }
}

fn is_filtered(range: &Range) -> bool {
    range.min_mod_revision != 0
        || range.max_mod_revision != 0
        || range.min_create_revision != 0
        || range.max_create_revision != 0
}

fn passes(range: &Range, kv: &KeyValue) -> bool {
    let within =
        |revision, min, max| (min == 0 || revision >= min) && (max == 0 || revision <= max);
    within(kv.mod_revision, range.min_mod_revision, range.max_mod_revision)
        && within(kv.create_revision, range.min_create_revision, range.max_create_revision)
}

fn sort(range: &Range, kvs: &mut [KeyValue]) {
    if range.sort_target == SortTarget::Key && range.sort_order != SortOrder::Descend {
        return;
    }
    let by_target = |a: &KeyValue, b: &KeyValue| -> Ordering {
        match range.sort_target {
            SortTarget::Key => a.key.cmp(&b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create_revision.cmp(&b.create_revision),
            SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
            SortTarget::Value => a.value.cmp(&b.value),
        }
    };
    match range.sort_order {
        SortOrder::None | SortOrder::Ascend => kvs.sort_by(by_target),
        SortOrder::Descend => kvs.sort_by(|a, b| by_target(b, a)),
    }
}
