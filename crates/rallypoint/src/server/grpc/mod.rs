//! etcd's v3 API over gRPC: the router, the response header, and the services, a file each.
//!
//! - `router`: which service answers a request.
//! - `header`: the header that every response carries.
//! - `calls`: how many calls one connection may have under way.
//! - `auth`: users and tokens.
//! - `kv`, `lease`, `watch`: the services of the store.
//! - `lock`, `election`, `observer`, `queue`: locks and elections, and the queues behind them.
//! - `cluster`, `maintenance`: the services that describe the server itself.
//! - `doctor`: whether a node is reached at the address that it would publish, as this host sees it.
//! - `succession`: whether this host serves, where hosts succeed each other as servers.
//! - `plain_http`: what a client sees that does not speak gRPC.

mod auth;
mod calls;
mod cluster;
mod doctor;
mod election;
mod header;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod observer;
mod plain_http;
mod queue;
mod router;
mod succession;
mod watch;

pub(super) use self::calls::{Calls, MOST_STREAMS};
#[cfg(feature = "cli")]
pub(crate) use self::doctor::greeting as dial_back_greeting;
pub(super) use self::maintenance::ETCD_VERSION;
pub(super) use self::router::{
    AUTH, CLUSTER, DOCTOR, ELECTION, HEALTH, KV, LEASE, LOCK, MAINTENANCE, Router, SUCCESSION,
    WATCH, router,
};
