//! etcd's v3 messages and services as they are on the wire, generated from `proto/` at build time.
//!
//! Most callers use [`crate::client`], which speaks [`rallypoint_core::kv`]. This module is for
//! programs that need the bare wire: a proxy, or a test that sends malformed requests.

#![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, reason = "generated")]
#![allow(clippy::use_self, clippy::or_fun_call, reason = "generated")]

pub use etcdserverpb as etcd;
pub(crate) use rallypoint::{doctor, log, succession};
pub use v3electionpb as election;
pub use v3lockpb as lock;

/// etcd's v3 API.
#[doc(hidden)]
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

/// etcd's Lock service.
#[doc(hidden)]
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}

/// etcd's Election service.
#[doc(hidden)]
pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}

// The modules follow the packages, since the generated code refers from one to the other.
mod rallypoint {
    pub(crate) mod doctor {
        tonic::include_proto!("rallypoint.doctor");
    }
    pub(crate) mod log {
        tonic::include_proto!("rallypoint.log");
    }
    pub(crate) mod succession {
        tonic::include_proto!("rallypoint.succession");
    }
}
