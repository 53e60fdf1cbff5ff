//! The pages over HTTP: health, readiness and metrics of real processes.

mod documents;
mod idle;
mod nodes;
mod plugin;
mod reckoned;
mod scraping;
mod server;
mod ui;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::tools::prometheus;

/// A response.
#[derive(Debug)]
pub struct Page {
    pub code: u16,
    pub body: String,
}

/// Asks for a page, with these headers.
pub fn get_with(address: &str, path: &str, headers: &str) -> Page {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    ask(stream, path, headers)
}

pub fn get(address: &str, path: &str) -> Page {
    get_with(address, path, "")
}

/// Asks for a page on a connection, which ends with the response.
pub fn ask(mut stream: impl Read + Write, path: &str, headers: &str) -> Page {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: it\r\nConnection: close\r\n{headers}\r\n")
        .unwrap();
    let mut response = String::new();
    // A TLS stream may end without a farewell.
    let _ = stream.read_to_string(&mut response);
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let in_chunks = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if in_chunks { without_chunks(body) } else { body.to_owned() };
    Page { code: code.unwrap_or_else(|| panic!("{response:?}")), body }
}

/// A body that came in chunks, each after its length.
fn without_chunks(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.push_str(&rest[..length]);
        body = rest[length..].trim_start();
    }
    whole
}

/// The address of the pages, if a process has said it.
pub fn told_address(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("health and metrics are at http")?;
    let (url, _) = rest.split_once('\n')?;
    Some(url.trim_start_matches('s').strip_prefix("://")?.trim().to_owned())
}

/// A page of metrics: the value of each series, as it is written.
#[derive(Debug)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    pub fn read(page: &Page) -> Self {
        assert_eq!(page.code, 200, "{page:?}");
        let lines = page.body.lines().filter(|line| !line.starts_with('#'));
        Self(
            lines
                .map(|line| {
                    let (series, value) = line.rsplit_once(' ').unwrap();
                    (series.to_owned(), value.parse().unwrap())
                })
                .collect(),
        )
    }

    pub fn of(address: &str) -> Self {
        Self::read(&get(address, "/metrics"))
    }

    /// The sum of the series of this name with all of these labels.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let is_it = |series: &str| {
            let (other, rest) = series.split_once('{').unwrap_or((series, ""));
            other == name && labels.iter().all(|label| rest.contains(label))
        };
        let found: Vec<f64> =
            self.0.iter().filter(|(key, _)| is_it(key)).map(|(_, v)| *v).collect();
        assert!(!found.is_empty(), "{name} {labels:?} in {:#?}", self.0);
        found.iter().sum()
    }
}

/// What `promtool` says to this input, line by line; nothing if it has no objection.
pub fn promtool(arguments: &[&str], input: &str) -> Vec<String> {
    let mut child = Command::new(prometheus("promtool"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let said: Vec<String> = said.lines().map(str::to_owned).collect();
    assert_eq!(said.is_empty(), output.status.success(), "{arguments:?}: {said:?}");
    said
}
