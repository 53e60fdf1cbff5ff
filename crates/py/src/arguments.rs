//! Conversions of Python arguments: bytes, times and options.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyString};

use crate::errors::wrong_argument;

/// A key or a value: `bytes`, or `str`, which means its UTF-8.
pub(crate) struct Blob(pub(crate) Bytes);

impl<'a, 'py> FromPyObject<'a, 'py> for Blob {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(Bytes::copy_from_slice(bytes.as_bytes())));
        }
        let Ok(text) = object.cast::<PyString>() else {
            let name = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("give str or bytes, not {name}")));
        };
        // Bytes that are not UTF-8 were escaped when the key was listed.
        let bytes = text.call_method1("encode", ("utf-8", "surrogateescape"))?;
        Ok(Self(Bytes::copy_from_slice(bytes.cast::<PyBytes>()?.as_bytes())))
    }
}

/// A key as text, which [`Blob`] reads back.
pub(crate) fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogateescape"))
}

/// A time: a `timedelta`, or seconds.
#[derive(Clone, Copy)]
pub(crate) struct Time(pub(crate) Duration);

impl<'a, 'py> FromPyObject<'a, 'py> for Time {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let seconds = match object.extract::<f64>() {
            Ok(seconds) => seconds,
            Err(_) => match object.call_method0("total_seconds") {
                Ok(seconds) => seconds.extract()?,
                Err(_) => {
                    let name = object.get_type().name()?;
                    let text = format!("give seconds or a timedelta, not {name}");
                    return Err(PyTypeError::new_err(text));
                }
            },
        };
        Duration::try_from_secs_f64(seconds).map(Self).map_err(|error| {
            wrong_argument(
                object.py(),
                format!("timeout {seconds}: {error}; give seconds or a timedelta"),
            )
        })
    }
}

/// Keyword options, converted to the text that a command line would have.
pub(crate) fn options(given: Option<&Bound<'_, PyDict>>) -> PyResult<BTreeMap<String, String>> {
    let mut options = BTreeMap::new();
    for (key, value) in given.into_iter().flatten() {
        if value.is_none() {
            continue;
        }
        let value = match value.cast::<PyBool>() {
            Ok(value) => value.is_true().to_string(),
            Err(_) => value.str()?.to_string_lossy().into_owned(),
        };
        options.insert(key.extract()?, value);
    }
    Ok(options)
}
