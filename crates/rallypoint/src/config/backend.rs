//! The names of the backends: the one table of names and aliases, for the library, the launcher and the Python package.

/// A backend of this crate, or what else has options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The rendezvous of this crate, with an embedded server.
    Rallypoint,
    /// The rendezvous of this crate, on servers that run already.
    Etcd,
    /// PyTorch's protocol over one shared document.
    Dynamic,
    /// A client without a rendezvous. No name leads to it.
    Client,
}

/// The name of the backend that has an embedded server.
pub(crate) const RALLYPOINT_BACKEND: &str = Backend::Rallypoint.name();

/// A name, and the backend that it leads to in the library and in the launcher.
type Name = (&'static str, Option<Backend>, Option<Backend>);

/// Every name that a user may give. The launcher also takes the names of torchrun's backends, and does what they ask for
/// in its own way: it has no `dynamic`, so PyTorch's `etcd-v2` leads to `etcd` there.
const NAMES: [Name; 7] = [
    (Backend::Rallypoint.name(), Some(Backend::Rallypoint), Some(Backend::Rallypoint)),
    (Backend::Etcd.name(), Some(Backend::Etcd), Some(Backend::Etcd)),
    (Backend::Dynamic.name(), Some(Backend::Dynamic), None),
    ("etcd-v3", Some(Backend::Etcd), Some(Backend::Etcd)),
    ("etcd-v2", Some(Backend::Dynamic), Some(Backend::Etcd)),
    ("c10d", None, Some(Backend::Rallypoint)),
    ("static", None, Some(Backend::Rallypoint)),
];

impl Backend {
    /// The name under which the backend is registered.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rallypoint => "rallypoint",
            Self::Etcd => "etcd",
            Self::Dynamic => "dynamic",
            Self::Client => "client",
        }
    }

    /// The backend of this name or alias in the library.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.into_iter().find(|(known, ..)| *known == name)?.1
    }

    /// The backend of the launcher for this name or alias.
    #[cfg_attr(
        not(feature = "cli"),
        allow(dead_code, reason = "the launcher is part of the command")
    )]
    pub(crate) fn of_launcher(name: &str) -> Option<Self> {
        NAMES.into_iter().find(|(known, ..)| *known == name)?.2
    }

    /// The names and aliases that the launcher takes.
    #[cfg_attr(
        not(feature = "cli"),
        allow(dead_code, reason = "the launcher is part of the command")
    )]
    pub(crate) fn launcher_names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().filter(|(.., launcher)| launcher.is_some()).map(|(name, ..)| name)
    }

    /// The names and aliases of the rendezvous of this crate, which speaks to an etcd or to the embedded server.
    pub fn own_names() -> impl Iterator<Item = &'static str> {
        let is_own = |(_, library, _): &Name| library.is_some_and(Self::is_own);
        NAMES.into_iter().filter(is_own).map(|(name, ..)| name)
    }

    /// Whether this is the rendezvous of this crate, on an etcd or on the embedded server.
    pub fn is_own(self) -> bool {
        matches!(self, Self::Rallypoint | Self::Etcd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_one_backend_of_the_library_and_one_of_the_launcher() {
        use Backend::{Dynamic, Etcd, Rallypoint};
        let table = [
            ("rallypoint", Some(Rallypoint), Some(Rallypoint)),
            ("etcd", Some(Etcd), Some(Etcd)),
            ("etcd-v3", Some(Etcd), Some(Etcd)),
            ("dynamic", Some(Dynamic), None),
            ("etcd-v2", Some(Dynamic), Some(Etcd)),
            ("c10d", None, Some(Rallypoint)),
            ("static", None, Some(Rallypoint)),
            ("client", None, None),
            ("etcd-v4", None, None),
        ];
        for (name, library, launcher) in table {
            assert_eq!(Backend::named(name), library, "{name}");
            assert_eq!(Backend::of_launcher(name), launcher, "{name}");
        }
        for backend in [Rallypoint, Etcd, Dynamic] {
            assert_eq!(Backend::named(backend.name()), Some(backend));
        }
        assert_eq!(Backend::own_names().collect::<Vec<_>>(), ["rallypoint", "etcd", "etcd-v3"]);
    }
}
