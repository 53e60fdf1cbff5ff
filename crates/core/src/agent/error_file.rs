//! Error files: a failing worker describes its failure in the file that `TORCHELASTIC_ERROR_FILE` names. The format
//! is torchrun's.

use serde_json::{Map, Value, json};
use thiserror::Error;

/// The content of an error file.
///
/// ```
/// use rallypoint_core::agent::error_file::ErrorFile;
/// let text = r#"{"message": {"message": "ValueError: no", "extraInfo": {"timestamp": "1700000000"}}}"#;
/// let error = ErrorFile::parse(text).unwrap();
/// assert_eq!(error.message, "ValueError: no");
/// assert_eq!(error.timestamp, Some(1_700_000_000));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorFile {
    /// The error, such as `ValueError: no such file`.
    pub message: String,
    /// The stack trace, if the worker wrote one.
    pub traceback: Option<String>,
    /// The time of the failure in seconds since 1970, by the worker's clock, if the worker wrote it.
    pub timestamp: Option<u64>,
}

/// Why an error file cannot be read.
#[derive(Debug, Error)]
pub enum ErrorFileError {
    /// The file is not JSON.
    #[error("the error file is no JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// The file has no message.
    #[error(
        "the error file is {0}: give {{\"message\": \"<text>\", \"timestamp\": <seconds>}} or what \
         torch.distributed.elastic's @record writes"
    )]
    NoMessage(Value),
}

impl ErrorFile {
    /// Parses either of the two forms that torchrun reads: that of `@record`, and a plain message.
    ///
    /// # Errors
    /// [`ErrorFileError`], for any other form.
    pub fn parse(text: &str) -> Result<Self, ErrorFileError> {
        let document: Value = serde_json::from_str(text)?;
        let seconds = |value: &Value| match value {
            Value::String(digits) => digits.trim().parse().ok(),
            number => number.as_u64(),
        };
        match &document["message"] {
            Value::String(message) => Ok(Self {
                message: message.clone(),
                traceback: None,
                timestamp: seconds(&document["timestamp"]),
            }),
            Value::Object(record) if record.get("message").is_some_and(Value::is_string) => {
                let text = |value: &Value| value.as_str().map(str::to_owned);
                let extra = record.get("extraInfo").unwrap_or(&Value::Null);
                Ok(Self {
                    message: text(&record["message"]).unwrap_or_default(),
                    traceback: text(&extra["py_callstack"]),
                    timestamp: seconds(&extra["timestamp"]),
                })
            }
            _ => Err(ErrorFileError::NoMessage(document)),
        }
    }

    /// The file's text in the form of `@record`.
    pub fn format(&self) -> String {
        let mut extra = Map::new();
        if let Some(traceback) = &self.traceback {
            extra.insert("py_callstack".to_owned(), json!(traceback));
        }
        if let Some(timestamp) = self.timestamp {
            // torchrun writes it as text.
            extra.insert("timestamp".to_owned(), json!(timestamp.to_string()));
        }
        json!({"message": {"message": self.message, "extraInfo": extra}}).to_string()
    }
}

/// A worker's error file as the launcher writes it for an outer launcher: the exit code is added, the rest is unchanged.
/// A plain message has no field for the exit code.
///
/// # Errors
/// [`ErrorFileError::NotJson`].
pub fn with_exit_code(text: &str, exit_code: i32) -> Result<String, ErrorFileError> {
    let mut document: Value = serde_json::from_str(text)?;
    if let Some(Value::Object(record)) = document.get_mut("message") {
        record.insert("errorCode".to_owned(), json!(exit_code));
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests;
