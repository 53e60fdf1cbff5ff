//! The pages of `rallypoint serve`, and what its own port tells a client that does not speak gRPC.

use std::sync::Arc;
use std::time::Duration;

use rallypoint::client::{Client, ClientOptions};
use rallypoint::core::kv::{KeyRange, Put, Watch};
use rallypoint::proto::etcd as pb;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::Signal;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring,
};

use super::{Metrics, Page, ask, get, get_with, promtool, told_address};
use crate::support::hostile::{Target, eventually};
use crate::support::process::Directory;
use crate::support::wire;

const HTTP: [&str; 2] = ["--http", "127.0.0.1:0"];

/// The names that etcd gives to gauges, and that Prometheus' rules keep for counters.
const NAMES_OF_ETCD: [&str; 2] =
    ["etcd_debugging_mvcc_watcher_total", "etcd_debugging_mvcc_watch_stream_total"];

async fn start(args: &[&str]) -> (Target, String) {
    let target = Target::start(&[&HTTP[..], args].concat()).await;
    let pages = told_address(&target.output()).expect("the log names the address");
    (target, pages)
}

#[tokio::test]
async fn a_server_tells_what_it_did() {
    let (target, pages) = start(&["--data-dir", "DIR/data"]).await;
    assert_eq!(get(&pages, "/healthz").code, 200);
    assert_eq!(get(&pages, "/readyz").code, 200);
    let client = Client::connect(ClientOptions::new([target.endpoint()])).await.unwrap();
    for number in 0..3 {
        client.put(Put::new(format!("key{number}"), "value")).await.unwrap();
    }
    client.range(KeyRange::all()).await.unwrap();
    let lease = client.lease_grant(60, None).await.unwrap().id;
    client.lease_revoke(lease).await.unwrap();
    let mut kv = wire::kv(&target.endpoint());
    kv.put(pb::PutRequest::default()).await.expect_err("a put wants a key");
    let watcher = client.watch([Watch::new(KeyRange::all())]).await.unwrap();
    let metrics = Metrics::of(&pages);
    let of_put = ["grpc_method=\"Put\"", "grpc_service=\"etcdserverpb.KV\"", "grpc_type=\"unary\""];
    let handled = |code: &str| {
        let code = format!("grpc_code=\"{code}\"");
        metrics.sum("grpc_server_handled_total", &[&of_put[..], &[&code]].concat())
    };
    assert_eq!((handled("OK"), handled("InvalidArgument"), handled("Canceled")), (3.0, 1.0, 0.0));
    assert_eq!(metrics.sum("grpc_server_started_total", &of_put), 4.0);
    assert_eq!(metrics.sum("grpc_server_handling_seconds_count", &of_put), 4.0);
    assert!(metrics.sum("grpc_server_handling_seconds_sum", &of_put) > 0.0);
    // Three puts, a grant and a revocation, each of them alone.
    assert_eq!(metrics.sum("etcd_disk_wal_fsync_duration_seconds_count", &[]), 5.0);
    assert_eq!(metrics.sum("etcd_debugging_lease_granted_total", &[]), 1.0);
    assert_eq!(metrics.sum("etcd_debugging_lease_revoked_total", &[]), 1.0);
    assert_eq!(metrics.sum("etcd_debugging_server_lease_expired_total", &[]), 0.0);
    assert_eq!(metrics.sum("rallypoint_server_leases", &[]), 0.0);
    assert_eq!(metrics.sum("etcd_debugging_mvcc_watcher_total", &[]), 1.0);
    assert_eq!(metrics.sum("etcd_debugging_mvcc_watch_stream_total", &[]), 1.0);
    assert_eq!(metrics.sum("etcd_server_has_leader", &[]), 1.0);
    assert_eq!(metrics.sum("etcd_debugging_mvcc_current_revision", &[]), 4.0);
    assert!(metrics.sum("etcd_mvcc_db_total_size_in_bytes", &[]) > 0.0);
    assert_eq!(metrics.sum("etcd_server_version", &["server_version=\"3.6."]), 1.0);
    let resident = metrics.sum("process_resident_memory_bytes", &[]);
    let seen = target.resident_bytes() as f64;
    assert!(resident > seen / 2.0 && resident < seen * 2.0, "{resident} and {seen}");

    let watches = ["grpc_method=\"Watch\"", "grpc_type=\"bidi_stream\""];
    assert_eq!(metrics.sum("grpc_server_started_total", &watches), 1.0);
    assert_eq!(metrics.sum("grpc_server_handled_total", &watches), 0.0);
    drop(watcher);
    eventually("the stream of the watch is counted", Duration::from_secs(10), async || {
        Metrics::of(&pages).sum("grpc_server_handled_total", &watches) == 1.0
    })
    .await;
}

#[tokio::test]
async fn unknown_methods_are_counted_as_one() {
    let (target, pages) = start(&[]).await;
    let before = get(&pages, "/metrics").body.lines().count();
    let channel = wire::channel(&target.endpoint());
    for number in 0..50 {
        let path = format!("/etcdserverpb.KV/Method{number}").parse().unwrap();
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<pb::PutRequest, pb::PutResponse>::default();
        let request = tonic::Request::new(pb::PutRequest::default());
        let refused = grpc.unary(request, path, codec).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unimplemented);
    }
    let metrics = Metrics::of(&pages);
    let unknown = ["grpc_method=\"unknown\"", "grpc_code=\"Unimplemented\""];
    assert_eq!(metrics.sum("grpc_server_handled_total", &unknown), 50.0);
    assert_eq!(get(&pages, "/metrics").body.lines().count(), before);
}

#[tokio::test]
async fn prometheus_accepts_the_page_but_for_names_of_etcd() {
    let (target, pages) = start(&["--data-dir", "DIR/data"]).await;
    let of_pages = get(&pages, "/metrics").body;
    let of_port = get(&target.address().to_string(), "/metrics").body;
    for page in [of_pages, of_port] {
        let mut said = promtool(&["check", "metrics"], &page);
        said.retain(|line| !NAMES_OF_ETCD.iter().any(|name| line.starts_with(name)));
        assert_eq!(said, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_server_that_stops_is_not_ready() {
    let (mut target, pages) = start(&[]).await;
    // A watch that is not read keeps the server from ending for a moment.
    let client = Client::connect(ClientOptions::new([target.endpoint()])).await.unwrap();
    client.put(Put::new("key", "value")).await.unwrap();
    target.signal(Signal::TERM);
    target.ended(Duration::from_secs(20)).await;
    assert!(std::net::TcpStream::connect(&pages).is_err(), "the pages end with the server");
}

#[tokio::test]
async fn the_secret_is_needed_for_all_but_the_probes() {
    let directory = Directory::new();
    std::fs::write(directory.path().join("password"), "open sesame\n").unwrap();
    let args = ["--user", "root", "--password-file", "DIR/password"];
    let target = Target::start_in(directory, "", &[&HTTP[..], &args].concat()).await;
    let pages = told_address(&target.output()).unwrap();
    let port = target.address().to_string();
    assert_eq!(get(&pages, "/healthz").code, 200);
    assert_eq!(get(&pages, "/readyz").code, 200);
    let health = get(&port, "/health");
    assert_eq!((health.code, health.body.trim()), (200, r#"{"health":"true"}"#));
    let bearer = "Authorization: Bearer open sesame\r\n";
    // root:open sesame
    let basic = "Authorization: Basic cm9vdDpvcGVuIHNlc2FtZQ==\r\n";
    for address in [&pages, &port] {
        assert_eq!(get(address, "/metrics").code, 401);
        assert_eq!(get_with(address, "/metrics", "Authorization: Bearer x\r\n").code, 401);
        for header in [bearer, basic] {
            let page = get_with(address, "/metrics", header);
            assert_eq!(page.code, 200);
            assert!(page.body.contains("process_resident_memory_bytes"));
        }
    }
    assert_eq!(get(&port, "/").code, 415);
}

/// A page over TLS, for a client that trusts this authority and has this certificate.
pub(super) fn get_tls(
    address: &str,
    path: &str,
    ca: &str,
    own: Option<(&str, &str)>,
    headers: &str,
) -> Option<Page> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![cert], key).unwrap()
        }
    };
    let name = "localhost".try_into().unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    connection.complete_io(&mut stream).ok()?;
    let mut whole = StreamOwned::new(connection, stream);
    // A server that wants a certificate refuses after the handshake of TLS 1.3.
    std::io::Write::flush(&mut whole).ok()?;
    let asked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ask(whole, path, headers)));
    asked.ok()
}

#[tokio::test]
async fn tls_is_that_of_the_server_and_probes_need_no_certificate() {
    let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let cert = cert.signed_by(&key, &authority).unwrap();
    let (ca, cert, key) = (authority.pem(), cert.pem(), key.serialize_pem());
    let directory = Directory::new();
    for (name, text) in [("ca", &ca), ("cert", &cert), ("key", &key)] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let args = ["--cert", "DIR/cert", "--key", "DIR/key", "--client-ca", "DIR/ca"];
    let target = Target::start_in(directory, "", &[&HTTP[..], &args].concat()).await;
    assert!(target.output().contains("are at https://"), "{}", target.output());
    let pages = told_address(&target.output()).unwrap();
    let own = Some((cert.as_str(), key.as_str()));
    assert_eq!(get_tls(&pages, "/healthz", &ca, None, "").unwrap().code, 200);
    assert_eq!(get_tls(&pages, "/readyz", &ca, None, "").unwrap().code, 200);
    assert_eq!(get_tls(&pages, "/metrics", &ca, None, "").unwrap().code, 403);
    assert_eq!(get_tls(&pages, "/metrics", &ca, own, "").unwrap().code, 200);
    // The port of the calls refuses a client without a certificate altogether.
    let port = target.address().to_string();
    assert!(get_tls(&port, "/metrics", &ca, None, "").is_none());
    assert_eq!(get_tls(&port, "/metrics", &ca, own, "").unwrap().code, 200);
}
