//! Users, passwords and certificates on real etcd.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rallypoint::client::{
    Client, ClientError, ClientOptions, Credentials, Pem, TlsOptions, WatchError,
};
use rallypoint::core::kv::{KeyRange, Put, Watch};
use rallypoint::session::Session;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::time::timeout;

use crate::support::etcd::Tls;
use crate::support::process::Directory;
use crate::support::{Etcd, Version};

fn etcdctl(etcd: &Etcd, args: &[&str]) {
    let output = Command::new(etcd.version().etcdctl())
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &etcd.endpoint()])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
}

async fn with_users(version: Version) -> Etcd {
    let etcd = Etcd::start(version).await;
    etcdctl(&etcd, &["user", "add", "root:secret"]);
    etcdctl(&etcd, &["user", "grant-role", "root", "root"]);
    etcdctl(&etcd, &["role", "add", "trainers"]);
    etcdctl(
        &etcd,
        &["role", "grant-permission", "trainers", "--prefix=true", "readwrite", "jobs/"],
    );
    etcdctl(&etcd, &["user", "add", "trainer:word"]);
    etcdctl(&etcd, &["user", "grant-role", "trainer", "trainers"]);
    etcd
}

async fn user(etcd: &Etcd, user: &str, password: &str) -> Client {
    let options = ClientOptions::new([etcd.endpoint()]).with(|options| {
        options.credentials = Some(Credentials::new(user, password));
        options.attempt_timeout = Duration::from_secs(1);
    });
    Client::connect(options).await.unwrap()
}

#[tokio::test]
async fn a_user_gets_a_token_and_a_new_one_when_the_server_forgot_it() {
    for version in Version::all() {
        let mut etcd = with_users(version).await;
        let early = user(&etcd, "trainer", "word").await;
        // The server does not ask for users yet; to have one is no error.
        early.put(Put::new("jobs/0", "")).await.unwrap();
        etcdctl(&etcd, &["auth", "enable"]);
        early.put(Put::new("jobs/0", "")).await.unwrap();

        let client = user(&etcd, "trainer", "word").await;
        let jobs = || Watch::new(KeyRange::prefix("jobs/"));
        let mut watcher = client.watch([jobs()]).await.unwrap();
        let session = Session::open(&client, Duration::from_secs(5)).await.unwrap();
        client.put(Put::new("jobs/1", "").on_lease(session.lease())).await.unwrap();
        let batch = timeout(Duration::from_secs(5), watcher.next()).await.unwrap().unwrap();
        assert_eq!(batch.events[0].kv.key, "jobs/1");

        // Tokens live in memory only.
        etcd.restart().await;
        let put = client.put(Put::new("jobs/2", "")).await;
        // The connection may have died under the first write, which is then rightly unknown.
        if let Err(ClientError::OutcomeUnknown { .. }) = put {
            client.put(Put::new("jobs/2", "")).await.unwrap();
        } else {
            put.unwrap();
        }
        let batch = timeout(Duration::from_secs(10), watcher.next()).await.unwrap().unwrap();
        assert_eq!(batch.events[0].kv.key, "jobs/2");

        let denied = client.put(Put::new("other", "")).await.unwrap_err();
        assert!(matches!(denied, ClientError::Refused { .. }), "{denied}");
        assert!(denied.to_string().contains("permission denied"), "{denied}");
        let denied = client.watch([jobs(), Watch::new(KeyRange::all())]).await.unwrap_err();
        assert!(matches!(denied, WatchError::Refused { .. }), "{denied}");
        assert!(!session.is_lost());
        session.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_wrong_password_is_said_at_once() {
    for version in Version::all() {
        let etcd = with_users(version).await;
        etcdctl(&etcd, &["auth", "enable"]);
        let begun = Instant::now();
        for (name, password) in [("trainer", "wrong"), ("nobody", "word")] {
            let client = user(&etcd, name, password).await;
            let error = client.put(Put::new("jobs/1", "")).await.unwrap_err();
            assert!(matches!(error, ClientError::Authentication { .. }), "{error}");
            assert!(error.to_string().contains(name), "{error}");
            let error = client.watch([Watch::new(KeyRange::all())]).await.unwrap_err();
            let WatchError::Client(ClientError::Authentication { .. }) = error else {
                panic!("{error}");
            };
            assert!(Session::open(&client, Duration::from_secs(2)).await.is_err());
        }
        let client = Client::connect(ClientOptions::new([etcd.endpoint()])).await.unwrap();
        let error = client.range(KeyRange::all()).await.unwrap_err();
        assert!(error.to_string().contains("asks for a user"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}

/// An authority, and what it signed.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn ca(&self) -> Pem {
        Pem::Bytes(self.issuer.pem().into_bytes())
    }

    /// A certificate for `name` and its key, as files.
    pub(crate) fn sign(&self, directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (cert_file, key_file) =
            (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
        std::fs::write(&cert_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        (cert_file, key_file)
    }
}

/// A certificate for 127.0.0.1 with its key and its authority, in files.
pub(crate) struct Certificates {
    directory: Directory,
    pub(crate) ca: String,
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let (directory, authority) = (Directory::new(), Authority::new());
        let (cert, key) = authority.sign(directory.path(), "127.0.0.1");
        let ca = directory.path().join("ca.crt");
        std::fs::write(&ca, authority.pem()).unwrap();
        let [ca, cert, key] = [ca, cert, key].map(|path| path.to_str().unwrap().to_owned());
        Self { directory, ca, cert, key }
    }

    /// The options of a launcher that uses them.
    pub(crate) fn options(&self) -> [&str; 6] {
        ["--cacert", &self.ca, "--cert", &self.cert, "--key", &self.key]
    }

    /// The certificate of an authority that has signed none of them.
    pub(crate) fn other_ca(&self) -> String {
        let path = self.directory.path().join("other.crt");
        std::fs::write(&path, Authority::new().pem()).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

async fn secure(etcd: &Etcd, tls: TlsOptions) -> Result<Client, ClientError> {
    // Without a scheme, which the TLS options give.
    let options = ClientOptions::new([etcd.address()]).with(|options| options.tls = Some(tls));
    Client::connect(options).await
}

#[tokio::test]
async fn tls_is_spoken_both_ways_and_mistakes_are_named() {
    let directory = Directory::new();
    let authority = Authority::new();
    let other = Authority::new();
    let (cert, key) = authority.sign(directory.path(), "127.0.0.1");
    let (own_cert, own_key) = authority.sign(directory.path(), "trainer");
    let ca_file = directory.path().join("ca.crt");
    std::fs::write(&ca_file, authority.issuer.pem()).unwrap();

    for version in Version::all() {
        let tls = Tls { cert: &cert, key: &key, client_ca: None };
        let etcd = Etcd::start_tls(version, tls, &[]).await;
        let trusting = TlsOptions::new(Pem::File(ca_file.clone()));
        let client = secure(&etcd, trusting.clone()).await.unwrap();
        client.put(Put::new("a", "1")).await.unwrap();
        client.watch([Watch::new(KeyRange::all())]).await.unwrap();

        let begun = Instant::now();
        let wrong = secure(&etcd, TlsOptions::new(other.ca())).await.unwrap();
        let error = wrong.put(Put::new("a", "1")).await.unwrap_err().to_string();
        assert!(error.contains("not signed by the given CA"), "{error}");
        assert!(error.contains(&etcd.endpoint()), "{error}");
        let error = wrong.watch([Watch::new(KeyRange::all())]).await.unwrap_err().to_string();
        assert!(error.contains("not signed by the given CA"), "{error}");

        let name = Some("elsewhere".to_owned());
        let wrong = TlsOptions { server_name: name, ..TlsOptions::new(authority.ca()) };
        let wrong = secure(&etcd, wrong).await.unwrap();
        let error = wrong.range(KeyRange::all()).await.unwrap_err().to_string();
        assert!(error.contains("TLS server name"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());

        let mutual = Tls { cert: &cert, key: &key, client_ca: Some(&ca_file) };
        let etcd = Etcd::start_tls(version, mutual, &[]).await;
        let identity = Some((Pem::File(own_cert.clone()), Pem::File(own_key.clone())));
        let known = TlsOptions { identity, ..trusting.clone() };
        let client = secure(&etcd, known).await.unwrap();
        client.put(Put::new("a", "1")).await.unwrap();

        // A read: the server may close the connection before its reason has been read, and then only
        // a request that may be repeated can go on to find it out.
        let unknown = secure(&etcd, trusting).await.unwrap();
        let error = unknown.range(KeyRange::all()).await.unwrap_err();
        assert!(matches!(error, ClientError::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("wants a client certificate"), "{error}");
    }
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_refused_before_anything_is_sent() {
    let directory = Directory::new();
    let authority = Authority::new();
    let (cert, _) = authority.sign(directory.path(), "a");
    let (_, other_key) = authority.sign(directory.path(), "b");
    let pem = |text: &str| Pem::Bytes(text.as_bytes().to_vec());
    let missing = directory.path().join("missing");
    let with =
        |cert, key| TlsOptions { identity: Some((cert, key)), ..TlsOptions::new(authority.ca()) };
    let key_file = Pem::File(other_key.clone());
    for (tls, says) in [
        (TlsOptions::new(pem("nonsense")), "CA certificate"),
        (TlsOptions::new(Pem::File(missing.clone())), "missing"),
        (with(pem("nonsense"), key_file.clone()), "client certificate"),
        (with(Pem::File(cert.clone()), pem("nonsense")), "client key"),
        (with(Pem::File(cert.clone()), key_file), "unusable"),
    ] {
        let options = ClientOptions::new(["127.0.0.1:1"]).with(|options| options.tls = Some(tls));
        let error = Client::connect(options).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error} should say {says}");
    }
}
