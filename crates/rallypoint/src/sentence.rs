//! An error as people read it.

use std::error::Error;

/// The error and everything that led to it, on one line.
///
/// ```
/// let error = rallypoint::client::ClientOptions::new(["nowhere:port"]).hosts().unwrap_err();
/// assert!(rallypoint::sentence(&error).contains("nowhere:port"));
/// ```
pub fn sentence(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    // Whoever has a status says what is in it, and leaves out its code and metadata.
    while let Some(cause) = source.filter(|cause| !cause.is::<tonic::Status>()) {
        // Some errors say what caused them themselves.
        let text = cause.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    line
}
