//! Errors of the key-value store and the gRPC statuses that carry them.

use rallypoint_core::kv::KvError;
use tonic::{Code, Status};

/// The gRPC status by which etcd reports this error.
pub(crate) fn status(error: KvError) -> Status {
    Status::new(code(&error), error.to_string())
}

fn code(error: &KvError) -> Code {
    match error {
        KvError::KeyNotProvided
        | KvError::ValueProvided
        | KvError::LeaseProvided
        | KvError::KeyNotFound
        | KvError::TooManyOps
        | KvError::DuplicateKey => Code::InvalidArgument,
        KvError::Compacted | KvError::FutureRevision | KvError::LeaseTtlTooLarge => {
            Code::OutOfRange
        }
        KvError::LeaseNotFound => Code::NotFound,
        KvError::LeaseExists => Code::FailedPrecondition,
        KvError::NoSpace | KvError::TooManyLeases { .. } => Code::ResourceExhausted,
        _ => Code::Unknown,
    }
}

/// The store's error that a server reported by this status, if it is one.
///
/// The text alone decides, as in etcd's own client: codes have changed between versions.
pub(crate) fn kv_error(status: &Status) -> Option<KvError> {
    const KNOWN: [KvError; 12] = [
        KvError::KeyNotProvided,
        KvError::ValueProvided,
        KvError::LeaseProvided,
        KvError::KeyNotFound,
        KvError::TooManyOps,
        KvError::DuplicateKey,
        KvError::Compacted,
        KvError::FutureRevision,
        KvError::LeaseNotFound,
        KvError::LeaseExists,
        KvError::LeaseTtlTooLarge,
        KvError::NoSpace,
    ];
    KNOWN.into_iter().find(|known| known.to_string() == status.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_recognised_by_their_text() {
        let sent = status(KvError::Compacted);
        assert_eq!(sent.code(), Code::OutOfRange);
        assert_eq!(kv_error(&sent), Some(KvError::Compacted));
        assert_eq!(kv_error(&Status::internal("etcdserver: no idea")), None);
    }
}
