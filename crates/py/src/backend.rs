//! The state of a rendezvous, for PyTorch's own handler.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rallypoint::rendezvous::dynamic::{
    EtcdRendezvousBackend, FencingToken, RendezvousBackend as _,
};
use rallypoint::store::DEFAULT_TIMEOUT;

use crate::arguments::{Blob, Time};
use crate::client::Client;
use crate::errors::{OrRaise, wrong_argument};
use crate::runtime::{Tied, wait};
use crate::store::{Store, folder};

/// One state in an etcd, which changes only under a compare. `rallypoint.torch.EtcdRendezvousBackend` is
/// what PyTorch uses.
#[pyclass(module = "rallypoint", frozen)]
pub(crate) struct RendezvousBackend {
    native: Tied<EtcdRendezvousBackend>,
}

/// A state and its token, which is a revision.
type State<'py> = (Bound<'py, PyBytes>, i64);

fn out<'py>(py: Python<'py>, state: &[u8], token: &FencingToken) -> State<'py> {
    // What the backend has given is a number.
    (PyBytes::new(py, state), token.as_str().parse().unwrap_or_default())
}

#[pymethods]
impl RendezvousBackend {
    #[new]
    #[pyo3(signature = (client, run_id, key_prefix = None, ttl = None))]
    fn create(
        py: Python<'_>,
        client: &Client,
        run_id: &str,
        key_prefix: Option<&str>,
        ttl: Option<u64>,
    ) -> PyResult<Self> {
        let ttl = ttl.map(Duration::from_secs);
        let native = EtcdRendezvousBackend::new(client.native(py)?, run_id, key_prefix, ttl);
        let native = native.map_err(|error| wrong_argument(py, error.to_string()))?;
        Ok(Self { native: Tied::new(native) })
    }

    /// The state and its token, or nothing.
    fn get_state<'py>(&self, py: Python<'py>) -> PyResult<Option<State<'py>>> {
        let native = self.native.get(py)?;
        let found = wait(py, native.get_state())?.or_raise(py)?;
        Ok(found.map(|(state, token)| out(py, &state, &token)))
    }

    /// Writes the state if it is still the one that ``token`` names; without one, if there is none. Returns
    /// what is there afterwards, its token, and whether it was written.
    #[pyo3(signature = (state, token = None))]
    fn set_state<'py>(
        &self,
        py: Python<'py>,
        state: Blob,
        token: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, i64, bool)>> {
        let native = self.native.get(py)?;
        // Whatever is no token of ours names no state of ours.
        let token = token.map(|token| token.str()).transpose()?;
        let token = token.map(|token| FencingToken::new(token.to_string_lossy()));
        let found = wait(py, native.set_state(state.0, token.as_ref()))?.or_raise(py)?;
        Ok(found.map(|(state, token, written)| {
            let (state, token) = out(py, &state, &token);
            (state, token, written)
        }))
    }

    /// A store whose keys lie below ``prefix``, and end with the state.
    #[pyo3(signature = (prefix, timeout = None))]
    fn store(&self, py: Python<'_>, prefix: &str, timeout: Option<Time>) -> PyResult<Store> {
        let native = self.native.get(py)?;
        let timeout = timeout.map_or(DEFAULT_TIMEOUT, |Time(timeout)| timeout);
        let store = wait(py, native.store(folder(prefix), timeout))?.or_raise(py)?;
        Ok(Store::new(Arc::new(store)))
    }
}
