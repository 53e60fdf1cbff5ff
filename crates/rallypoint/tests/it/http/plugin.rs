//! The pages of torchrun's plugin with TLS: what its Python class does to open a rendezvous, without Python.

use std::sync::Arc;

use rallypoint::agent::{AgentPages, ForeignAgent};
use rallypoint::embedded::{EmbeddedServer, RendezvousConfig, ThisHost};
use rallypoint::error_chain;
use rallypoint::rendezvous::{EtcdRendezvousHandler, RendezvousHandler, RendezvousParameters};

use super::server::get_tls;
use crate::secure::Authority;
use crate::support::process::Directory;
use crate::support::tools::free_port;

fn config(pages: u16, tls: &[(&str, &str)]) -> RendezvousConfig {
    let endpoint = format!("localhost:{}", free_port());
    let mut parameters = RendezvousParameters::new("rallypoint", endpoint, "job", 1, 1).unwrap();
    let pages = format!("127.0.0.1:{pages}");
    let own = [("is_host", "true"), ("protocol", "https"), ("http", &pages)];
    let options = own.iter().chain(tls);
    parameters.config = options.map(|(name, value)| ((*name).into(), (*value).into())).collect();
    parameters.local_addr = Some("127.0.0.1".to_owned());
    RendezvousConfig::from_parameters(parameters, &ThisHost::look(), Some("sesame")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_the_plugin_have_the_certificate_and_the_secret_of_the_job() {
    let (directory, authority, port) = (Directory::new(), Authority::new(), free_port());
    let (cert, key) = authority.sign(directory.path(), "localhost");
    let file = directory.path().join("ca.crt");
    std::fs::write(&file, authority.pem()).unwrap();
    let [file, cert, key] = [&file, &cert, &key].map(|path| path.to_str().unwrap());
    let mut config = config(port, &[("cacert", file), ("cert", cert), ("key", key)]);
    let pages = AgentPages::open(&mut config).await.unwrap();
    let address = format!("127.0.0.1:{port}");
    let ask = async |path: &'static str, headers: &'static str| {
        let (address, ca) = (address.clone(), authority.pem());
        let page = move || get_tls(&address, path, &ca, None, headers).unwrap();
        tokio::task::spawn_blocking(page).await.unwrap()
    };
    assert_eq!(ask("/healthz", "").await.code, 200, "before there is a server");
    assert_eq!(ask("/readyz", "").await.code, 503);
    let server = EmbeddedServer::start(&mut config).await.unwrap();
    pages.as_ref().unwrap().embeds(server.as_ref().unwrap());
    let handler = EtcdRendezvousHandler::from_parameters(&config.parameters).await.unwrap();
    let handler = Arc::new(handler);
    let agent = ForeignAgent::open(handler.clone(), pages).await.unwrap();
    handler.next_rendezvous().await.unwrap();
    while ask("/readyz", "").await.code != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(ask("/metrics", "").await.code, 401, "without the secret");
    let metrics = ask("/metrics", "Authorization: Bearer sesame\r\n").await;
    assert_eq!(metrics.code, 200, "{metrics:?}");
    for series in
        ["rallypoint_run_state{state=\"final\",run=\"job\"} 1", "etcd_server_has_leader 1"]
    {
        assert!(metrics.body.contains(series), "{series}: {}", metrics.body);
    }
    // A client that expects no TLS gets none of it.
    let plain = std::net::TcpStream::connect(&address).unwrap();
    let told = tokio::task::spawn_blocking(move || {
        let mut plain = plain;
        std::io::Write::write_all(&mut plain, b"GET /metrics HTTP/1.1\r\nHost: it\r\n\r\n")
            .unwrap();
        let mut told = Vec::new();
        let _ = std::io::Read::read_to_end(&mut plain, &mut told);
        String::from_utf8_lossy(&told).into_owned()
    });
    assert!(!told.await.unwrap().contains("rallypoint_"));
    drop(agent);
    handler.leave().await;
}

#[tokio::test]
async fn a_job_with_tls_has_no_pages_without_a_certificate_of_the_node() {
    let (directory, authority) = (Directory::new(), Authority::new());
    let file = directory.path().join("ca.crt");
    std::fs::write(&file, authority.pem()).unwrap();
    let tls = [("is_host", "false"), ("cacert", file.to_str().unwrap())];
    let mut config = config(free_port(), &tls);
    let error = AgentPages::open(&mut config).await.err().expect("there is no certificate");
    let said = error_chain(&error);
    assert!(said.contains("give cert and key of this node"), "{said}");
}
