//! The embedded server: the coordination server in the process of a node, where the endpoint names its host.
//!
//! - [`RendezvousConfig`]: the decision which node runs it, with everything that follows from it.
//! - [`EmbeddedServer`]: that server, or one that stands by to take its place. Where several hosts may serve, each of
//!   them listens, and one of them serves ([succession](rallypoint_core::rendezvous::succession)).
//! - [`clients_gone`]: waits until no other node uses it.
//! - [`ThisHost`]: the names and addresses of this host.
//!
//! ```
//! use rallypoint::embedded::{EmbeddedServer, RendezvousConfig, ThisHost, clients_gone};
//! use rallypoint::rendezvous::{EtcdRendezvousHandler, RendezvousHandler, RendezvousParameters};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The same on each node. The node whose host is named runs the server; a node that is alone takes any port.
//! let parameters = RendezvousParameters::new("rallypoint", "", "job-7", 1, 1)?;
//! let mut config = RendezvousConfig::from_parameters(parameters, &ThisHost::look(), None)?;
//! let server = EmbeddedServer::start(&mut config).await?;
//! let handler = EtcdRendezvousHandler::from_parameters(&config.parameters).await?;
//! assert_eq!(handler.next_rendezvous().await?.world_size, 1);
//! handler.shutdown().await;
//! if let Some(server) = server {
//!     clients_gone(handler.client(), handler.keys()).await?;
//!     server.stop().await;
//! }
//! # Ok(())
//! # }
//! ```

mod clients;
mod decide;
mod name_lookup;
mod order;
mod server;
mod standby;
mod this_host;

pub use self::clients::clients_gone;
pub use self::decide::{DEFAULT_PORT, RendezvousConfig, SecretError, ServerPlacement};
#[cfg(feature = "cli")]
pub(crate) use self::decide::{
    FieldNames, SECRET_USER, ServerHints, given_credential, leaves_port_open, written,
};
#[cfg(test)]
pub(crate) use self::order::OwnPlaces;
pub use self::server::{EmbeddedServer, EmbeddedServerError};
#[cfg(feature = "cli")]
pub(crate) use self::server::{RUN_NAME, certificate};
pub(crate) use self::server::{Serving, runtime_directory};
pub use self::this_host::ThisHost;
#[cfg(feature = "cli")]
pub(crate) use self::this_host::listening;
#[cfg(test)]
pub(crate) use self::this_host::tests;
pub(crate) use self::this_host::{NameMeaning, meaning};
