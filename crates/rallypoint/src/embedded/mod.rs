//! The coordination server in the process of a node, where the endpoint names its host.
//!
//! - [`RendezvousConfig`]: where the nodes of a job meet, and whether this host runs the server.
//! - [`EmbeddedServer`]: that server, or one that stands by to take its place.
//! - [`clients_gone`]: until when it is needed.
//! - [`ThisHost`]: what decides whether a name means this host.
//!
//! ```
//! use rallypoint::embedded::{EmbeddedServer, RendezvousConfig, ThisHost, clients_gone};
//! use rallypoint::rendezvous::{EtcdRendezvousHandler, RendezvousHandler, RendezvousParameters};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The same on each node. The one whose host is named serves; alone, any port will do.
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

mod decide;
mod name_lookup;
mod rendezvous_config;
mod server;
mod standby;
mod this_host;

#[cfg(feature = "cli")]
pub(crate) use self::decide::Question;
pub use self::rendezvous_config::{DEFAULT_PORT, RendezvousConfig, SecretError, ServerPlacement};
#[cfg(feature = "cli")]
pub(crate) use self::rendezvous_config::{RALLYPOINT_BACKEND, SECRET_USER, is_any_port, written};
#[cfg(feature = "cli")]
pub(crate) use self::server::runtime_directory;
pub use self::server::{EmbeddedServer, EmbeddedServerError, clients_gone};
pub use self::this_host::ThisHost;
#[cfg(test)]
pub(crate) use self::this_host::tests;
