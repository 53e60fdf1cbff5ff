//! Stacks of PyTorch's debug server, which each worker serves that has called
//! `torch.distributed.debug.start_debug_server()`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

use rallypoint_core::agent::stacks::Frame;

use crate::store::Store;

/// The largest response that is read.
const LARGEST: u64 = 4 << 20;

/// What a debug server is asked: where each thread of Python is.
const REQUEST: &[u8] =
    b"POST /handler/dump_traceback HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\
    Connection: close\r\n\r\n";

/// The end of the line before the calls of a thread.
const THREAD: &str = "(most recent call first):";

/// The ports of the debug servers of these ranks, as their workers have published them in their store.
pub(super) async fn ports(store: &dyn Store, ranks: Range<u32>) -> BTreeMap<u32, u16> {
    let mut ports = BTreeMap::new();
    for rank in ranks {
        let key = format!("debug_server/rank{rank}");
        // A read would wait for a key that does not exist.
        if !matches!(store.check(&[key.as_bytes()]).await, Ok(true)) {
            continue;
        }
        let Ok(address) = store.get(key.as_bytes()).await else { continue };
        ports.extend(port(&address).map(|port| (rank, port)));
    }
    ports
}

/// The port of an address like `http://host:port`. The worker is on this host, so its name is not needed.
fn port(address: &[u8]) -> Option<u16> {
    std::str::from_utf8(address).ok()?.rsplit_once(':')?.1.parse().ok()
}

/// The stack of the main thread, the innermost call first; none if the server does not tell it in time: a worker that
/// holds Python's lock cannot. Blocks, at most until the deadline.
pub(super) fn dump(port: u16, deadline: Instant) -> Option<Vec<Frame>> {
    let left =
        || Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero());
    let mut stream =
        TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), left()?).ok()?;
    stream.set_write_timeout(left()).ok()?;
    stream.write_all(REQUEST).ok()?;
    let (mut response, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        stream.set_read_timeout(Some(left()?.max(Duration::from_millis(1)))).ok()?;
        match stream.read(&mut buffer).ok()? {
            0 => break,
            length => response.extend_from_slice(buffer.get(..length)?),
        }
        if response.len() as u64 > LARGEST {
            return None;
        }
    }
    let response = String::from_utf8_lossy(&response);
    let (head, body) = response.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200 ").then(|| parse(body)).flatten()
}

/// The calls of the main thread, which is the last one: threads are listed from the newest to the oldest.
fn parse(text: &str) -> Option<Vec<Frame>> {
    let (_, main) = text.rsplit_once(THREAD)?;
    let frame = |line: &str| {
        let (file, rest) = line.trim().strip_prefix("File \"")?.split_once("\", line ")?;
        let (line, function) = rest.split_once(" in ")?;
        let (function, file) = (function.to_owned(), file.to_owned());
        Some(Frame { function, file, line: line.parse().ok()? })
    };
    let frames: Vec<Frame> = main.lines().filter_map(frame).collect();
    (!frames.is_empty()).then_some(frames)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::store::HashStore;

    /// As PyTorch 2.15 answers.
    const THREADS: &str = r#"Current thread 0x00007f45637276c0 (most recent call first):
  <no Python frame>

Thread 0x00007f455bfff6c0 (most recent call first):
  File "/job/train.py", line 8 in <lambda>
  File "/usr/lib/python3.11/threading.py", line 982 in run

Thread 0x00007f461e615b80 (most recent call first):
  File "/job/data.py", line 88 in load
  File "/job/train.py", line 31 in <module>
"#;

    /// A server that answers one request like this.
    fn server(answer: Option<String>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // It ends with the test.
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let length = stream.read(&mut [0; 4096]).unwrap();
            assert_eq!(length, REQUEST.len());
            match answer {
                Some(answer) => stream.write_all(answer.as_bytes()).unwrap(),
                None => drop(stream.read(&mut [0; 64])),
            }
        });
        port
    }

    #[test]
    fn the_stack_is_that_of_the_main_thread() {
        let soon = || Instant::now() + Duration::from_secs(30);
        let ok = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{THREADS}");
        let frames = dump(server(Some(ok)), soon()).unwrap();
        let load = Frame { function: "load".into(), file: "/job/data.py".into(), line: 88 };
        assert_eq!((frames.len(), &frames[0], frames[1].line), (2, &load, 31));
        let error = format!("HTTP/1.1 404 Not Found\r\n\r\n{THREADS}");
        assert_eq!(dump(server(Some(error)), soon()), None);
        assert_eq!(dump(server(Some("SSH-2.0".to_owned())), soon()), None);
        for other in ["", THREAD, "Thread 0x1 (most recent call first):\n  <no Python frame>\n"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_worker_that_does_not_answer_is_not_waited_for() {
        let begun = Instant::now();
        assert_eq!(dump(server(None), begun + Duration::from_millis(200)), None);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_eq!(dump(1, begun), None, "nothing listens there, and the time is over");
    }

    #[tokio::test]
    async fn the_workers_publish_their_ports() {
        let store = HashStore::default();
        store.set(b"debug_server/rank5", "http://gpu-7:46987".into()).await.unwrap();
        store.set(b"debug_server/rank6", "nonsense".into()).await.unwrap();
        assert_eq!(ports(&store, 4..8).await, BTreeMap::from([(5, 46987)]));
    }
}
