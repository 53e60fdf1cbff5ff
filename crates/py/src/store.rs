//! Stores: c10d's interface, without PyTorch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rallypoint::store::{
    DEFAULT_TIMEOUT, EtcdStore as NativeEtcd, Store as Native, TcpStore as NativeTcp,
};

use crate::arguments::{Blob, Time, text};
use crate::client::Client;
use crate::errors::{OrRaise, wrong_argument};
use crate::runtime::{ProcessBound, wait};

/// A key-value store that a group shares: the interface of PyTorch's ``torch.distributed.Store``, without PyTorch.
///
/// Keys and values are ``str`` or ``bytes``; returned values are ``bytes``. Calls that wait let other threads run
/// and end at Ctrl-C. In ``asyncio``, use ``await asyncio.to_thread(store.get, "key")``.
#[pyclass(module = "rallypoint", subclass, frozen)]
pub(crate) struct Store {
    native: ProcessBound<Arc<dyn Native>>,
}

impl Store {
    pub(crate) fn new(native: Arc<dyn Native>) -> Self {
        Self { native: ProcessBound::new(native) }
    }

    fn native(&self, py: Python<'_>) -> PyResult<&Arc<dyn Native>> {
        self.native.get(py)
    }
}

fn slices(keys: &[Blob]) -> Vec<&[u8]> {
    keys.iter().map(|Blob(key)| &key[..]).collect()
}

/// The prefix of the keys with a slash at its end, which separates `/jobs/7` from `/jobs/70`.
pub(crate) fn folder(prefix: &str) -> String {
    format!("{}/", prefix.strip_suffix('/').unwrap_or(prefix))
}

fn out<'py>(py: Python<'py>, bytes: &Bytes) -> Bound<'py, PyBytes> {
    PyBytes::new(py, bytes)
}

#[pymethods]
impl Store {
    /// Writes a value.
    fn set(&self, py: Python<'_>, key: Blob, value: Blob) -> PyResult<()> {
        let store = self.native(py)?;
        wait(py, store.set(&key.0, value.0))?.or_raise(py)
    }

    /// Reads the value of a key. Waits for it for at most ``timeout``.
    fn get<'py>(&self, py: Python<'py>, key: Blob) -> PyResult<Bound<'py, PyBytes>> {
        let store = self.native(py)?;
        let value = wait(py, store.get(&key.0))?.or_raise(py)?;
        Ok(out(py, &value))
    }

    /// Adds to a counter, which begins at 0, and returns the sum.
    fn add(&self, py: Python<'_>, key: Blob, amount: i64) -> PyResult<i64> {
        let store = self.native(py)?;
        wait(py, store.add(&key.0, amount))?.or_raise(py)
    }

    /// Writes ``desired`` if the value is ``expected``, or if there is none and ``expected`` is empty.
    /// Returns the value that the key has afterwards, or ``expected`` if it has none.
    fn compare_set<'py>(
        &self,
        py: Python<'py>,
        key: Blob,
        expected: Blob,
        desired: Blob,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let store = self.native(py)?;
        let value = wait(py, store.compare_set(&key.0, &expected.0, desired.0))?.or_raise(py)?;
        Ok(out(py, &value))
    }

    /// Appends to the value of a key, or writes the first value.
    fn append(&self, py: Python<'_>, key: Blob, value: Blob) -> PyResult<()> {
        let store = self.native(py)?;
        wait(py, store.append(&key.0, value.0))?.or_raise(py)
    }

    /// Deletes a value. Returns whether there was one.
    fn delete_key(&self, py: Python<'_>, key: Blob) -> PyResult<bool> {
        let store = self.native(py)?;
        wait(py, store.delete_key(&key.0))?.or_raise(py)
    }

    /// Whether all of the keys exist.
    fn check(&self, py: Python<'_>, keys: Vec<Blob>) -> PyResult<bool> {
        let store = self.native(py)?;
        wait(py, store.check(&slices(&keys)))?.or_raise(py)
    }

    /// Waits until all of the keys exist.
    #[pyo3(signature = (keys, timeout = None))]
    fn wait(&self, py: Python<'_>, keys: Vec<Blob>, timeout: Option<Time>) -> PyResult<()> {
        let store = self.native(py)?;
        let patience = timeout.map_or_else(|| store.timeout(), |Time(patience)| patience);
        wait(py, store.wait(&slices(&keys), patience))?.or_raise(py)
    }

    /// The number of keys that have a value.
    fn num_keys(&self, py: Python<'_>) -> PyResult<u64> {
        let store = self.native(py)?;
        wait(py, store.num_keys())?.or_raise(py)
    }

    /// The keys that have a value, in no particular order. Keys that are not UTF-8 are escaped as file names are
    /// (``surrogateescape``), and can be passed back in this form.
    fn list_keys<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let store = self.native(py)?;
        let keys = wait(py, store.list_keys())?.or_raise(py)?;
        keys.iter().map(|key| text(py, key)).collect()
    }

    /// Writes several values.
    fn multi_set(&self, py: Python<'_>, keys: Vec<Blob>, values: Vec<Blob>) -> PyResult<()> {
        if keys.len() != values.len() {
            let (keys, values) = (keys.len(), values.len());
            let text = format!("{keys} keys and {values} values: give a value for each key");
            return Err(wrong_argument(py, text));
        }
        let store = self.native(py)?;
        let values = values.into_iter().map(|Blob(value)| value);
        let pairs: Vec<(&[u8], Bytes)> = slices(&keys).into_iter().zip(values).collect();
        wait(py, store.multi_set(&pairs))?.or_raise(py)
    }

    /// Reads the values of several keys. Waits for each of them as ``get`` does.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Blob>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let store = self.native(py)?;
        let values = wait(py, store.multi_get(&slices(&keys)))?.or_raise(py)?;
        Ok(values.iter().map(|value| out(py, value)).collect())
    }

    /// Appends a value to a queue.
    fn queue_push(&self, py: Python<'_>, key: Blob, value: Blob) -> PyResult<()> {
        let store = self.native(py)?;
        wait(py, store.queue_push(&key.0, value.0))?.or_raise(py)
    }

    /// Takes the first value of a queue. If the queue is empty, waits for at most ``timeout``, or raises
    /// ``QueueEmptyError`` at once if not ``block``.
    #[pyo3(signature = (key, block = true))]
    fn queue_pop<'py>(
        &self,
        py: Python<'py>,
        key: Blob,
        block: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let store = self.native(py)?;
        let value = wait(py, store.queue_pop(&key.0, block))?.or_raise(py)?;
        Ok(out(py, &value))
    }

    /// The number of values in a queue.
    fn queue_len(&self, py: Python<'_>, key: Blob) -> PyResult<u64> {
        let store = self.native(py)?;
        wait(py, store.queue_len(&key.0))?.or_raise(py)
    }

    /// Waits until this method was called ``world_size`` times with this key. A key serves one barrier.
    #[pyo3(signature = (key, world_size, timeout = None))]
    fn barrier(
        &self,
        py: Python<'_>,
        key: Blob,
        world_size: u64,
        timeout: Option<Time>,
    ) -> PyResult<()> {
        let store = self.native(py)?;
        let patience = timeout.map_or_else(|| store.timeout(), |Time(patience)| patience);
        wait(py, store.barrier(&key.0, world_size, patience))?.or_raise(py)
    }

    /// Sets the default timeout of calls that wait: a ``timedelta``, or seconds.
    fn set_timeout(&self, py: Python<'_>, timeout: Time) -> PyResult<()> {
        self.native(py)?.set_timeout(timeout.0);
        Ok(())
    }

    /// The default timeout of calls that wait, initially 300 seconds.
    #[getter]
    fn timeout(&self, py: Python<'_>) -> PyResult<Duration> {
        Ok(self.native(py)?.timeout())
    }

    /// A store on the same keys with a timeout and a connection of its own, so that its calls never wait for calls of
    /// this store.
    fn clone(&self, py: Python<'_>) -> PyResult<Self> {
        let store = self.native(py)?;
        Ok(Self::new(wait(py, store.try_clone())?.or_raise(py)?))
    }

    /// Whether the store has ``append``, ``multi_get`` and ``multi_set``. Always true.
    fn has_extended_api(&self) -> bool {
        true
    }
}

/// A store on etcd, or on a ``rallypoint.Server``. It survives the failure of every node.
///
/// Args:
///     client: a ``rallypoint.Client``, which several stores may share; or the text ``host:port``, for a client of
///         its own.
///     prefix: the prefix of its keys. All stores with the same prefix share their keys.
///     timeout: the default timeout of calls that wait, as a ``timedelta`` or in seconds; by default 300.
///
/// >>> with rallypoint.Server() as server:
/// ...     store = rallypoint.EtcdStore(rallypoint.Client(server.endpoint), "/jobs/7")
/// ...     store.add("arrived", 1)
/// ...     store.queue_push("tasks", "first")
/// ...     store.queue_pop("tasks")
/// 1
/// b'first'
#[pyclass(module = "rallypoint", extends = Store, subclass, frozen)]
pub(crate) struct EtcdStore {}

#[pymethods]
impl EtcdStore {
    #[new]
    #[pyo3(signature = (client, prefix, timeout = None))]
    fn create(
        py: Python<'_>,
        client: Bound<'_, PyAny>,
        prefix: &str,
        timeout: Option<Time>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let client = Client::from_any(&client)?;
        let timeout = timeout.map_or(DEFAULT_TIMEOUT, |Time(timeout)| timeout);
        // The keys have no lease, since no process would renew it after the last user has ended.
        let native = NativeEtcd::new(client.get().native(py)?, folder(prefix), 0, timeout);
        Ok(PyClassInitializer::from(Store::new(Arc::new(native))).add_subclass(Self {}))
    }
}

/// A client of a server on the wire of PyTorch's ``TCPStore``: that of a group's rank 0, or PyTorch's own.
///
/// Args:
///     host: the name or address of the server.
///     port: the port of the server.
///     timeout: the timeout of the connection, and the default timeout of calls that wait; by default 300 seconds.
///
/// >>> with rallypoint.Rendezvous("", "job-7", 1, 1) as rendezvous:
/// ...     group = rendezvous.next_rendezvous()
/// ...     store = rallypoint.TcpStore(group.master_addr, group.master_port)
/// ...     store.set("greeting", "hello")
/// ...     store.get("greeting")
/// b'hello'
#[pyclass(module = "rallypoint", extends = Store, subclass, frozen)]
pub(crate) struct TcpStore {}

#[pymethods]
impl TcpStore {
    #[new]
    #[pyo3(signature = (host, port, timeout = None))]
    fn create(
        py: Python<'_>,
        host: &str,
        port: u16,
        timeout: Option<Time>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let is_v6 = host.contains(':') && !host.starts_with('[');
        let address = if is_v6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let timeout = timeout.map_or(DEFAULT_TIMEOUT, |Time(timeout)| timeout);
        let native = wait(py, NativeTcp::connect(&address, timeout))?.or_raise(py)?;
        native.set_timeout(timeout);
        Ok(PyClassInitializer::from(Store::new(Arc::new(native))).add_subclass(Self {}))
    }
}
