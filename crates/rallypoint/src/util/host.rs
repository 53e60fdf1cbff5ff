//! This host's name.

/// The name of this host, as the kernel knows it.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
