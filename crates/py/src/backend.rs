//! The rendezvous backend of PyTorch's own handler.

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
use crate::runtime::{ProcessBound, wait};
use crate::store::{Store, folder};

/// A state on etcd that changes only by compare-and-set. PyTorch uses it as
/// `rallypoint.torch.EtcdRendezvousBackend`.
#[pyclass(module = "rallypoint", frozen)]
pub(crate) struct RendezvousBackend {
    native: ProcessBound<EtcdRendezvousBackend>,
}

/// A state and its fencing token, which is a revision.
type State<'py> = (Bound<'py, PyBytes>, i64);

fn out<'py>(py: Python<'py>, state: &[u8], token: &FencingToken) -> State<'py> {
    // The tokens of this backend are numbers.
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
        Ok(Self { native: ProcessBound::new(native) })
    }

    /// Reads the state and its fencing token; ``None`` if there is no state.
    fn get_state<'py>(&self, py: Python<'py>) -> PyResult<Option<State<'py>>> {
        let native = self.native.get(py)?;
        let found = wait(py, native.get_state())?.or_raise(py)?;
        Ok(found.map(|(state, token)| out(py, &state, &token)))
    }

    /// Writes the state if it is still the version that ``token`` names; without a token, if there is no state.
    /// Returns the state afterwards, its token, and whether this call wrote it.
    #[pyo3(signature = (state, token = None))]
    fn set_state<'py>(
        &self,
        py: Python<'py>,
        state: Blob,
        token: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, i64, bool)>> {
        let native = self.native.get(py)?;
        // A token of another backend names no version of this state.
        let token = token.map(|token| token.str()).transpose()?;
        let token = token.map(|token| FencingToken::new(token.to_string_lossy()));
        let found = wait(py, native.set_state(state.0, token.as_ref()))?.or_raise(py)?;
        Ok(found.map(|(state, token, written)| {
            let (state, token) = out(py, &state, &token);
            (state, token, written)
        }))
    }

    /// Makes a store whose keys begin with ``prefix`` and expire with the state.
    #[pyo3(signature = (prefix, timeout = None))]
    fn store(&self, py: Python<'_>, prefix: &str, timeout: Option<Time>) -> PyResult<Store> {
        let native = self.native.get(py)?;
        let timeout = timeout.map_or(DEFAULT_TIMEOUT, |Time(timeout)| timeout);
        let store = wait(py, native.store(folder(prefix), timeout))?.or_raise(py)?;
        Ok(Store::new(Arc::new(store)))
    }
}
