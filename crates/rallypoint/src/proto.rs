//! etcd's v3 messages and services as they are on the wire, generated from `proto/` at build time.
//!
//! Most callers use [`crate::client`], which speaks [`rallypoint_core::kv`]. This module is for
//! programs that need the bare wire: a proxy, or a test that sends malformed requests.

#![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, reason = "generated")]
#![allow(clippy::use_self, clippy::or_fun_call, reason = "generated")]

pub use etcdserverpb as etcd;
pub(crate) use rallypoint::log;

/// etcd's v3 API.
#[doc(hidden)]
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

// The modules follow the packages, since the generated code refers from one to the other.
mod rallypoint {
    pub(crate) mod log {
        tonic::include_proto!("rallypoint.log");
    }
}
