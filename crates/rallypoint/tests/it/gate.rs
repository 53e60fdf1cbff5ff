//! Certificates and passwords: a refused client is told so, and other clients are unaffected.

use std::path::Path;
use std::time::Duration;

use rallypoint::proto::etcd as pb;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

use crate::support::hostile::{Target, Watching, greet};
use crate::support::process::Directory;
use crate::support::wire;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate and its key.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// A client that trusts this authority.
    fn trust(&self) -> ClientTlsConfig {
        let certificate = Certificate::from_pem(self.0.pem());
        ClientTlsConfig::new().ca_certificate(certificate).domain_name("localhost")
    }
}

fn write(directory: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        std::fs::write(directory.join(name), text).unwrap();
    }
}

/// One read over TLS, on a connection of its own.
async fn read(server: &Target, tls: ClientTlsConfig) -> Result<(), String> {
    let endpoint = Endpoint::from_shared(format!("https://{}", server.address())).unwrap();
    let channel = endpoint.tls_config(tls).unwrap().connect_lazy();
    read_on(channel).await.map_err(|status| format!("{status:?}"))
}

async fn read_on(channel: Channel) -> Result<(), Status> {
    let mut kv = pb::kv_client::KvClient::new(channel);
    let request = kv.range(pb::RangeRequest { key: "k".into(), ..Default::default() });
    let answer = tokio::time::timeout(Duration::from_secs(5), request).await;
    answer.expect("no answer in 5 s").map(drop)
}

/// The server closes the connection, whatever it says before.
async fn assert_ends(stream: &mut TcpStream, patience: Duration) {
    let mut said = Vec::new();
    let read = tokio::time::timeout(patience, stream.read_to_end(&mut said)).await;
    assert!(read.is_ok(), "the connection is still open after {patience:?}");
}

/// In TLS 1.3 the server looks at the client's certificate when the client thinks that it is in, so
/// now and then the client notices the closed connection before the reason for it.
async fn assert_turned_away(server: &Target, why: &str, tls: impl Fn() -> ClientTlsConfig) {
    let mut reasons = Vec::new();
    for _ in 0..20 {
        reasons.push(read(server, tls()).await.expect_err("it came in"));
    }
    assert!(reasons.iter().any(|reason| reason.contains(why)), "never {why:?}: {reasons:?}");
}

#[tokio::test]
async fn only_those_with_the_right_certificates_come_in() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let directory = Directory::new();
    let (cert, key) = authority.issue("localhost");
    let files = [("cert", cert.as_str()), ("key", &key), ("ca", &authority.0.pem())];
    write(directory.path(), &files);
    let args = ["--cert", "DIR/cert", "--key", "DIR/key", "--client-ca", "DIR/ca"];
    let mut server = Target::start_in(directory, "", &args).await;
    let identity = |(cert, key): (String, String)| Identity::from_pem(cert, key);
    let right = || authority.trust().identity(identity(authority.issue("client")));
    read(&server, right()).await.unwrap();

    assert_turned_away(&server, "CertificateRequired", || authority.trust()).await;
    let forged = || authority.trust().identity(identity(stranger.issue("client")));
    assert_turned_away(&server, "received fatal alert", forged).await;
    let deceived = stranger.trust().identity(identity(authority.issue("client")));
    let deceived = read(&server, deceived).await.unwrap_err();
    assert!(deceived.contains("invalid peer certificate"), "{deceived}");

    // Without TLS: the connection ends at once, it is not left to time out.
    read_on(wire::channel(&server.endpoint())).await.unwrap_err();
    let mut stream = server.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_ends(&mut stream, Duration::from_secs(5)).await;

    read(&server, right()).await.unwrap();
    server.assert_unharmed();
}

#[tokio::test]
async fn a_tls_client_on_a_plain_port_hears_so_at_once() {
    let mut server = Target::start(&[]).await;
    let mut held = server.connect().await;
    greet(&mut held).await.unwrap();
    let refused = read(&server, Authority::new().trust()).await.unwrap_err();
    assert!(refused.contains("InvalidContentType") || refused.contains("corrupt"), "{refused}");
    read_on(wire::channel(&server.endpoint())).await.unwrap();
    server.assert_unharmed();
}

/// A handshake that never comes must not hold its place for ever.
#[tokio::test]
async fn a_client_that_never_completes_its_handshake_is_disconnected() {
    let authority = Authority::new();
    let directory = Directory::new();
    let (cert, key) = authority.issue("localhost");
    write(directory.path(), &[("cert", &cert), ("key", &key)]);
    let args = ["--cert", "DIR/cert", "--key", "DIR/key", "--max-connections", "2"];
    let mut server = Target::start_in(directory, "", &args).await;
    let (mut silent, mut half) = (server.connect().await, server.connect().await);
    // The beginning of a ClientHello that says it is longer.
    half.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).await.unwrap();
    let refused = read(&server, authority.trust()).await;
    assert!(refused.is_err(), "there was room for a third");
    for stream in [&mut silent, &mut half] {
        assert_ends(stream, Duration::from_secs(14)).await;
    }
    read(&server, authority.trust()).await.unwrap();
    server.assert_unharmed();
}

#[tokio::test]
async fn passwords_and_tokens() {
    let directory = Directory::new();
    write(directory.path(), &[("password", "open sesame\n")]);
    let args = ["--user", "root", "--password-file", "DIR/password"];
    let mut server = Target::start_in(directory, "", &args).await;
    let endpoint = server.endpoint();
    let mut auth = pb::auth_client::AuthClient::new(wire::channel(&endpoint));
    let mut login = async |name: &str, password: &str| {
        let (name, password) = (name.to_owned(), password.to_owned());
        let request = pb::AuthenticateRequest { name, password };
        auth.authenticate(request).await.map(|answer| answer.into_inner().token)
    };
    for (name, password) in [
        ("root", "open sesame\n"),
        ("root", "open sesam"),
        ("root", ""),
        ("", ""),
        ("", "open sesame"),
        ("Root", "open sesame"),
    ] {
        let refused = login(name, password).await.unwrap_err();
        let text = "etcdserver: authentication failed, invalid user ID or password";
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, text));
    }
    let token = login("root", "open sesame").await.unwrap();

    let put = |token: Option<&str>| {
        let mut put = tonic::Request::new(pb::PutRequest { key: "k".into(), ..Default::default() });
        if let Some(token) = token {
            put.metadata_mut().insert("token", token.parse().unwrap());
        }
        put
    };
    let mut kv = wire::kv(&endpoint);
    let refused = kv.put(put(None)).await.unwrap_err();
    let text = "etcdserver: user name is empty";
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, text));
    for bad in ["", "x", &token[1..], &token.to_uppercase(), &"a".repeat(5000)] {
        let refused = kv.put(put(Some(bad))).await.unwrap_err();
        let text = "etcdserver: invalid auth token";
        assert_eq!((refused.code(), refused.message()), (Code::Unauthenticated, text), "{bad}");
    }
    // etcd opens the stream and refuses each watch; a stream of ours is over before it costs anything.
    let requests = futures_util::stream::pending();
    let mut watches = pb::watch_client::WatchClient::new(wire::channel(&endpoint));
    let refused = watches.watch(requests).await.unwrap_err();
    let text = "etcdserver: user name is empty";
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, text));
    let leases = pb::lease_client::LeaseClient::new(wire::channel(&endpoint))
        .lease_leases(pb::LeaseLeasesRequest {})
        .await;
    assert_eq!(leases.unwrap_err().code(), Code::InvalidArgument);

    let answer = kv.put(put(Some(&token))).await.unwrap().into_inner();
    assert_eq!(answer.header.unwrap().revision, 2, "one that was refused was written");
    server.assert_unharmed();
}

/// Without users, a login is refused in etcd's words and changes nothing for other clients.
#[tokio::test]
async fn a_password_where_none_is_asked_for() {
    let server = Target::start(&[]).await;
    let mut watching = Watching::open(&server.endpoint()).await;
    let request = pb::AuthenticateRequest { name: "root".into(), password: "x".into() };
    let refused = pb::auth_client::AuthClient::new(wire::channel(&server.endpoint()))
        .authenticate(request)
        .await
        .unwrap_err();
    assert_eq!(refused.message(), "etcdserver: authentication is not enabled");
    watching.create(pb::WatchCreateRequest { key: "k".into(), ..Default::default() }).await;
    assert!(watching.next().await.created);
}
