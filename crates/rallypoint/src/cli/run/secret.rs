//! The secret that the nodes of a job share: from a file or from the environment, never from an argument, since
//! every user of the host can read arguments.

use std::fmt;

use super::error::RunError;
use super::options::Options;
use crate::launch::job::{Environment, SECRET};

/// The shared secret of a job.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret {
    pub(super) text: String,
    /// Whether it came from `--secret-file`, and not from the environment.
    pub(super) is_option: bool,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("is_option", &self.is_option).finish_non_exhaustive()
    }
}

/// Reads the secret from the file, or else from the environment.
pub(crate) fn read(
    options: &Options,
    environment: &Environment,
) -> Result<Option<Secret>, RunError> {
    let Some(path) = &options.secret_file else {
        let text = environment.get(SECRET).filter(|text| !text.is_empty()).cloned();
        return Ok(text.map(|text| Secret { text, is_option: false }));
    };
    let text = std::fs::read_to_string(path)
        .map_err(|source| RunError::Secret { path: path.clone(), source })?;
    // Editors end a file with a newline.
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        let fix = "the file is empty; write the secret into it";
        return Err(RunError::invalid("--secret-file", path.to_string_lossy(), fix));
    }
    Ok(Some(Secret { text: text.to_owned(), is_option: true }))
}
