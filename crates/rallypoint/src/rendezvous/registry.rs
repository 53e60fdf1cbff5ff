//! The backends by name: those of this crate, and registered ones.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use thiserror::Error;

use super::dynamic::DynamicRendezvousHandler;
use super::{EtcdRendezvousHandler, RendezvousError, RendezvousHandler};
use crate::config::{Backend, ConfigError, RendezvousParameters};
use crate::config::{did_you_mean, list, suggest};
use crate::log_target::RENDEZVOUS;

/// The error of a creator of handlers.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The parameters are invalid.
    #[error(transparent)]
    Parameter(#[from] ConfigError),
    /// The handler could not connect.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
}

/// The error of a registration, or of a request for a handler.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The name of the backend is empty.
    #[error("backend \"\": register it under a name that is not empty")]
    EmptyName,
    /// Another creator is registered under the name.
    #[error("backend {name:?} is registered already, with another creator; choose another name")]
    Taken {
        /// The requested name of the backend.
        name: String,
    },
    /// No backend is registered under the name.
    #[error(
        "no backend {name:?} is registered{}{}",
        did_you_mean(.suggestion.as_deref()),
        registered(.known)
    )]
    Unknown {
        /// The requested name of the backend.
        name: String,
        /// The most similar registered name, if one is similar.
        suggestion: Option<String>,
        /// The registered names.
        known: Vec<String>,
    },
    /// The creator made a handler of another backend.
    #[error(
        "the creator registered as backend {asked:?} made a handler that calls itself {made:?}; \
         its backend() must return the name that it is registered under"
    )]
    WrongBackend {
        /// The requested name.
        asked: String,
        /// The name that the handler returns.
        made: String,
    },
    /// The parameters are invalid.
    #[error(transparent)]
    Parameter(#[from] ConfigError),
    /// The handler could not connect.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
}

impl From<CreateError> for RegistryError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Parameter(error) => Self::Parameter(error),
            CreateError::Rendezvous(error) => Self::Rendezvous(error),
        }
    }
}

fn registered(known: &[String]) -> String {
    if known.is_empty() {
        return "Nothing is registered: call register first".to_owned();
    }
    format!("Registered: {}", list(known))
}

type Created = Result<Arc<dyn RendezvousHandler>, CreateError>;
type Creating = Pin<Box<dyn Future<Output = Created> + Send>>;

/// Creates the handlers of one backend. Clones are the same creator.
#[derive(Clone)]
pub struct RendezvousHandlerCreator(Arc<dyn Fn(RendezvousParameters) -> Creating + Send + Sync>);

impl fmt::Debug for RendezvousHandlerCreator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RendezvousHandlerCreator").finish_non_exhaustive()
    }
}

impl RendezvousHandlerCreator {
    /// A creator that calls `create`.
    pub fn new<F, R, H>(create: F) -> Self
    where
        F: Fn(RendezvousParameters) -> R + Send + Sync + 'static,
        R: Future<Output = Result<H, CreateError>> + Send + 'static,
        H: RendezvousHandler + 'static,
    {
        Self(Arc::new(move |parameters| {
            let creating = create(parameters);
            Box::pin(async move {
                let handler: Arc<dyn RendezvousHandler> = Arc::new(creating.await?);
                Ok(handler)
            })
        }))
    }
}

/// The backends by name.
///
/// [`with_builtin`](Self::with_builtin) has `rallypoint` and `etcd`, the rendezvous of this crate, and
/// [`dynamic`](super::dynamic), PyTorch's protocol over one shared document. PyTorch's name `etcd-v2` leads to
/// `dynamic` and `etcd-v3` to `etcd`, unless another backend is registered under these names.
///
/// A custom backend is a type that implements [`RendezvousHandler`], and a function that creates it:
///
/// ```
/// use async_trait::async_trait;
/// use rallypoint::rendezvous::{
///     RendezvousError, RendezvousHandler, RendezvousHandlerCreator, RendezvousHandlerRegistry,
///     RendezvousInfo, RendezvousParameters, RunOutcome,
/// };
///
/// /// A run that is over before it begins.
/// struct Toy {
///     run_id: String,
/// }
///
/// #[async_trait]
/// impl RendezvousHandler for Toy {
///     fn backend(&self) -> &str {
///         "toy"
///     }
///     fn run_id(&self) -> &str {
///         &self.run_id
///     }
///     async fn next_rendezvous(&self) -> Result<RendezvousInfo, RendezvousError> {
///         let (run_id, reason) = (self.run_id.clone(), "it was a toy".to_owned());
///         Err(RendezvousError::GracefulExit { run_id, reason })
///     }
///     async fn is_closed(&self) -> Result<bool, RendezvousError> {
///         Ok(true)
///     }
///     async fn close(&self, _outcome: RunOutcome, _reason: &str) -> Result<(), RendezvousError> {
///         Ok(())
///     }
///     async fn num_nodes_waiting(&self) -> Result<usize, RendezvousError> {
///         Ok(0)
///     }
///     async fn leave(&self) {}
///     async fn shutdown(&self) -> bool {
///         true
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut registry = RendezvousHandlerRegistry::with_builtin();
/// let creator = RendezvousHandlerCreator::new(|parameters| async move {
///     Ok(Toy { run_id: parameters.run_id })
/// });
/// registry.register("toy", creator)?;
///
/// let parameters = RendezvousParameters::new("toy", "", "job-7", 1, 1)?;
/// let handler = registry.create_handler(parameters).await?;
/// assert_eq!(handler.run_id(), "job-7");
/// assert!(handler.is_closed().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct RendezvousHandlerRegistry {
    creators: BTreeMap<String, RendezvousHandlerCreator>,
}

impl RendezvousHandlerRegistry {
    /// A registry without any backend.
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry with the backends of this crate.
    pub fn with_builtin() -> Self {
        let builtin = builtin().into_iter().map(|(name, creator)| (name.to_owned(), creator));
        Self { creators: builtin.collect() }
    }

    /// The registered names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.creators.keys().map(String::as_str)
    }

    /// Registers a backend. Registering the same creator twice is no error.
    ///
    /// # Errors
    /// [`RegistryError::EmptyName`], or [`RegistryError::Taken`] if another creator has the name.
    pub fn register(
        &mut self,
        name: impl Into<String>,
        creator: RendezvousHandlerCreator,
    ) -> Result<(), RegistryError> {
        let name = name.into();
        if name.is_empty() {
            return Err(RegistryError::EmptyName);
        }
        if self.creators.get(&name).is_some_and(|there| !Arc::ptr_eq(&there.0, &creator.0)) {
            return Err(RegistryError::Taken { name });
        }
        self.creators.insert(name, creator);
        Ok(())
    }

    /// Creates a handler of the backend that the parameters name.
    ///
    /// # Errors
    /// [`RegistryError::Unknown`] if the name is not registered, [`RegistryError::WrongBackend`] if the creator made
    /// a handler of another backend, and the errors of the creator.
    pub async fn create_handler(
        &self,
        mut parameters: RendezvousParameters,
    ) -> Result<Arc<dyn RendezvousHandler>, RegistryError> {
        parameters.validate()?;
        if let Some(name) = self.alias(&parameters.backend) {
            let asked = std::mem::replace(&mut parameters.backend, name.to_owned());
            tracing::info!(target: RENDEZVOUS, "backend {asked} is called {name} here");
        }
        let name = parameters.backend.clone();
        let creator = self.creator(&name)?;
        let handler = creator.0(parameters).await?;
        if handler.backend() != name {
            let made = handler.backend().to_owned();
            return Err(RegistryError::WrongBackend { asked: name, made });
        }
        Ok(handler)
    }

    /// The name that `asked` leads to, if it is an alias and nothing is registered under it.
    fn alias(&self, asked: &str) -> Option<&'static str> {
        let name = Backend::named(asked)?.name();
        (!self.creators.contains_key(asked) && self.creators.contains_key(name)).then_some(name)
    }

    /// The creator of this name.
    fn creator(&self, name: &str) -> Result<&RendezvousHandlerCreator, RegistryError> {
        self.creators.get(name).ok_or_else(|| RegistryError::Unknown {
            name: name.to_owned(),
            suggestion: suggest(name, self.names()).map(str::to_owned),
            known: self.names().map(str::to_owned).collect(),
        })
    }
}

/// The backends of this crate.
fn builtin() -> [(&'static str, RendezvousHandlerCreator); 3] {
    let etcd = RendezvousHandlerCreator::new(|parameters| async move {
        EtcdRendezvousHandler::from_parameters(&parameters).await
    });
    let dynamic = RendezvousHandlerCreator::new(|parameters| async move {
        DynamicRendezvousHandler::from_parameters(&parameters).await
    });
    // The protocol is the same on an etcd and on the embedded server.
    let builtin =
        [(Backend::Dynamic, dynamic), (Backend::Etcd, etcd.clone()), (Backend::Rallypoint, etcd)];
    builtin.map(|(backend, creator)| (backend.name(), creator))
}
