//! Values as users write them: seconds, whole numbers, switches.
//!
//! Each function returns the remedy as its error; the caller knows the name of the field.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The longest time that any option takes, in seconds: a year. Sums of such times cannot overflow.
pub(crate) const MAX_SECONDS: u32 = 365 * 24 * 3600;

/// The shortest time above zero, in seconds. No timer here is finer.
pub(crate) const MIN_SECONDS: f64 = 0.001;

/// Reads a time in seconds, whole or not, of at least `least` seconds.
pub(crate) fn seconds(text: &str, least: f64) -> Result<Duration, String> {
    match text.trim().parse::<f64>() {
        Ok(value) if (least..=f64::from(MAX_SECONDS)).contains(&value) => {
            Ok(Duration::from_secs_f64(value))
        }
        _ => Err(format!("give seconds from {least} to {MAX_SECONDS}, such as 30 or 0.5")),
    }
}

/// Reads a whole number.
pub(crate) fn integer(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|error| format!("give a whole number ({error})"))
}

/// Reads a whole number from `least` to `most`.
pub(crate) fn count(text: &str, least: u32, most: u32) -> Result<u32, String> {
    match u32::try_from(integer(text)?) {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(format!("give a whole number from {least} to {most}")),
    }
}

/// Reads a switch: `1`, `true`, `t`, `yes`, `y` or `0`, `false`, `f`, `no`, `n`, in small or capital letters.
pub(crate) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" => Ok(true),
        "0" | "false" | "f" | "no" | "n" => Ok(false),
        _ => Err("give true or false".to_owned()),
    }
}

/// Reads the address at which a process tells its health and metrics.
pub(crate) fn http_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "give an IP address and a port, such as 127.0.0.1:9480, or 0.0.0.0:9480 for all interfaces"
            .to_owned()
    })
}

/// The ports that a node may take, where a firewall lets only some pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// The ports, in order.
    pub(crate) fn ports(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }

    /// Reads `29500-29599`, or one port.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let port = |text: &str| text.trim().parse().ok().filter(|port| *port > 0);
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err("give a first and a last port, such as 29500-29599".to_owned()),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_people_write_them() {
        let range = |first, last| Some(PortRange { first, last });
        for (text, expected) in [
            ("29500-29599", range(29500, 29599)),
            (" 29500 - 29500 ", range(29500, 29500)),
            ("7", range(7, 7)),
            ("0-7", None),
            ("8-7", None),
            ("7-", None),
            ("7-65536", None),
            ("", None),
        ] {
            assert_eq!(PortRange::parse(text).ok(), expected, "{text:?}");
        }
    }
}
