//! The limits and the access of the pages, with a process that tells what the test says.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::*;
use crate::metrics::gauge;

/// A process that waits for the text, if there is one.
struct Fake(Mutex<Option<String>>);

impl Told for Fake {
    fn readiness(&self) -> Result<(), String> {
        self.0.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        gauge("rallypoint_test", "A test.", 1.0)
    }
}

fn start(credentials: Option<Credentials>) -> (HttpServer, Arc<Fake>) {
    let told = Arc::new(Fake(Mutex::new(None)));
    let address = "127.0.0.1:0".parse().unwrap();
    let options = HttpOptions { address, tls: None, credentials };
    let pages = Pages { told: told.clone(), runs: None };
    (HttpServer::start(options, pages).unwrap(), told)
}

fn connect(server: &HttpServer) -> TcpStream {
    let stream = TcpStream::connect(server.url().strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// The whole response to a request with these headers.
fn ask(server: &HttpServer, page: &str, headers: &str) -> String {
    let mut stream = connect(server);
    write!(stream, "GET {page} HTTP/1.1\r\nHost: it\r\n{headers}\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[track_caller]
fn assert_code(response: &str, code: u16) {
    assert!(response.starts_with(&format!("HTTP/1.1 {code} ")), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_need_nothing_and_metrics_need_the_secret() {
    let (server, told) = start(Some(Credentials::new("root", "sesame")));
    assert_code(&ask(&server, "/healthz", ""), 200);
    assert_code(&ask(&server, "/readyz", ""), 200);
    *told.0.lock().unwrap() = Some("2 more nodes are needed".to_owned());
    let waiting = ask(&server, "/readyz", "");
    assert_code(&waiting, 503);
    assert!(waiting.ends_with("2 more nodes are needed\n"), "{waiting}");
    assert_code(&ask(&server, "/healthz", ""), 200);
    let refused = ask(&server, "/metrics", "");
    assert_code(&refused, 401);
    assert!(refused.contains("www-authenticate: Basic"), "{refused}");
    assert_code(&ask(&server, "/metrics", "Authorization: Bearer simsala\r\n"), 401);
    let page = ask(&server, "/metrics", "Authorization: Bearer sesame\r\n");
    assert_code(&page, 200);
    assert!(page.contains("content-type: text/plain; version=0.0.4"), "{page}");
    assert!(page.ends_with("# TYPE rallypoint_test gauge\nrallypoint_test 1\n"), "{page}");
    assert_code(&ask(&server, "/nowhere", ""), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_head_or_another_method_is_refused() {
    let (server, _) = start(None);
    let mut stream = connect(&server);
    stream
        .write_all(b"POST /metrics HTTP/1.1\r\nHost: it\r\nContent-Length: 1000000\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response);
    assert_code(&response, 405);
    let many = "x: y\r\n".repeat(200);
    assert_code(&ask(&server, "/healthz", &many), 431);
    let mut stream = connect(&server);
    let long = "x".repeat(1 << 20);
    // The server may have closed the connection before all of it is sent.
    let _ = write!(stream, "GET /healthz HTTP/1.1\r\nHost: it\r\nx: {long}\r\n\r\n");
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    assert!(!response.starts_with(b"HTTP/1.1 200"), "{response:?}");
    assert_code(&ask(&server, "/healthz", ""), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_say_nothing_keep_no_probe_out() {
    let (server, _) = start(None);
    let mut silent: Vec<TcpStream> = (0..500).map(|_| connect(&server)).collect();
    assert_code(&ask(&server, "/healthz", ""), 200);
    // The oldest of them was cut.
    assert_eq!(silent[0].read(&mut [0; 1]).unwrap_or(0), 0);
}

#[tokio::test(flavor = "current_thread")]
async fn an_event_loop_that_is_stuck_is_not_healthy() {
    let (server, _) = start(None);
    // This thread is the runtime, and waits here.
    assert_code(&ask(&server, "/readyz", ""), 200);
    let stuck = ask(&server, "/healthz", "");
    assert_code(&stuck, 503);
    assert!(stuck.contains("the event loop has not answered for 5s"), "{stuck}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_at_once_whatever_clients_do() {
    let (server, _) = start(None);
    let mut silent = connect(&server);
    let begun = Instant::now();
    drop(server);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(silent.read(&mut [0; 1]).unwrap_or(0), 0);
}
