//! The page over HTTP, with a server in this process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use prometheus::proto::MetricFamily;
use rallypoint_core::kv::Put;
use rallypoint_core::rendezvous::documents::encode;
use rallypoint_core::rendezvous::keys::{DEFAULT_PREFIX, Keys};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::client::{Client, ClientOptions};
use crate::http::listener::MOST_VIEWERS;
use crate::http::{HttpOptions, HttpServer, Pages};
use crate::runs::OwnKeys;
use crate::server::{Credentials, LocalServer, Server, ServerOptions};

struct Silent;

impl crate::http::Told for Silent {
    fn readiness(&self) -> Result<(), String> {
        Ok(())
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        Vec::new()
    }
}

/// A server, which the page has not heard of before it `serves`.
struct Ground {
    http: HttpServer,
    own: Arc<OwnKeys>,
    local: LocalServer,
    client: Client,
    stop: CancellationToken,
}

impl Ground {
    async fn new(credentials: Option<Credentials>) -> Self {
        let server = Server::open(ServerOptions::default()).await.unwrap();
        let local = server.local();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move { server.run(listener, stopped.cancelled()).await });
        let client = Client::connect(ClientOptions::new([address])).await.unwrap();
        let own = Arc::new(OwnKeys::default());
        let runs = RunSource { keys: own.clone(), prefix: DEFAULT_PREFIX.to_owned() };
        let pages = Pages { told: Arc::new(Silent), runs: Some(runs) };
        let address = "127.0.0.1:0".parse().unwrap();
        let options = HttpOptions { address, tls: None, credentials };
        let http = HttpServer::start(options, pages).unwrap();
        Self { http, own, local, client, stop }
    }

    async fn serving() -> Self {
        let ground = Self::new(None).await;
        ground.serves();
        ground
    }

    fn serves(&self) {
        self.own.serves(self.local.clone(), "it".to_owned());
    }

    /// Writes the documents of a run of which round 1 takes nodes.
    async fn has_run(&self, run: &str, nodes: &[&str]) {
        let keys = Keys::new(DEFAULT_PREFIX, run);
        let active = json!({
            "history": "7", "round": 1, "status": "joinable", "limits": { "min": 2, "max": 4 },
            "rank_policy": "arrival", "coordinator": { "id": "a" }, "reason": "first",
        });
        self.client.put(Put::new(keys.active(), encode(&active))).await.unwrap();
        for node in nodes {
            let document = json!({ "id": node, "host": "h", "pid": 7, "local_workers": 1 });
            self.client.put(Put::new(keys.node(node), encode(&document))).await.unwrap();
        }
    }

    async fn put(&self, key: String, value: &str) {
        self.client.put(Put::new(key, value.to_owned())).await.unwrap();
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.http.url().strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// The whole response to this request.
    fn ask(&self, method: &str, path: &str, headers: &str) -> String {
        let mut stream = self.connect();
        write!(stream, "{method} {path} HTTP/1.1\r\n{headers}\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let response = self.ask("GET", path, "Host: localhost\r\n");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn view(&self, path: &str) -> Events {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        Events(BufReader::new(stream))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The events that a viewer gets.
struct Events(BufReader<TcpStream>);

impl Events {
    /// The next event and its data; `None` if there will be no more.
    fn next(&mut self) -> Option<(String, Value)> {
        let (mut event, mut line) = (None, String::new());
        loop {
            line.clear();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            if let Some(name) = line.strip_prefix("event: ") {
                event = Some(name.trim().to_owned());
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((event.unwrap(), serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// Waits for an event like this.
    #[track_caller]
    fn until(&mut self, like: impl Fn(&str, &Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let (event, data) = self.next().expect("the stream goes on");
            if like(&event, &data) {
                return data;
            }
            assert!(begun.elapsed() < Duration::from_secs(15), "{event}: {data}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_is_told_at_once_and_after_each_change() {
    let ground = Ground::serving().await;
    ground.has_run("job", &["a"]).await;
    let mut all = ground.view("/api/watch");
    let (event, first) = all.next().unwrap();
    assert_eq!((event.as_str(), &first["format"]), ("runs", &1.into()));
    assert_eq!(first["runs"][0]["run"], "job", "{first}");
    assert_eq!(first["server"]["kind"], "rallypoint", "{first}");
    assert!(first["runs"][0].get("nodes").is_none(), "{first}");
    let mut one = ground.view("/api/watch?run=job");
    let (event, first) = one.next().unwrap();
    assert_eq!((event.as_str(), &first["status"]["nodes"][0]["id"]), ("run", &"a".into()));
    assert!(first["explain"][0]["text"].as_str().unwrap().contains("takes nodes"), "{first}");
    let begun = Instant::now();
    ground.has_run("job", &["b"]).await;
    one.until(|_, data| data["status"]["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    ground.has_run("other", &[]).await;
    all.until(|_, data| data["runs"].as_array().is_some_and(|runs| runs.len() == 2));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_may_have_any_name_and_may_go() {
    let ground = Ground::serving().await;
    let run = "a/b c<script>";
    let path = "a%2Fb%20c%3Cscript%3E";
    let (code, told) = ground.get(&format!("/api/runs/{path}"));
    assert_eq!((code, &told["why"]), (404, &format!("the server has no run {run:?}").into()));
    let mut view = ground.view(&format!("/api/watch?run={path}"));
    assert_eq!(view.next().unwrap().0, "gone");
    ground.has_run(run, &["x/<b>é%"]).await;
    // The key of the run comes before that of the node.
    let told = view.until(|event, data| event == "run" && data["status"]["nodes"][0].is_object());
    assert_eq!(told["status"]["run"], run);
    let (code, told) = ground.get(&format!("/api/runs/{path}"));
    assert_eq!((code, &told["status"]["nodes"][0]["id"]), (200, &"x/<b>é%".into()), "{told}");
    assert_eq!(ground.get("/api/runs").1["runs"][0]["run"], run);
    let keys = Keys::new(DEFAULT_PREFIX, run);
    let all = rallypoint_core::kv::KeyRange::prefix(keys.root().to_owned());
    ground.client.delete(all).await.unwrap();
    view.until(|event, _| event == "gone");
    assert_eq!(ground.get("/api/runs").1["runs"].as_array().unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_is_told_and_so_is_its_return() {
    let ground = Ground::new(None).await;
    ground.has_run("job", &["a"]).await;
    let mut view = ground.view("/api/watch?run=job");
    let (event, told) = view.next().unwrap();
    assert_eq!(event, "away");
    assert_eq!(told["why"], "the server is starting: it reads its log");
    assert_eq!(ground.get("/api/runs").0, 503);
    ground.serves();
    view.until(|event, _| event == "run");
    ground.stop.cancel();
    let told = view.until(|event, _| event == "away");
    assert_eq!(told["why"], "the server is stopping");
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_share_a_watch_and_are_limited() {
    let ground = Ground::serving().await;
    ground.has_run("job", &["a"]).await;
    let watchers = || {
        let all = Keys::runs(DEFAULT_PREFIX, None);
        ground.local.facts(all).unwrap().watchers.unwrap()
    };
    assert_eq!(watchers(), 0, "nobody looks");
    let begun = Instant::now();
    let mut views: Vec<Events> = (0..MOST_VIEWERS + 8)
        .map(|number| {
            let path = if number % 2 == 0 { "/api/watch" } else { "/api/watch?run=job" };
            let mut view = ground.view(path);
            view.next().unwrap();
            view
        })
        .collect();
    assert_eq!(watchers(), 1);
    assert!(begun.elapsed() < Duration::from_secs(4), "each of them is told at once");
    // Those that look longer than others, or than a request may take, go on.
    ground.has_run("job", &["b"]).await;
    let (cut, kept) = views.split_at_mut(8);
    for view in cut {
        while view.next().is_some() {}
    }
    for view in kept {
        view.next().unwrap();
    }
    drop(views);
    let begun = Instant::now();
    while watchers() > 0 {
        ground.put("/x".to_owned(), "").await;
        assert!(begun.elapsed() < Duration::from_secs(15), "it looks on for nobody");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_of_a_viewer_lasts() {
    let ground = Ground::serving().await;
    ground.has_run("job", &["a"]).await;
    let mut view = ground.view("/api/watch?run=job");
    let begun = Instant::now();
    while begun.elapsed() < crate::http::listener::PATIENCE + Duration::from_secs(2) {
        view.next().expect("it goes on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_cannot_be_read_are_problems() {
    let ground = Ground::serving().await;
    ground.has_run("job", &["a"]).await;
    let keys = Keys::new(DEFAULT_PREFIX, "job");
    ground.client.put(Put::new(keys.node("b"), vec![0xff, 0xfe])).await.unwrap();
    ground.client.put(Put::new(keys.event(1), vec![0xff, 0xfe])).await.unwrap();
    let event = r#"{"format":1,"seq":2,"time":"2026-01-01T00:00:00.000Z","ms":1,"node_id":"a","round":1,"kind":"nodes_waiting","count":1}"#;
    ground.put(keys.event(2), event).await;
    let (code, told) = ground.get("/api/runs/job");
    assert_eq!(code, 200);
    assert_eq!(told["status"]["problems"].as_array().unwrap().len(), 2, "{told}");
    assert_eq!(told["events"].as_array().unwrap().len(), 1, "{told}");
    assert_eq!(told["events"][0]["kind"], "nodes_waiting", "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_has_the_policy_and_only_get_is_answered() {
    let ground = Ground::serving().await;
    let policy = format!("content-security-policy: {POLICY}\r\n");
    let host = "Host: 127.0.0.1\r\n";
    for (path, code, kind) in [
        ("/", 200, "text/html"),
        ("/app.js", 200, "text/javascript"),
        ("/app.css", 200, "text/css"),
        ("/api/runs", 200, "application/json"),
        ("/api/runs/none", 404, "application/json"),
        ("/api/watch?what", 400, "text/plain"),
        ("/nowhere", 404, ""),
        ("/healthz", 200, "text/plain"),
    ] {
        let response = ground.ask("GET", path, host);
        assert!(response.starts_with(&format!("HTTP/1.1 {code} ")), "{path}: {response}");
        assert!(response.contains(&policy), "{path}: {response}");
        assert!(response.contains("x-content-type-options: nosniff\r\n"), "{path}: {response}");
        assert!(response.contains("referrer-policy: no-referrer\r\n"), "{path}: {response}");
        assert!(response.contains("cache-control: no-store\r\n"), "{path}: {response}");
        assert!(
            response.contains(&format!("content-type: {kind}")) || kind.is_empty(),
            "{response}"
        );
    }
    for method in ["HEAD", "POST", "PUT", "DELETE", "OPTIONS"] {
        for path in ["/", "/api/runs", "/api/runs/job", "/api/watch"] {
            let response = ground.ask(method, path, host);
            assert!(response.starts_with("HTTP/1.1 405 "), "{method} {path}: {response}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_name_is_refused_unless_a_password_keeps_other_sites_out() {
    let ground = Ground::serving().await;
    for path in ["/", "/api/runs", "/api/watch"] {
        let response = ground.ask("GET", path, "Host: evil.example:9480\r\n");
        assert!(response.starts_with("HTTP/1.1 421 "), "{path}: {response}");
    }
    // Probes and scrapers use any name.
    assert!(ground.ask("GET", "/healthz", "Host: x\r\n").starts_with("HTTP/1.1 200 "));
    assert!(ground.ask("GET", "/metrics", "Host: x\r\n").starts_with("HTTP/1.1 200 "));
    let secured = Ground::new(Some(Credentials::new("root", "sesame"))).await;
    secured.serves();
    for path in ["/", "/app.js", "/api/runs", "/api/watch"] {
        let response = secured.ask("GET", path, "Host: page.example\r\n");
        assert!(response.starts_with("HTTP/1.1 401 "), "{path}: {response}");
        assert!(response.contains("www-authenticate: Basic"), "{path}: {response}");
    }
    let with = "Host: page.example\r\nAuthorization: Bearer sesame\r\n";
    assert!(secured.ask("GET", "/api/runs", with).starts_with("HTTP/1.1 200 "));
}

/// What it does not read fills the buffers of the connection, and then it is cut.
#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_that_does_not_read_is_cut() {
    let ground = Ground::serving().await;
    let nodes: Vec<String> = (0..1500).map(|number| format!("node-{number}")).collect();
    ground.has_run("job", &nodes.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let _view = ground.view("/api/watch?run=job");
    let watchers = || {
        let all = Keys::runs(DEFAULT_PREFIX, None);
        ground.local.facts(all).unwrap().watchers.unwrap()
    };
    let begun = Instant::now();
    while watchers() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(5), "it begins to look");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while watchers() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is never cut");
        ground.has_run("job", &["one"]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(begun.elapsed() >= crate::http::listener::PATIENCE, "{:?}", begun.elapsed());
}
