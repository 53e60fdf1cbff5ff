//! The search for the `etcd` binary.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::error::EtcdServerError;
use crate::util::program::{SearchError, candidates, first_executable};

/// PyTorch's environment variable for the path of the `etcd` binary.
pub(super) const VARIABLE: &str = "TORCHELASTIC_ETCD_BINARY_PATH";

/// The inputs of the search for the `etcd` binary.
#[derive(Debug, Default)]
pub(super) struct EtcdSearch {
    /// The path from the options. If it is given, no other path is searched.
    pub(super) given: Option<PathBuf>,
    /// The value of [`VARIABLE`].
    pub(super) variable: Option<OsString>,
    /// The directory of this program.
    pub(super) beside: Option<PathBuf>,
    /// The value of `PATH`.
    pub(super) path: Option<OsString>,
}

impl EtcdSearch {
    /// The inputs from the environment of this process.
    pub(super) fn of_process(given: Option<PathBuf>) -> Self {
        let program = env::current_exe().ok();
        Self {
            given,
            variable: env::var_os(VARIABLE),
            beside: program.and_then(|program| program.parent().map(Path::to_owned)),
            path: env::var_os("PATH"),
        }
    }

    /// Finds the first `etcd` that can be executed. An empty variable counts as unset, as in a shell.
    pub(super) fn search(self) -> Result<PathBuf, EtcdServerError> {
        let variable = self.variable.filter(|value| !value.is_empty()).map(PathBuf::from);
        let places = match (self.given, variable) {
            (Some(given), _) => vec![given],
            (None, Some(value)) if !value.is_file() => {
                return Err(EtcdServerError::Variable { value });
            }
            (None, Some(value)) => vec![value],
            (None, None) => {
                let beside = self
                    .beside
                    .iter()
                    .flat_map(|directory| [directory.join("etcd"), directory.join("bin/etcd")]);
                let path = self.path.as_deref();
                let path = path.map(|path| candidates(OsStr::new("etcd"), Some(path)));
                beside.chain(path.into_iter().flatten()).collect()
            }
        };
        let found = first_executable(places).map_err(|error| match error {
            SearchError::NotExecutable { path, source } => {
                EtcdServerError::NotExecutable { path, source }
            }
            SearchError::NotFound { searched } => EtcdServerError::NotFound { searched },
        })?;
        // A shell would search `PATH` for a path without a slash.
        std::path::absolute(&found)
            .map_err(|source| EtcdServerError::Start { binary: found, source })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(directory: &Path, name: &str, mode: u32) -> PathBuf {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn the_order_is_the_variable_beside_the_program_and_the_path() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let named = file(root, "named", 0o755);
        let beside = file(root, "program/etcd", 0o755);
        let below = file(root, "program/bin/etcd", 0o755);
        let first = file(root, "first/etcd", 0o755);
        let second = file(root, "second/etcd", 0o755);
        let search = |variable: Option<&Path>| {
            let path =
                env::join_paths([root.join("none"), root.join("first"), root.join("second")]);
            let places = EtcdSearch {
                given: None,
                variable: variable.map(Into::into),
                beside: Some(root.join("program")),
                path: path.ok(),
            };
            places.search()
        };
        assert_eq!(search(Some(&named)).unwrap(), named);
        assert_eq!(search(Some(Path::new(""))).unwrap(), beside);
        let missing = root.join("missing");
        let error = search(Some(&missing)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, EtcdServerError::Variable { .. }), "{error:?}");
        assert!(text.contains(VARIABLE) && text.contains("missing"), "{text}");
        for (gone, next) in [(beside, below.clone()), (below, first.clone()), (first, second)] {
            fs::remove_file(gone).unwrap();
            assert_eq!(search(None).unwrap(), next);
        }
        fs::remove_file(root.join("second/etcd")).unwrap();
        let text = search(None).unwrap_err().to_string();
        for place in ["program/etcd", "program/bin/etcd", "none/etcd", "first/etcd", "second/etcd"]
        {
            assert!(text.contains(place), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_executed_is_named_unless_another_can() {
        let root = tempfile::tempdir().unwrap();
        let plain = file(root.path(), "plain/etcd", 0o644);
        let other = file(root.path(), "other/etcd", 0o755);
        fs::create_dir_all(root.path().join("directory/etcd")).unwrap();
        let search = |names: &[&str]| {
            let path = env::join_paths(names.iter().map(|name| root.path().join(name))).ok();
            EtcdSearch { path, ..EtcdSearch::default() }.search()
        };
        assert_eq!(search(&["directory", "plain", "other"]).unwrap(), other);
        let error = search(&["directory", "plain"]).unwrap_err();
        assert!(
            matches!(&error, EtcdServerError::NotExecutable { path, .. } if *path == plain),
            "{error:?}"
        );
        let given =
            EtcdSearch { given: Some(root.path().join("no/etcd")), ..EtcdSearch::default() };
        let text = given.search().unwrap_err().to_string();
        assert!(text.contains("no/etcd"), "{text}");
    }
}
