//! etcd's v3 API over gRPC: the router, the response header, and the services, a file each.
//!
//! - `router`: which service answers a request.
//! - `header`: the header that every response carries.
//! - `calls`: how many calls one connection may have under way.
//! - `auth`: users and tokens.
//! - `kv`, `lease`, `watch`: the services of the store.
//! - `cluster`: the services that describe the server itself.
//! - `plain_http`: what a client sees that does not speak gRPC.

mod auth;
mod calls;
mod cluster;
mod header;
mod kv;
mod lease;
mod plain_http;
mod router;
mod watch;

pub(super) use self::calls::{Calls, MOST_STREAMS};
pub(super) use self::cluster::ETCD_VERSION;
pub(super) use self::router::{
    AUTH, CLUSTER, HEALTH, KV, LEASE, MAINTENANCE, Router, WATCH, router,
};
