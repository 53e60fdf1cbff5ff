//! The clock of this host against that of the server, by the `date` header of HTTP, whose resolution is a second.
//!
//! Rallypoint compares no times between hosts. Certificates and the logs of several hosts do.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::finding::Finding;

const CHECK: &str = "clock";

/// A larger difference is worth a warning.
const MOST: Duration = Duration::from_secs(5);

/// A date of the server, and the times between which it was written, by the clock of this host.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockMeasurement {
    pub(super) asked: SystemTime,
    pub(super) answered: SystemTime,
    /// Rounded down to a second.
    pub(super) server: SystemTime,
}

/// Asks the server for its date. Nothing if it does not tell.
pub(super) async fn measure(address: SocketAddr) -> Option<ClockMeasurement> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let asked = SystemTime::now();
    let question = format!("GET /version HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).await.ok()?;
    let mut bytes = vec![0; 2048];
    let length = stream.read(&mut bytes).await.ok()?;
    let answered = SystemTime::now();
    let server = date(&String::from_utf8_lossy(&bytes[..length]))?;
    Some(ClockMeasurement { asked, answered, server })
}

/// The date in the header of an answer.
fn date(answer: &str) -> Option<SystemTime> {
    answer.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_date = name.eq_ignore_ascii_case("date");
        is_date.then(|| httpdate::parse_http_date(value.trim()).ok())?
    })
}

/// Whether the clocks agree, as far as can be told.
pub(super) fn judge(measured: Option<ClockMeasurement>) -> Finding {
    let Some(ClockMeasurement { asked, answered, server }) = measured else {
        return Finding::skip(
            CHECK,
            "Not checked: the server does not tell its date over plain HTTP.",
        );
    };
    let since =
        |later: SystemTime, earlier: SystemTime| later.duration_since(earlier).unwrap_or_default();
    // The date was written between the two, and is up to a second older than it says.
    let ahead = since(server, answered);
    let behind = since(asked, server + Duration::from_secs(1));
    let (difference, how) = if ahead > behind { (ahead, "behind") } else { (behind, "ahead of") };
    match difference > MOST {
        false => {
            Finding::ok(CHECK, "This host's clock and the server's agree within some seconds.")
        }
        true => Finding::warn(
            CHECK,
            format!(
                "The clock of this host is at least {} s {how} the server's.",
                difference.as_secs()
            ),
            "Set the clock (timedatectl, chrony); Rallypoint does not need it, but certificates and logs do",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn clocks_are_compared_as_far_as_the_header_allows() {
        let zero = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let at = |seconds: f64| zero + Duration::from_secs_f64(seconds);
        for (asked, answered, server, verdict, words) in [
            (10.0, 10.1, 10.0, Verdict::Ok, "agree"),
            (10.9, 11.1, 10.0, Verdict::Ok, "agree"),
            (10.0, 10.1, 14.0, Verdict::Ok, "agree"),
            (10.0, 10.1, 70.0, Verdict::Warn, "at least 59 s behind the server's"),
            (100.0, 100.1, 10.0, Verdict::Warn, "at least 89 s ahead of the server's"),
        ] {
            let measured =
                ClockMeasurement { asked: at(asked), answered: at(answered), server: at(server) };
            let found = judge(Some(measured));
            assert_eq!(found.verdict, verdict, "{}", found.message);
            assert!(found.message.contains(words), "{}", found.message);
        }
        assert_eq!(judge(None).verdict, Verdict::Skip);
    }

    #[test]
    fn the_date_is_read_from_the_header() {
        let answer = "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:07 GMT\r\n\r\n";
        assert_eq!(date(answer), Some(SystemTime::UNIX_EPOCH + Duration::from_secs(7)));
        assert_eq!(date("HTTP/1.1 200 OK\r\nDate: today\r\n\r\n"), None);
    }
}
