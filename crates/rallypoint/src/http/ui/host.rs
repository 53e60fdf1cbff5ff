//! By which names the page may be asked for.
//!
//! A page of another site may give its own name the address of this server, and then read this page with the browser
//! of somebody who has access (DNS rebinding). Its requests carry its own name. A password, a certificate of the client
//! and TLS each prevent that, since the browser has none of them for that name. Without them the page answers to
//! addresses, which no site can have as a name, and to names that mean this host.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::http::access::Access;
use crate::util::host::host_name;

/// Refuses a request that names another host, unless something else keeps other sites out.
pub(super) async fn known(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if access.keeps_other_sites_out() || is_this_host(host, &host_name()) {
        return next.run(request).await;
    }
    let text = "This page answers to localhost, to the name of its host and to IP addresses: by another name, \
        another site could read it. A server with a password or TLS answers to every name.\n";
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

/// Whether a `Host` header is an address, or a name that means the host of this name.
fn is_this_host(header: &str, own: &str) -> bool {
    let name = match header.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
            _ => return false,
        },
        None => header.rsplit_once(':').map_or(header, |(name, _)| name),
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let own = own.to_ascii_lowercase();
    let short = own.split('.').next().unwrap_or_default();
    name.parse::<IpAddr>().is_ok()
        || name == "localhost"
        || name.ends_with(".localhost")
        || !name.is_empty() && (name == own || name == short)
}

#[cfg(test)]
mod tests {
    use super::is_this_host;

    #[test]
    fn addresses_and_names_of_this_host_are_known() {
        let own = "Gpu1.cluster.example";
        for known in [
            "127.0.0.1:9480",
            "10.0.0.7",
            "[::1]:9480",
            "[fe80::1]",
            "localhost",
            "LOCALHOST:9480",
            "it.localhost:1",
            "gpu1:9480",
            "gpu1.cluster.example",
            "gpu1.cluster.example.:80",
        ] {
            assert!(is_this_host(known, own), "{known}");
        }
        for other in [
            "",
            ":9480",
            "evil.example",
            "evil.example:9480",
            "gpu1.evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::1].evil.example",
            "[evil.example]:80",
            "gpu2",
        ] {
            assert!(!is_this_host(other, own), "{other}");
        }
        assert!(!is_this_host("", ""));
    }
}
