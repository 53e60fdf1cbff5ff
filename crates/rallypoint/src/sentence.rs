//! An error as people read it.

use std::error::Error;

/// The error and everything that led to it, on one line.
///
/// ```
/// use rallypoint::rendezvous::RendezvousParameters;
///
/// let error = RendezvousParameters::new("etcd", "head:2379", "job-7", 0, 2).unwrap_err();
/// assert!(rallypoint::sentence(&error).starts_with("min_nodes \"0\": "));
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
