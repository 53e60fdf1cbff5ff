//! Configuration: the one place where the words of users are read.
//!
//! - [`RendezvousParameters`]: the parameters of a rendezvous, as arguments or as a URL.
//! - [`EtcdOptions`], [`DynamicOptions`], [`ConnectionOptions`]: the options of the backends, as in `--rdzv-conf`,
//!   read by one table.
//! - [`Endpoint`]: the address of a server.
//! - [`ConfigError`]: the field that is wrong, its value, and the remedy.

mod backend;
mod endpoint;
mod error;
mod options;
mod parameters;
pub(crate) mod progress;
pub(crate) mod sizes;
mod suggest;
mod url;
pub(crate) mod values;

#[doc(hidden)]
pub use self::backend::Backend;
pub(crate) use self::backend::RALLYPOINT_BACKEND;
pub(crate) use self::endpoint::ETCD_PORT;
pub use self::endpoint::{Endpoint, Protocol};
pub use self::error::ConfigError;
pub use self::options::{
    ConnectionOptions, DynamicOptions, EtcdOptions, HandlerOptions, PASSWORD, add_password,
};
#[cfg(feature = "cli")]
pub(crate) use self::options::{check_launcher, help};
pub(crate) use self::options::{has_succession, is_host};
pub use self::parameters::{RendezvousParameters, parse_config};
pub use self::progress::ProgressSign;
pub(crate) use self::suggest::{did_you_mean, list, suggest};
pub use self::values::PortRange;
