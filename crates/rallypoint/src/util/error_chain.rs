//! Formatting of an error together with its causes.

use std::error::Error;

/// The error and all of its sources on one line, separated by colons.
///
/// ```
/// use rallypoint::rendezvous::RendezvousParameters;
///
/// let error = RendezvousParameters::new("etcd", "head:2379", "job-7", 0, 2).unwrap_err();
/// assert!(rallypoint::error_chain(&error).starts_with("min_nodes \"0\": "));
/// ```
pub fn error_chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    // An error that has a gRPC status as its source repeats the status's message itself, without the
    // code and metadata.
    while let Some(cause) = source.filter(|cause| !cause.is::<tonic::Status>()) {
        // Some errors include the text of their source in their own.
        let text = cause.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    line
}
