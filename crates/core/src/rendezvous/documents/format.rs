//! The encoding of documents, with their format number.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Extra, FORMAT};

/// A document that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The document has another format.
    #[error(
        "the document at {key} has format {found}, and this version reads format {FORMAT}: run the same version \
         on every node, or give the run another id"
    )]
    Format {
        /// The key of the document.
        key: String,
        /// The format of the document; 0 if it has no format number, as before format 1.
        found: u32,
    },
    /// The document is malformed.
    #[error("the document at {key} cannot be read: {reason}")]
    Corrupt {
        /// The key of the document.
        key: String,
        /// The error of the parser.
        reason: String,
    },
}

/// A document with its format number.
#[derive(Serialize, Deserialize)]
struct DocumentEnvelope<T> {
    format: u32,
    #[serde(flatten)]
    document: T,
}

/// Encodes a document.
pub fn encode<T: Serialize>(document: &T) -> Bytes {
    // Documents are structs of numbers and strings, which JSON can always represent.
    serde_json::to_vec(&DocumentEnvelope { format: FORMAT, document }).unwrap_or_default().into()
}

/// Decodes the document at `key`.
///
/// # Errors
/// If the document has another format, or is malformed.
pub fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, DocumentError> {
    let key = || String::from_utf8_lossy(key).into_owned();
    let corrupt =
        |error: serde_json::Error| DocumentError::Corrupt { key: key(), reason: error.to_string() };
    match serde_json::from_slice::<DocumentEnvelope<T>>(value) {
        Ok(DocumentEnvelope { format: FORMAT, document }) => Ok(document),
        Ok(DocumentEnvelope { format: found, .. }) => {
            Err(DocumentError::Format { key: key(), found })
        }
        // A document of another format may have other fields.
        Err(error) => match serde_json::from_slice::<Extra>(value) {
            Ok(fields) => match fields.get("format").map_or(Some(0), serde_json::Value::as_u64) {
                Some(found) if found != u64::from(FORMAT) => {
                    let found = u32::try_from(found).unwrap_or(u32::MAX);
                    Err(DocumentError::Format { key: key(), found })
                }
                _ => Err(corrupt(error)),
            },
            Err(error) => Err(corrupt(error)),
        },
    }
}
