//! The gRPC services, and which of them a request goes to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic_health::pb::health_server::{Health, HealthServer};
use tower::Service;

use super::auth::{Admitted, AuthService, Gate};
use super::calls::{Calls, Place};
use super::engine::Engine;
use super::front;
use super::kv::KvService;
use super::lease::LeaseService;
use super::reply::Replies;
use super::status::{ClusterService, LocalAddress, MaintenanceService};
use super::watch::WatchService;
use super::{GRPC_OVERHEAD, ServerOptions};
use crate::proto::etcd::auth_server::AuthServer;
use crate::proto::etcd::cluster_server::ClusterServer;
use crate::proto::etcd::kv_server::KvServer;
use crate::proto::etcd::lease_server::LeaseServer;
use crate::proto::etcd::maintenance_server::MaintenanceServer;
use crate::proto::etcd::watch_server::WatchServer;

/// Everything that is served.
///
/// A plain match on the path, since there are seven services and will not be many more: a router
/// with its layers took a third of the time that a small request takes.
pub(super) struct Services<H: Health> {
    gate: Option<Arc<Gate>>,
    max_message_bytes: usize,
    kv: KvServer<KvService>,
    lease: LeaseServer<LeaseService>,
    watch: WatchServer<WatchService>,
    cluster: ClusterServer<ClusterService>,
    maintenance: MaintenanceServer<MaintenanceService>,
    auth: AuthServer<AuthService>,
    health: HealthServer<H>,
}

pub(super) fn services(
    engine: &Arc<Engine>,
    options: &ServerOptions,
    stopping: &CancellationToken,
) -> Services<impl Health> {
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
    let cluster =
        ClusterService { name: options.name.clone(), replies, tls: options.tls.is_some() };
    let maintenance = MaintenanceService { engine: engine(), replies };
    let auth = AuthService { engine: engine(), replies, gate: gate.clone() };
    // The reporter is dropped: we are healthy for as long as we answer at all.
    let (_, health) = tonic_health::server::health_reporter();
    Services {
        gate,
        max_message_bytes: limit,
        kv: KvServer::new(kv).max_decoding_message_size(limit),
        lease: LeaseServer::new(lease).max_decoding_message_size(limit),
        watch: WatchServer::new(watch).max_decoding_message_size(limit),
        cluster: ClusterServer::new(cluster),
        maintenance: MaintenanceServer::new(maintenance),
        auth: AuthServer::new(auth),
        health,
    }
}

impl<H: Health> Services<H> {
    /// Answers a request that came in on a connection to `local_address`, which has these calls.
    pub(super) async fn call(
        &self,
        mut request: Request<Incoming>,
        local_address: SocketAddr,
        calls: &Calls,
    ) -> Response<Body> {
        if !front::is_grpc(request.headers()) {
            return front::not_grpc();
        }
        let uri = request.uri().clone();
        let (service, method) = front::service_and_method(uri.path());
        let _place = match self.admit(service, method, request.headers(), calls) {
            Ok(place) => place,
            Err(status) => return status.into_http(),
        };
        if front::is_lasting(service, method) {
            match calls.lasting() {
                Ok(place) => drop(request.extensions_mut().insert(place)),
                Err(status) => return status.into_http(),
            }
        }
        let response = match service {
            front::KV => answer(&self.kv, request).await,
            front::LEASE => answer(&self.lease, request).await,
            front::WATCH => answer(&self.watch, request).await,
            front::CLUSTER => {
                request.extensions_mut().insert(LocalAddress(local_address));
                answer(&self.cluster, request).await
            }
            front::MAINTENANCE => answer(&self.maintenance, request).await,
            front::AUTH => answer(&self.auth, request).await,
            front::HEALTH => answer(&self.health, request).await,
            _ => return front::unknown_service(service).into_http(),
        };
        match Status::from_header_map(response.headers()) {
            Some(status) => front::reword(service, method, self.max_message_bytes, &status)
                .map_or(response, Status::into_http),
            None => response,
        }
    }
}

impl<H: Health> Services<H> {
    /// Whether a call may go on, and its place if it is one of a stranger. A stream without a token ends
    /// here like any other call, where etcd would open it and refuse each watch: it costs nothing then.
    fn admit(
        &self,
        service: &str,
        method: &str,
        headers: &http::HeaderMap,
        calls: &Calls,
    ) -> Result<Option<Place>, Status> {
        let Some(gate) = &self.gate else { return Ok(None) };
        match gate.check(service, method, headers)? {
            Admitted::Anybody => calls.before_token(),
            Admitted::ByToken => {
                calls.show_token();
                Ok(None)
            }
        }
    }
}

async fn answer<S>(service: &S, request: Request<Incoming>) -> Response<Body>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone,
{
    match service.clone().call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
