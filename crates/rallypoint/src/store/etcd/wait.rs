//! Waiting for names, and reading their values.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use rallypoint_core::kv::{KeyRange, Range};
use rallypoint_core::rendezvous::keys::NameKeys;

use super::name_value::NameValue;
use super::points::{self, WaitDeadline, WaitFailed};
use super::{EtcdStore, StoreError, text};

impl EtcdStore {
    /// Where each of these names has its value and its queue.
    pub(super) fn places(&self, names: &[&[u8]]) -> Vec<KeyRange> {
        names.iter().map(|name| self.keys.of(name).value_and_queue()).collect()
    }

    /// Waits until each of the names has had a value or something in its queue.
    pub(super) async fn wait_for(
        &self,
        names: &[&[u8]],
        timeout: Duration,
    ) -> Result<(), StoreError> {
        let patience = WaitDeadline::new(&self.client, timeout);
        let names: Vec<&[u8]> = BTreeSet::from_iter(names.iter().copied()).into_iter().collect();
        let missing = points::missing(&patience.client, &self.places(&names)).await?;
        let missing: Vec<&[u8]> = missing.into_iter().map(|place| names[place]).collect();
        self.wait_on(&patience, &missing, &self.places(&missing)).await
    }

    /// The values of the names, once all of them have one.
    pub(super) async fn values(
        &self,
        names: &[&[u8]],
        timeout: Duration,
    ) -> Result<Vec<Bytes>, StoreError> {
        let patience = WaitDeadline::new(&self.client, timeout);
        let keys: Vec<NameKeys> = names.iter().map(|name| self.keys.of(name)).collect();
        loop {
            let ranges = keys.iter().map(|keys| Range::new(keys.digits_and_value())).collect();
            let found = points::read(&patience.client, ranges).await?;
            let (mut values, mut missing) = (Vec::new(), BTreeSet::new());
            for ((name, keys), found) in names.iter().zip(&keys).zip(found) {
                let value = NameValue::new(keys, found.revision, found.kvs).value();
                match value.map_err(|error| Self::no_number(name, error))? {
                    Some(value) => values.push(value),
                    None => drop(missing.insert(*name)),
                }
            }
            if missing.is_empty() {
                return Ok(values);
            }
            let missing: Vec<&[u8]> = missing.into_iter().collect();
            let value = |name: &&[u8]| KeyRange::key(self.keys.of(name).value());
            let ranges: Vec<KeyRange> = missing.iter().map(value).collect();
            // It is read again even if it was seen to come: it may be gone again, or a counter.
            self.wait_on(&patience, &missing, &ranges).await?;
        }
    }

    /// Waits for something in the range of each of the names that were just found missing.
    async fn wait_on(
        &self,
        patience: &WaitDeadline,
        missing: &[&[u8]],
        ranges: &[KeyRange],
    ) -> Result<(), StoreError> {
        if missing.is_empty() {
            return Ok(());
        }
        points::wait(patience, ranges).await.map_err(|failed| match failed {
            WaitFailed::TimedOut(places) => {
                let missing = places.iter().map(|place| text(missing[*place])).collect();
                StoreError::Timeout { waited: patience.timeout, missing }
            }
            WaitFailed::Client(error) => error.into(),
            WaitFailed::Watch(error) => error.into(),
        })
    }
}
