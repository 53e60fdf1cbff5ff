//! A node's values in the environment, for other programs that start workers: torchrun's plugin reads the same variables
//! as `rallypoint run`.

use thiserror::Error;

use super::environment::{FoundValue, number, text};
use super::error::RunError;
use super::host;
use super::rendezvous::static_endpoint;
use super::scheduler::Scheduler;
use crate::launch::job::Environment;

/// A malformed environment variable.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct SurroundingsError(#[from] RunError);

/// A value, and the variable that it was found in.
pub type FoundIn<T> = (T, String);

/// The rank of this node in its job: from torchrun's variable, or else from the scheduler.
///
/// # Errors
/// [`SurroundingsError`] names the variable, and the remedy.
pub fn node_rank() -> Result<Option<FoundIn<u32>>, SurroundingsError> {
    let rank = rank_in(&host::environment())?;
    Ok(rank.map(|FoundValue { value, source }| (value, source)))
}

/// The rendezvous endpoint in torchrun's static form, in which the rank-0 node is the server.
///
/// # Errors
/// [`SurroundingsError`] names the variable, and the remedy.
pub fn master() -> Result<Option<FoundIn<String>>, SurroundingsError> {
    Ok(master_in(&host::environment())?)
}

fn rank_in(environment: &Environment) -> Result<Option<FoundValue<u32>>, RunError> {
    match number(environment, &["PET_NODE_RANK"])? {
        Some(given) => Ok(Some(given)),
        None => Scheduler::detect(environment).rank(environment),
    }
}

fn master_in(environment: &Environment) -> Result<Option<FoundIn<String>>, RunError> {
    const PORT: &str = "PET_MASTER_PORT";
    let Some((name, address)) = text(environment, &["PET_MASTER_ADDR"]) else { return Ok(None) };
    let port = number(environment, &[PORT])?.map(|port| match u16::try_from(port.value) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(RunError::invalid(PORT, port.value.to_string(), "give a port from 1 to 65535")),
    });
    let endpoint = static_endpoint(address, port.transpose()?)?;
    Ok(Some((endpoint.to_string(), name.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn torchruns_variable_comes_before_the_schedulers() {
        let slurm = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_NODEID", "2"),
            ("SLURM_NNODES", "4"),
        ];
        let rank = |variables: &[(&str, &str)]| {
            let rank = rank_in(&environment(variables)).map_err(|error| error.to_string())?;
            Ok::<_, String>(rank.map(|found| (found.value, found.source)))
        };
        assert_eq!(rank(&[]), Ok(None));
        assert_eq!(rank(&slurm), Ok(Some((2, "SLURM_NODEID".to_owned()))));
        let both = [&slurm[..], &[("PET_NODE_RANK", "1")]].concat();
        assert_eq!(rank(&both), Ok(Some((1, "PET_NODE_RANK".to_owned()))));
        let kubernetes = [("JOB_COMPLETION_INDEX", "3")];
        assert_eq!(rank(&kubernetes), Ok(Some((3, "JOB_COMPLETION_INDEX".to_owned()))));
        let error = rank(&[("PET_NODE_RANK", "first")]).unwrap_err();
        assert!(
            error.starts_with("PET_NODE_RANK \"first\": it should be a whole number"),
            "{error}"
        );
    }

    #[test]
    fn the_master_is_the_place_to_meet() {
        let master = |address: &str, port: &str| {
            let variables = [("PET_MASTER_ADDR", address), ("PET_MASTER_PORT", port)];
            let found = master_in(&environment(&variables)).map_err(|error| error.to_string())?;
            Ok::<_, String>(found.map(|(endpoint, _)| endpoint))
        };
        assert_eq!(master("", "29500"), Ok(None));
        assert_eq!(master("head", ""), Ok(Some("head:29500".to_owned())));
        assert_eq!(master("fd00::1", "7"), Ok(Some("[fd00::1]:7".to_owned())));
        let error = master("head", "70000").unwrap_err();
        assert_eq!(error, "PET_MASTER_PORT \"70000\": give a port from 1 to 65535");
        let error = master("head:7", "").unwrap_err();
        assert!(error.starts_with("--master-addr \"head:7\": give a host alone"), "{error}");
    }
}
