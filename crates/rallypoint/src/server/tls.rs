//! TLS of the server: its own certificate, and the verification of clients.

use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

/// Certificates and key for TLS, as PEM.
#[derive(Clone)]
pub struct ServerTls {
    /// The server's certificate, followed by its intermediate certificates.
    pub cert: Vec<u8>,
    /// The server's private key.
    pub key: Vec<u8>,
    /// The authorities for client certificates. If given, clients must present a certificate of one of them.
    pub client_ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("client_ca", &self.client_ca.is_some()).finish()
    }
}

/// Why TLS cannot be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The text has no PEM section of the expected kind.
    #[error("{what} holds no usable PEM section")]
    Pem {
        /// The option that the text came from.
        what: &'static str,
        /// The problem.
        source: pem::Error,
    },
    /// Certificate and key do not match, or one is of a kind that is not supported.
    #[error("the certificate and the key do not make an identity")]
    Identity(#[source] rustls::Error),
    /// The authorities cannot be used to verify clients.
    #[error("the client CA cannot be used")]
    ClientCa(#[source] VerifierBuilderError),
}

fn certificates(what: &'static str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |source| TlsError::Pem { what, source };
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(text).collect::<Result<_, _>>().map_err(pem)?;
    if found.is_empty() { Err(pem(pem::Error::NoItemsFound)) } else { Ok(found) }
}

/// What connections are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsUse {
    /// Calls of clients, over HTTP/2 or, for metrics, HTTP/1. Where there are authorities for client certificates, a
    /// client without a certificate is refused.
    Calls,
    /// Pages, over HTTP/1. A client without a certificate is not refused: each page decides.
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "only the command has pages"))]
    Pages,
}

pub(crate) fn acceptor(tls: &ServerTls, used_for: TlsUse) -> Result<TlsAcceptor, TlsError> {
    let chain = certificates("--cert", &tls.cert)?;
    let key = PrivateKeyDer::from_pem_slice(&tls.key)
        .map_err(|source| TlsError::Pem { what: "--key", source })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Identity)?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(text) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates("--client-ca", text)? {
                roots.add(authority).map_err(TlsError::Identity)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match used_for {
                TlsUse::Calls => verifier,
                TlsUse::Pages => verifier.allow_unauthenticated(),
            };
            builder.with_client_cert_verifier(verifier.build().map_err(TlsError::ClientCa)?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Identity)?;
    let protocols: &[&[u8]] = match used_for {
        TlsUse::Calls => &[b"h2", b"http/1.1"],
        TlsUse::Pages => &[b"http/1.1"],
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}
