//! What an etcd tells over plain HTTP to anyone, also if it has users: its health, its version, and its members.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The largest answer that is read. A list of members is much smaller.
const LARGEST: u64 = 1 << 20;

/// The version of the etcd with this client address, if it is the one called `name`, with this peer address, and has a
/// leader.
pub(super) async fn version_of(
    client: SocketAddr,
    peer: SocketAddr,
    name: &str,
    limit: Duration,
) -> Option<String> {
    let asked = async {
        let health = get(client, "/health").await?;
        let members = get(peer, "/members").await?;
        Ok::<_, io::Error>((health, members, get(client, "/version").await?))
    };
    let (health, members, version) = timeout(limit, asked).await.ok()?.ok()?;
    let is_it =
        health.contains(r#""health":"true""#) && members.contains(&format!(r#""name":"{name}""#));
    is_it.then(|| field(&version, "etcdserver")).flatten()
}

/// The text of one field of a JSON object.
fn field(json: &str, name: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!(r#""{name}":""#))?;
    Some(rest.split_once('"')?.0.to_owned())
}

/// The answer to one request, with its head.
async fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LARGEST).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_or_not() {
        let json = r#"{"etcdserver":"3.6.14","etcdcluster":"3.6.0"}"#;
        assert_eq!(field(json, "etcdserver").as_deref(), Some("3.6.14"));
        for json in ["", "{}", r#"{"etcdserver":3}"#, r#"{"etcdserver":"3"#] {
            assert_eq!(field(json, "etcdserver"), None, "{json}");
        }
    }
}
