//! Authentication: the Auth service issues tokens, and every other service requires one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tonic::{Request, Response, Status};

use super::header::ResponseHeaders;
use super::router::{AUTH, HEALTH};
use crate::log_target::SERVER;
use crate::proto::etcd as pb;
use crate::server::Credentials;
use crate::server::engine::Engine;

/// The time after which an unused token expires; etcd's.
const TOKEN_LIFE: Duration = Duration::from_secs(300);

/// Limit of tokens, so that a client that requests tokens and never uses them cannot fill the memory.
const MOST_TOKENS: usize = 100_000;

/// Why a call is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// The call needs no token.
    Public,
    /// The call has a valid token.
    ByToken,
}

/// The one user, and the tokens issued to it.
pub(super) struct Authenticator {
    credentials: Credentials,
    tokens: Mutex<HashMap<String, Instant>>,
}

impl Authenticator {
    pub(super) fn new(credentials: Credentials) -> Self {
        Self { credentials, tokens: Mutex::new(HashMap::new()) }
    }

    fn login(&self, user: &str, password: &str) -> Result<String, Status> {
        if !self.credentials.are(user.as_bytes(), password.as_bytes()) {
            tracing::warn!(target: SERVER, user, "a login was refused");
            let text = "etcdserver: authentication failed, invalid user ID or password";
            return Err(Status::invalid_argument(text));
        }
        let mut secret = [0_u8; 24];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Status::internal(format!("rallypoint: no random numbers: {error}")))?;
        let token: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut tokens = self.tokens.lock().expect("no panic while it is held");
        if tokens.len() >= MOST_TOKENS {
            tokens.retain(|_, used| used.elapsed() < TOKEN_LIFE);
        }
        if tokens.len() >= MOST_TOKENS {
            return Err(Status::resource_exhausted("etcdserver: too many requests"));
        }
        tokens.insert(token.clone(), Instant::now());
        Ok(token)
    }

    /// Whether a call with these headers is admitted, and why.
    pub(super) fn check(
        &self,
        service: &str,
        method: &str,
        headers: &http::HeaderMap,
    ) -> Result<Admission, Status> {
        // The call that issues a token, and health checks. From etcd 3.6 on, Status is for users alone.
        if matches!((service, method), (AUTH, "Authenticate") | (HEALTH, "Check")) {
            return Ok(Admission::Public);
        }
        let token = headers.get("token").or_else(|| headers.get("authorization"));
        let Some(token) = token else {
            return Err(Status::invalid_argument("etcdserver: user name is empty"));
        };
        let mut tokens = self.tokens.lock().expect("no panic while it is held");
        let used = token.to_str().ok().and_then(|token| tokens.get_mut(token));
        match used.filter(|used| used.elapsed() < TOKEN_LIFE) {
            Some(used) => {
                *used = Instant::now();
                Ok(Admission::ByToken)
            }
            None => Err(Status::unauthenticated("etcdserver: invalid auth token")),
        }
    }
}

pub(super) struct AuthService {
    pub(super) engine: Arc<Engine>,
    pub(super) headers: ResponseHeaders,
    pub(super) authenticator: Option<Arc<Authenticator>>,
}

#[tonic::async_trait]
impl pb::auth_server::Auth for AuthService {
    async fn auth_status(
        &self,
        _: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let header = self.headers.header(self.engine.read(|store| store.revision()));
        let enabled = self.authenticator.is_some();
        // The user does not change while the server runs.
        Ok(Response::new(pb::AuthStatusResponse { header, enabled, auth_revision: 1 }))
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        let Some(authenticator) = &self.authenticator else {
            return Err(Status::failed_precondition("etcdserver: authentication is not enabled"));
        };
        let pb::AuthenticateRequest { name, password } = request.into_inner();
        let token = authenticator.login(&name, &password)?;
        let header = self.headers.header(self.engine.read(|store| store.revision()));
        Ok(Response::new(pb::AuthenticateResponse { header, token }))
    }
}
