//! Connections whose other end may vanish without a word.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// How long nothing is heard before the system asks, how often it asks, and how many times in vain.
const IDLE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// Lets the system end the connection once its other end has been gone for a minute and a half. A client
/// that waits sends nothing, so a host that lost its power would be waited for, or wait, for ever.
pub(crate) fn keep_alive(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_keepidle(&socket, IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, PROBES)?;
    Ok(sockopt::set_socket_keepalive(&socket, true)?)
}
