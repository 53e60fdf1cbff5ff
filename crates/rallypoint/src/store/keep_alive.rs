//! TCP keep-alive, for connections whose other end may vanish without closing them.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// The idle time before the first keep-alive probe, the interval of probes, and their number.
const IDLE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// Makes the operating system close the connection once its other end has been gone for 90 seconds. A client
/// that waits sends nothing, so without this the loss of a host's power would never be noticed.
pub(crate) fn keep_alive(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_keepidle(&socket, IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, PROBES)?;
    Ok(sockopt::set_socket_keepalive(&socket, true)?)
}
