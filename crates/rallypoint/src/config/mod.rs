//! Configuration: the one place where the words of users are read.
//!
//! - [`RendezvousParameters`]: what a node is told, as arguments or as a URL.
//! - [`EtcdOptions`], [`DynamicOptions`], [`ConnectionOptions`]: the options of the backends, as in `--rdzv-conf`.
//! - [`Endpoint`]: the address of a server.
//! - [`ParameterError`]: which field is wrong, its value, and the remedy.

mod endpoint;
mod options;
mod parameters;
mod suggest;
mod url;

pub use self::endpoint::{Endpoint, Protocol};
pub use self::options::{ConnectionOptions, DynamicOptions, EtcdOptions, PASSWORD, add_password};
pub use self::parameters::{ParameterError, RendezvousParameters, parse_config};
pub(crate) use self::suggest::{did_you_mean, list, suggest};
