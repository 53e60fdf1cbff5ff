//! Read-modify-write of a value by compare-and-set.

use bytes::Bytes;
use rallypoint_core::kv::{Op, Range, Txn};

use super::name_value::NameValue;
use super::{CONFLICT_BACKOFF, EtcdStore, StoreError, read_last};

impl EtcdStore {
    /// Writes the result of `change` on the value, which counts as empty if there is none, and retries while
    /// concurrent writes come first; nothing is written if `change` returns `None`. Returns the value
    /// afterwards.
    pub(super) async fn update(
        &self,
        name: &[u8],
        change: impl Fn(&[u8]) -> Option<Bytes> + Sync,
    ) -> Result<Option<Bytes>, StoreError> {
        let keys = self.keys.of(name);
        let read = Range::new(keys.digits_and_value());
        let found = self.client.range(read.clone()).await?;
        let mut current = NameValue::new(&keys, found.revision, found.kvs);
        let mut backoff = CONFLICT_BACKOFF;
        loop {
            let before = current.value().map_err(|error| Self::no_number(name, error))?;
            let Some(after) = change(before.as_deref().unwrap_or_default()) else {
                return Ok(before);
            };
            self.fits(name, after.len())?;
            let txn = Txn::when(current.unchanged(&keys))
                .then(self.overwrite(&keys, after.clone()))
                .otherwise([Op::Range(read.clone())]);
            let answer = self.client.txn(txn).await?;
            if answer.succeeded {
                return Ok(Some(after));
            }
            current = NameValue::new(&keys, answer.revision, read_last(answer));
            backoff.wait().await;
        }
    }
}
