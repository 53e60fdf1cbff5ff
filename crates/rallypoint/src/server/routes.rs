//! The gRPC services, with what every call passes in front of them.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::auth::{AuthService, Gate};
use super::engine::Engine;
use super::front::{self, Front};
use super::kv::KvService;
use super::lease::LeaseService;
use super::reply::Replies;
use super::status::{ClusterService, MaintenanceService};
use super::watch::WatchService;
use super::{GRPC_OVERHEAD, ServerOptions};
use crate::proto::etcd::auth_server::AuthServer;
use crate::proto::etcd::cluster_server::ClusterServer;
use crate::proto::etcd::kv_server::KvServer;
use crate::proto::etcd::lease_server::LeaseServer;
use crate::proto::etcd::maintenance_server::MaintenanceServer;
use crate::proto::etcd::watch_server::WatchServer;

pub(super) fn routes(
    engine: &Arc<Engine>,
    options: &ServerOptions,
    stopping: &CancellationToken,
    address: SocketAddr,
) -> Routes {
    let replies = Replies { cluster_id: engine.cluster_id() };
    let max_request_bytes = options.max_request_bytes;
    let limit = max_request_bytes.saturating_add(GRPC_OVERHEAD);
    let gate = options.credentials.clone().map(|it| Arc::new(Gate::new(it)));
    let engine = || engine.clone();

    let kv = KvService { engine: engine(), replies, max_request_bytes };
    let lease = LeaseService { engine: engine(), replies, stopping: stopping.clone() };
    let watch = WatchService {
        engine: engine(),
        replies,
        stopping: stopping.clone(),
        progress_interval: options.progress_interval,
        fragment_bytes: limit,
    };
    let cluster = ClusterService { replies, address, tls: options.tls.is_some() };
    let maintenance = MaintenanceService { engine: engine(), replies };
    let auth = AuthService { engine: engine(), replies, gate: gate.clone() };
    // The reporter is dropped: we are healthy for as long as we answer at all.
    let (_, health) = tonic_health::server::health_reporter();

    let routes = Routes::default()
        .add_service(KvServer::new(kv).max_decoding_message_size(limit))
        .add_service(LeaseServer::new(lease).max_decoding_message_size(limit))
        .add_service(WatchServer::new(watch).max_decoding_message_size(limit))
        .add_service(ClusterServer::new(cluster))
        .add_service(MaintenanceServer::new(maintenance))
        .add_service(AuthServer::new(auth))
        .add_service(health);
    let front = Front { gate, max_message_bytes: limit };
    routes.into_axum_router().layer(axum::middleware::from_fn_with_state(front, front::pass)).into()
}
