//! The calls of a store, as requests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rallypoint_core::c10d;

use super::message::{Message, PREFIX};
use super::{TcpStore, in_time, name, timed_out};
use crate::store::agent::wire::{MAX_KEYS, Opcode};
use crate::store::timeout::CallTimeout;
use crate::store::{Store, StoreError};

#[async_trait]
impl Store for TcpStore {
    async fn set(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.write(Message::new(Opcode::Set).key(key)?.value(key, &value)?).await
    }

    async fn get(&self, key: &[u8]) -> Result<Bytes, StoreError> {
        self.wait(&[key], self.timeout()).await?;
        self.value(Message::new(Opcode::Get).key(key)?).await
    }

    /// The server answers a sum that cannot be made by closing the connection. Then it is asked for the
    /// value, to tell that from a connection that was lost.
    async fn add(&self, key: &[u8], amount: i64) -> Result<i64, StoreError> {
        let added = self.number(Message::new(Opcode::Add).key(key)?.number(amount)).await;
        if let Err(StoreError::Connection { .. }) = &added
            && let Ok(Some(value)) = self.peek(key).await
            && let Err(error) = c10d::sum(&value, amount)
        {
            return Err(StoreError::Corrupt { key: name(key), what: error.to_string() });
        }
        added
    }

    async fn compare_set(
        &self,
        key: &[u8],
        expected: &[u8],
        desired: Bytes,
    ) -> Result<Bytes, StoreError> {
        let message = Message::new(Opcode::CompareSet).key(key)?;
        self.value(message.value(key, expected)?.value(key, &desired)?).await
    }

    async fn append(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.write(Message::new(Opcode::Append).key(key)?.value(key, &value)?).await
    }

    async fn delete_key(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(self.number(Message::new(Opcode::DeleteKey).key(key)?).await? > 0)
    }

    async fn check(&self, keys: &[&[u8]]) -> Result<bool, StoreError> {
        for part in keys.chunks(MAX_KEYS) {
            let message = Message::with_keys(Opcode::Check, part)?;
            if !self.flags(message, 1).await?[0] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn wait(&self, keys: &[&[u8]], timeout: Duration) -> Result<(), StoreError> {
        let patience = CallTimeout::new(timeout);
        in_time(patience, self.wait_for(keys, patience), || timed_out(patience, keys)).await
    }

    async fn num_keys(&self) -> Result<u64, StoreError> {
        Ok(self.number(Message::new(Opcode::NumKeys)).await?.unsigned_abs())
    }

    async fn list_keys(&self) -> Result<Vec<Bytes>, StoreError> {
        let message = Message::new(Opcode::ListKeys);
        let keys = self.with(async |connection| {
            connection.send(&message).await?;
            let count = connection.number().await?;
            connection.strings(usize::try_from(count).unwrap_or_default()).await
        });
        let ours = keys.await?.into_iter().filter(|key| key.starts_with(PREFIX));
        Ok(ours.map(|key| key.slice(PREFIX.len()..)).collect())
    }

    /// Up to 131,072 pairs are written at once; more of them one lot after the other.
    async fn multi_set(&self, pairs: &[(&[u8], Bytes)]) -> Result<(), StoreError> {
        for part in pairs.chunks(MAX_KEYS) {
            let mut message = Message::new(Opcode::MultiSet).length(part.len());
            for (key, value) in part {
                message = message.key(key)?.value(key, value)?;
            }
            self.write(message).await?;
        }
        Ok(())
    }

    async fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Bytes>, StoreError> {
        self.wait(keys, self.timeout()).await?;
        let mut values = Vec::new();
        for part in keys.chunks(MAX_KEYS) {
            let message = Message::with_keys(Opcode::MultiGet, part)?;
            let part = self.with(async |connection| {
                connection.send(&message).await?;
                connection.strings(part.len()).await
            });
            values.extend(part.await?);
        }
        Ok(values)
    }

    async fn queue_push(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.write(Message::new(Opcode::QueuePush).key(key)?.value(key, &value)?).await
    }

    async fn queue_pop(&self, key: &[u8], block: bool) -> Result<Bytes, StoreError> {
        let pop = Message::new(Opcode::QueuePop).key(key)?;
        if !block {
            let popped = self.with(async |connection| connection.pop(&pop).await).await?;
            return popped.ok_or_else(|| StoreError::QueueEmpty { key: name(key) });
        }
        let patience = CallTimeout::new(self.timeout());
        in_time(patience, self.pop_or_wait(key, &pop, patience), || timed_out(patience, &[key]))
            .await
    }

    async fn queue_len(&self, key: &[u8]) -> Result<u64, StoreError> {
        Ok(self.number(Message::new(Opcode::QueueLen).key(key)?).await?.unsigned_abs())
    }

    /// Counts in the value of the key itself, as PyTorch's client does.
    async fn barrier(
        &self,
        key: &[u8],
        world_size: u64,
        timeout: Duration,
    ) -> Result<(), StoreError> {
        let goal = i64::try_from(world_size).unwrap_or(i64::MAX);
        let message = Message::new(Opcode::Barrier).key(key)?.number(goal);
        let patience = CallTimeout::new(timeout);
        let missed =
            |arrived| StoreError::Barrier { key: name(key), waited: timeout, arrived, world_size };
        let arrive = async {
            if self.with(async |connection| connection.wait(&message, patience).await).await? {
                return Ok(());
            }
            Err(missed(self.add(key, 0).await.ok()))
        };
        in_time(patience, arrive, || missed(None)).await
    }

    /// Opens a connection of its own.
    async fn try_clone(&self) -> Result<Arc<dyn Store>, StoreError> {
        let clone = Self::connect(&self.address, self.connect_timeout).await?;
        clone.set_timeout(self.timeout());
        Ok(Arc::new(clone))
    }

    fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }
}

impl TcpStore {
    /// A request that has no reply.
    async fn write(&self, message: Message) -> Result<(), StoreError> {
        self.with(async |connection| connection.ask_for_echo(message).await).await
    }

    /// A request whose reply is a number.
    async fn number(&self, message: Message) -> Result<i64, StoreError> {
        self.with(async |connection| {
            connection.send(&message).await?;
            connection.number().await
        })
        .await
    }

    /// A request whose reply is a value.
    async fn value(&self, message: Message) -> Result<Bytes, StoreError> {
        self.with(async |connection| {
            connection.send(&message).await?;
            connection.string().await
        })
        .await
    }

    /// The answers to `count` checks.
    async fn flags(&self, message: Message, count: usize) -> Result<Vec<bool>, StoreError> {
        self.with(async |connection| {
            connection.send(&message).await?;
            let mut flags = Vec::new();
            for _ in 0..count {
                flags.push(connection.is_ready().await?);
            }
            Ok(flags)
        })
        .await
    }

    /// Waits for all of the keys. Those that do not come in time are asked for once more, one by one.
    async fn wait_for(&self, keys: &[&[u8]], patience: CallTimeout) -> Result<(), StoreError> {
        for part in keys.chunks(MAX_KEYS) {
            let message = Message::with_keys(Opcode::Wait, part)?;
            let over = self.with(async |connection| {
                let over = connection.wait(&message, patience).await?;
                if over {
                    connection.pass_on().await;
                }
                Ok(over)
            });
            if !over.await? {
                let missing = self.missing(part).await?;
                if !missing.is_empty() {
                    return Err(timed_out(patience, &missing));
                }
            }
        }
        Ok(())
    }

    /// Takes the first element of a queue as soon as there is one.
    async fn pop_or_wait(
        &self,
        key: &[u8],
        pop: &Message,
        patience: CallTimeout,
    ) -> Result<Bytes, StoreError> {
        let wait = Message::with_keys(Opcode::Wait, &[key])?;
        let mut waited = false;
        loop {
            // Both on one connection: the client that was released for an element is expected to take it.
            let popped = self.with(async |connection| {
                if waited && !connection.wait(&wait, patience).await? {
                    return Ok(None);
                }
                connection.pop(pop).await
            });
            if let Some(value) = popped.await? {
                return Ok(value);
            }
            if patience.left().is_zero() {
                return Err(timed_out(patience, &[key]));
            }
            // A key with a value exists, so a wait for it ends at once. Otherwise another client took the element.
            if waited && self.has_value(key).await? {
                return Err(StoreError::QueueEmpty { key: name(key) });
            }
            waited = true;
        }
    }

    /// Whether a key has a value: it exists, and its queue is empty before and after. Requests that are sent together
    /// are executed together, so no other client comes between them.
    async fn has_value(&self, key: &[u8]) -> Result<bool, StoreError> {
        let message = Message::new(Opcode::QueueLen).key(key)?;
        let message = message.then(Opcode::Check).length(1).key(key)?;
        let message = message.then(Opcode::QueueLen).key(key)?;
        self.with(async |connection| {
            connection.send(&message).await?;
            let before = connection.number().await?;
            let exists = connection.is_ready().await?;
            let after = connection.number().await?;
            Ok(exists && before == 0 && after == 0)
        })
        .await
    }

    /// The value of a key that exists, which is empty if it is only a queue.
    async fn peek(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        if !self.check(&[key]).await? {
            return Ok(None);
        }
        self.value(Message::new(Opcode::Get).key(key)?).await.map(Some)
    }

    /// Which of the keys do not exist.
    async fn missing<'k>(&self, keys: &[&'k [u8]]) -> Result<Vec<&'k [u8]>, StoreError> {
        let mut message = Message::default();
        for key in keys {
            message = message.then(Opcode::Check).length(1).key(key)?;
        }
        let there = self.flags(message, keys.len()).await?;
        let missing = keys.iter().zip(there).filter(|(_, there)| !there);
        Ok(missing.map(|(key, _)| *key).collect())
    }
}
