//! The router: which gRPC service answers a request, and etcd's wording where the gRPC library has its own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_health::pb::health_server::{Health, HealthServer};
use tower::Service;

use super::auth::{Admission, AuthService, Authenticator};
use super::calls::{CallPermit, Calls};
use super::cluster::{ClusterService, LocalAddress};
use super::doctor::DoctorService;
use super::election::ElectionService;
use super::header::ResponseHeaders;
use super::kv::KvService;
use super::lease::LeaseService;
use super::lock::LockService;
use super::maintenance::MaintenanceService;
use super::plain_http::PlainHttp;
use super::queue::Queues;
use super::succession::SuccessionService;
use super::watch::WatchService;
use crate::proto::doctor::doctor_server::DoctorServer;
use crate::proto::election::election_server::ElectionServer;
use crate::proto::etcd::auth_server::AuthServer;
use crate::proto::etcd::cluster_server::ClusterServer;
use crate::proto::etcd::kv_server::KvServer;
use crate::proto::etcd::lease_server::LeaseServer;
use crate::proto::etcd::maintenance_server::MaintenanceServer;
use crate::proto::etcd::watch_server::WatchServer;
use crate::proto::lock::lock_server::LockServer;
use crate::proto::succession::succession_server::SuccessionServer;
use crate::server::ServerOptions;
use crate::server::engine::Engine;
use crate::succession::{HostRole, STANDS_BY};

pub(in crate::server) const KV: &str = "etcdserverpb.KV";
pub(in crate::server) const LEASE: &str = "etcdserverpb.Lease";
pub(in crate::server) const WATCH: &str = "etcdserverpb.Watch";
pub(in crate::server) const CLUSTER: &str = "etcdserverpb.Cluster";
pub(in crate::server) const MAINTENANCE: &str = "etcdserverpb.Maintenance";
pub(in crate::server) const AUTH: &str = "etcdserverpb.Auth";
pub(in crate::server) const LOCK: &str = "v3lockpb.Lock";
pub(in crate::server) const ELECTION: &str = "v3electionpb.Election";
pub(in crate::server) const HEALTH: &str = "grpc.health.v1.Health";
pub(in crate::server) const DOCTOR: &str = "rallypoint.doctor.Doctor";
pub(in crate::server) const SUCCESSION: &str = "rallypoint.succession.Succession";

/// What gRPC may add around a request that is just within the limit; etcd's number.
const GRPC_OVERHEAD: usize = 512 << 10;

/// All services of the server.
///
/// Routing is a plain match on the path, since there are a dozen services and will not be many more: a
/// router with layers took a third of the time that a small request takes.
pub(in crate::server) struct Router<H: Health> {
    engine: Arc<Engine>,
    plain_http: PlainHttp,
    authenticator: Option<Arc<Authenticator>>,
    max_message_bytes: usize,
    kv: KvServer<KvService>,
    lease: LeaseServer<LeaseService>,
    watch: WatchServer<WatchService>,
    cluster: ClusterServer<ClusterService>,
    maintenance: MaintenanceServer<MaintenanceService>,
    auth: AuthServer<AuthService>,
    lock: LockServer<LockService>,
    election: ElectionServer<ElectionService>,
    health: HealthServer<H>,
    doctor: DoctorServer<DoctorService>,
    succession: Option<SuccessionServer<SuccessionService>>,
    /// Whether the host stands by, and another one serves.
    stands_by: bool,
}

pub(in crate::server) fn router(
    engine: &Arc<Engine>,
    options: &ServerOptions,
    stopping: &CancellationToken,
) -> Router<impl Health> {
    let headers = ResponseHeaders { cluster_id: engine.cluster_id() };
    let max_request_bytes = options.max_request_bytes;
    let limit = max_request_bytes.saturating_add(GRPC_OVERHEAD);
    let authenticator = options.credentials.clone().map(|it| Arc::new(Authenticator::new(it)));
    let engine = || engine.clone();

    let kv = KvService { engine: engine(), headers, max_request_bytes };
    let lease = LeaseService { engine: engine(), headers, stopping: stopping.clone() };
    let watch = WatchService {
        engine: engine(),
        headers,
        stopping: stopping.clone(),
        progress_interval: options.progress_interval,
        fragment_bytes: limit,
    };
    let cluster =
        ClusterService { name: options.name.clone(), headers, tls: options.tls.is_some() };
    let maintenance = MaintenanceService { engine: engine(), headers };
    let auth = AuthService { engine: engine(), headers, authenticator: authenticator.clone() };
    let queues = Queues { engine: engine(), stopping: stopping.clone() };
    let lock = LockService { queues: queues.clone(), headers };
    let election = ElectionService { queues, headers };
    let succession = options.role.clone().map(|role| SuccessionService { role, engine: engine() });
    // The reporter is dropped: a server that answers at all is healthy.
    let (_, health) = tonic_health::server::health_reporter();
    Router {
        engine: engine(),
        plain_http: PlainHttp {
            engine: engine(),
            credentials: options.credentials.clone(),
            page: Arc::new(Semaphore::new(1)),
        },
        authenticator,
        max_message_bytes: limit,
        kv: KvServer::new(kv).max_decoding_message_size(limit),
        lease: LeaseServer::new(lease).max_decoding_message_size(limit),
        watch: WatchServer::new(watch).max_decoding_message_size(limit),
        cluster: ClusterServer::new(cluster),
        maintenance: MaintenanceServer::new(maintenance),
        auth: AuthServer::new(auth),
        lock: LockServer::new(lock).max_decoding_message_size(limit),
        election: ElectionServer::new(election).max_decoding_message_size(limit),
        health,
        doctor: DoctorServer::new(DoctorService::new(stopping)),
        succession: succession.map(SuccessionServer::new),
        stands_by: matches!(options.role, Some(HostRole { serves: false, .. })),
    }
}

impl<H: Health> Router<H> {
    /// Answers a request that arrived on a connection to `local_address`, whose calls are counted in `calls`.
    pub(in crate::server) async fn call(
        &self,
        mut request: Request<Incoming>,
        local_address: SocketAddr,
        calls: &Calls,
    ) -> Response<Body> {
        if !is_grpc(request.headers()) {
            return self.plain_http.answer(&request).await;
        }
        let uri = request.uri().clone();
        let (service, method) = service_and_method(uri.path());
        let metrics = self.engine.counters().calls.of(service, method);
        if is_lasting(service, method) {
            let call = Arc::new(metrics.start());
            // The stream ends long after its response has begun, and then is counted.
            request.extensions_mut().insert(call.clone());
            let response = self.respond(service, method, request, local_address, calls).await;
            if let Some(refused) = Status::from_header_map(response.headers()) {
                call.ends_with(refused.code());
            }
            return response;
        }
        let call = metrics.start();
        let response = self.respond(service, method, request, local_address, calls).await;
        let status = Status::from_header_map(response.headers());
        call.ends_with(status.map_or(Code::Ok, |status| status.code()));
        response
    }

    async fn respond(
        &self,
        service: &str,
        method: &str,
        mut request: Request<Incoming>,
        local_address: SocketAddr,
        calls: &Calls,
    ) -> Response<Body> {
        let _permit = match self.admit(service, method, request.headers(), calls) {
            Ok(permit) => permit,
            Err(status) => return status.into_http(),
        };
        if self.stands_by && !matches!(service, AUTH | CLUSTER | HEALTH | DOCTOR | SUCCESSION) {
            return Status::unavailable(STANDS_BY).into_http();
        }
        if is_lasting(service, method) {
            match calls.lasting() {
                Ok(permit) => drop(request.extensions_mut().insert(permit)),
                Err(status) => return status.into_http(),
            }
        }
        let response = match service {
            KV => answer(&self.kv, request).await,
            LEASE => answer(&self.lease, request).await,
            WATCH => answer(&self.watch, request).await,
            CLUSTER => {
                request.extensions_mut().insert(LocalAddress(local_address));
                answer(&self.cluster, request).await
            }
            MAINTENANCE => answer(&self.maintenance, request).await,
            AUTH => answer(&self.auth, request).await,
            LOCK => answer(&self.lock, request).await,
            ELECTION => answer(&self.election, request).await,
            HEALTH => answer(&self.health, request).await,
            DOCTOR => answer(&self.doctor, request).await,
            SUCCESSION => match &self.succession {
                Some(succession) => answer(succession, request).await,
                None => return unknown_service(service).into_http(),
            },
            _ => return unknown_service(service).into_http(),
        };
        match Status::from_header_map(response.headers()) {
            Some(status) => reword(service, method, self.max_message_bytes, &status)
                .map_or(response, Status::into_http),
            None => response,
        }
    }

    /// Checks the token of a call. An unauthenticated call that needs none gets a permit instead.
    ///
    /// A stream without a token is refused here like any other call, where etcd would open it and refuse
    /// each watch; refused early, it costs nothing.
    fn admit(
        &self,
        service: &str,
        method: &str,
        headers: &HeaderMap,
        calls: &Calls,
    ) -> Result<Option<CallPermit>, Status> {
        let Some(authenticator) = &self.authenticator else { return Ok(None) };
        match authenticator.check(service, method, headers)? {
            Admission::Public => calls.before_token(),
            Admission::ByToken => {
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

/// How the gRPC library's status for a message over the limit begins.
const TOO_LONG: &str = "Error, decoded message length too large: found ";

/// The service and the method that a path names.
fn service_and_method(path: &str) -> (&str, &str) {
    path.trim_start_matches('/').rsplit_once('/').unwrap_or((path, ""))
}

/// Whether a call is a stream that lasts for as long as its client keeps it open.
fn is_lasting(service: &str, method: &str) -> bool {
    matches!(
        (service, method),
        (WATCH, "Watch") | (LEASE, "LeaseKeepAlive") | (ELECTION, "Observe")
    )
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// The status for a service that is not served, in the words of etcd's gRPC library. Invariant W1.
fn unknown_service(service: &str) -> Status {
    Status::unimplemented(format!("unknown service {service}"))
}

/// etcd's status in place of one that the gRPC library generated by itself.
fn reword(
    service: &str,
    method: &str,
    max_message_bytes: usize,
    status: &Status,
) -> Option<Status> {
    match status.code() {
        // The library gives no reason. Invariant W1: a method that is not implemented is refused by name.
        Code::Unimplemented if status.message().is_empty() => {
            let text = format!("unknown method {method} for service {service}");
            Some(Status::unimplemented(text))
        }
        Code::OutOfRange => {
            let found = status.message().strip_prefix(TOO_LONG)?.split(' ').next()?;
            let limit = max_message_bytes;
            let text = format!("grpc: received message larger than max ({found} vs. {limit})");
            Some(Status::resource_exhausted(text))
        }
        _ => None,
    }
}
