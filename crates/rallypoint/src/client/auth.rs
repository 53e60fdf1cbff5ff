//! The authentication token, requested when first needed and renewed when a server refuses it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::credentials::Credentials;
use crate::proto::etcd as pb;
use crate::proto::etcd::auth_client::AuthClient;

pub(super) struct Auth {
    credentials: Option<Credentials>,
    /// The cell lets many calls wait for one request: to check a password costs a server 50 ms.
    token: Mutex<AuthToken>,
}

/// The token of the current user; empty if the server requires no authentication.
#[derive(Clone, Default)]
pub(super) struct AuthToken(Arc<OnceCell<Option<MetadataValue<Ascii>>>>);

impl AuthToken {
    pub(super) fn add_to(&self, metadata: &mut MetadataMap) {
        if let Some(Some(token)) = self.0.get() {
            metadata.insert("token", token.clone());
        }
    }
}

impl Auth {
    pub(super) fn new(credentials: Option<Credentials>) -> Self {
        Self { credentials, token: Mutex::default() }
    }

    /// The user, if one was given.
    pub(super) fn user(&self) -> Option<&str> {
        self.credentials.as_ref().map(|credentials| credentials.user.as_str())
    }

    /// The token, from the server at the other end of `channel` if there is none yet.
    pub(super) async fn token(&self, channel: &Channel) -> Result<AuthToken, Status> {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(credentials) = &self.credentials {
            token.0.get_or_try_init(|| authenticate(channel.clone(), credentials)).await?;
        }
        Ok(token)
    }

    /// Discards the current token.
    pub(super) fn renew(&self) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = AuthToken::default();
    }

    /// Discards `token`, which a server refused, unless another call has done so already.
    pub(super) fn discard(&self, token: &AuthToken) {
        let mut current = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&current.0, &token.0) {
            *current = AuthToken::default();
        }
    }
}

async fn authenticate(
    channel: Channel,
    credentials: &Credentials,
) -> Result<Option<MetadataValue<Ascii>>, Status> {
    let Credentials { user, password } = credentials.clone();
    let request = Request::new(pb::AuthenticateRequest { name: user, password });
    match AuthClient::new(channel).authenticate(request).await {
        Ok(response) => match MetadataValue::try_from(response.into_inner().token) {
            Ok(token) => Ok(Some(token)),
            Err(_) => Err(Status::internal("the token has characters that no header may have")),
        },
        // The server does not require authentication, so credentials are not needed.
        Err(status) if status.message() == "etcdserver: authentication is not enabled" => Ok(None),
        Err(status) => Err(status),
    }
}
