//! A TCP proxy that can lose bytes, drop connections and refuse new ones.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Passes everything on.
    Open,
    /// Accepts and reads, passes nothing on.
    Hang,
    /// Closes each new connection at once.
    Refuse,
}

#[derive(Debug, Clone, Copy)]
struct State {
    mode: Mode,
    /// Connections of an earlier age are to close.
    age: u64,
    /// Connections that are older than this are silent.
    forgotten: u64,
}

/// A proxy in front of one server, which lives on the runtime that started it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: watch::Sender<State>,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy for `target`: an address, or an endpoint with a scheme.
    pub async fn start(target: impl AsRef<str>) -> Self {
        let target = target.as_ref().rsplit('/').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, seen) = watch::channel(State { mode: Mode::Open, age: 0, forgotten: 0 });
        let accepted = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(accept(listener, target, seen, accepted.clone()));
        Self { address, state, accepted, task }
    }

    /// `http://127.0.0.1:…`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address without the scheme.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// How many connections it has accepted so far.
    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Keeps connections, old and new, and swallows what comes from either side. A connection that
    /// lost bytes this way stays silent after [`Self::heal`] too, like one that a router forgot.
    pub fn hang(&self) {
        self.state.send_modify(|state| state.mode = Mode::Hang);
    }

    /// Keeps the connections there are and swallows what comes from either side, for ever; new ones are served.
    pub fn forget(&self) {
        self.state.send_modify(|state| state.forgotten += 1);
    }

    /// Closes all connections. New ones are served as before.
    pub fn sever(&self) {
        self.state.send_modify(|state| state.age += 1);
    }

    /// Closes all connections and each new one, until [`Self::heal`].
    pub fn refuse(&self) {
        self.state.send_modify(|state| {
            *state = State { mode: Mode::Refuse, age: state.age + 1, ..*state };
        });
    }

    /// Serves new connections, and old ones that lost nothing.
    pub fn heal(&self) {
        self.state.send_modify(|state| state.mode = Mode::Open);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.sever();
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    target: String,
    state: watch::Receiver<State>,
    accepted: Arc<AtomicUsize>,
) {
    while let Ok((near, _)) = listener.accept().await {
        accepted.fetch_add(1, Ordering::SeqCst);
        if state.borrow().mode == Mode::Refuse {
            continue;
        }
        tokio::spawn(connection(near, target.clone(), state.clone()));
    }
}

async fn connection(near: TcpStream, target: String, mut state: watch::Receiver<State>) {
    let State { age, forgotten, .. } = *state.borrow();
    let Ok(far) = TcpStream::connect(&target).await else { return };
    let _ = near.set_nodelay(true);
    let _ = far.set_nodelay(true);
    let broken = AtomicBool::new(false);
    let modes = state.clone();
    let severed = state.wait_for(|state| state.age != age);
    // Whichever side ends first, the whole connection ends: gRPC has no use for a half.
    tokio::select! {
        () = pump(&near, &far, (&modes, forgotten), &broken) => {}
        () = pump(&far, &near, (&modes, forgotten), &broken) => {}
        _ = severed => {}
    }
}

async fn pump(
    from: &TcpStream,
    to: &TcpStream,
    (state, born): (&watch::Receiver<State>, u64),
    lost: &AtomicBool,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        if from.readable().await.is_err() {
            return;
        }
        let count = match from.try_read(&mut buffer) {
            Ok(0) => {
                // A connection that hangs must not be seen to end either.
                if lost.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                return;
            }
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        let State { mode, forgotten, .. } = *state.borrow();
        if mode == Mode::Hang || forgotten > born {
            lost.store(true, Ordering::SeqCst);
        }
        if lost.load(Ordering::SeqCst) {
            continue;
        }
        let mut sent = 0;
        while sent < count {
            if to.writable().await.is_err() {
                return;
            }
            match to.try_write(&buffer[sent..count]) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}
