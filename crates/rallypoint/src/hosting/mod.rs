//! The coordination server in the process of a node, where the endpoint names its host.
//!
//! - [`Meeting`]: where the nodes of a job meet, and whether this host runs the server.
//! - [`EmbeddedServer`]: that server, or one that stands by to take its place.
//! - [`others_gone`]: until when it is needed.
//! - [`ThisHost`]: what decides whether a name means this host.
//!
//! ```
//! use rallypoint::hosting::{EmbeddedServer, Meeting, ThisHost, others_gone};
//! use rallypoint::rendezvous::{EtcdRendezvousHandler, RendezvousHandler, RendezvousParameters};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The same on each node. The one whose host is named serves; alone, any port will do.
//! let parameters = RendezvousParameters::new("rallypoint", "", "job-7", 1, 1)?;
//! let mut meeting = Meeting::from_parameters(parameters, &ThisHost::look(), None)?;
//! let server = EmbeddedServer::start(&mut meeting).await?;
//! let handler = EtcdRendezvousHandler::from_parameters(&meeting.parameters).await?;
//! assert_eq!(handler.next_rendezvous().await?.world_size, 1);
//! handler.shutdown().await;
//! if let Some(server) = server {
//!     others_gone(handler.client(), handler.keys()).await?;
//!     server.stop().await;
//! }
//! # Ok(())
//! # }
//! ```

mod decision;
mod here;
mod late;
mod meeting;
mod server;
mod standby;

pub(crate) use self::decision::Question;
pub use self::here::ThisHost;
#[cfg(test)]
pub(crate) use self::here::tests;
pub use self::meeting::{Hosting, Meeting, PORT, SecretError};
pub(crate) use self::meeting::{OWN, USER, is_any_port, written};
pub(crate) use self::server::runtime_directory;
pub use self::server::{EmbeddedServer, HostError, others_gone};
