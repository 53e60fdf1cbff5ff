//! Reading: take every key in the range, then do to the list what was asked, one thing at a time.

use rallypoint_core::kv::{KeyValue, Range, RangeResult, Revision, SortOrder, SortTarget};

use super::{Model, State, inside};

impl Model {
    /// Answers a read that was found valid. `state` is what the reader sees as now, at `now`.
    pub(super) fn read(&self, range: &Range, now: Revision, state: &State) -> RangeResult {
        let state = if range.revision > 0 { &self.states[range.revision as usize] } else { state };
        let mut kvs: Vec<KeyValue> =
            state.values().filter(|kv| inside(&range.range, &kv.key)).cloned().collect();
        let count = kvs.len() as i64;
        if range.count_only {
            return RangeResult { revision: now, kvs: Vec::new(), more: false, count };
        }
        let filters = [
            range.min_mod_revision,
            range.max_mod_revision,
            range.min_create_revision,
            range.max_create_revision,
        ];
        // Without an order and filters etcd reads no more than it needs, and sorts only that.
        if range.sort_order == SortOrder::None && range.limit > 0 && filters == [0; 4] {
            kvs.truncate(range.limit as usize + 1);
        }
        if range.min_mod_revision != 0 {
            kvs.retain(|kv| kv.mod_revision >= range.min_mod_revision);
        }
        if range.max_mod_revision != 0 {
            kvs.retain(|kv| kv.mod_revision <= range.max_mod_revision);
        }
        if range.min_create_revision != 0 {
            kvs.retain(|kv| kv.create_revision >= range.min_create_revision);
        }
        if range.max_create_revision != 0 {
            kvs.retain(|kv| kv.create_revision <= range.max_create_revision);
        }
        sort(range, &mut kvs);
        let more = range.limit > 0 && kvs.len() as i64 > range.limit;
        if more {
            kvs.truncate(range.limit as usize);
        }
        if range.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        RangeResult { revision: now, kvs, more, count }
    }
}

/// etcd leaves the order of ties open; here they stay in the order of their keys, either way.
fn sort(range: &Range, kvs: &mut [KeyValue]) {
    let number = |kv: &KeyValue| match range.sort_target {
        SortTarget::Version => kv.version,
        SortTarget::Create => kv.create_revision,
        SortTarget::Mod => kv.mod_revision,
        SortTarget::Key | SortTarget::Value => 0,
    };
    let text = |kv: &KeyValue| match range.sort_target {
        SortTarget::Key => kv.key.clone(),
        SortTarget::Value => kv.value.clone(),
        SortTarget::Version | SortTarget::Create | SortTarget::Mod => "".into(),
    };
    kvs.sort_by(|a, b| {
        let order = (number(a), text(a)).cmp(&(number(b), text(b)));
        if range.sort_order == SortOrder::Descend { order.reverse() } else { order }
    });
}
