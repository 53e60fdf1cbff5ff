//! The program of the workers: a script under Python, or a program by itself.

use std::ffi::OsString;
use std::path::Path;

use rallypoint_core::agent::placeholders;

use super::environment::text;
use super::error::RunError;
use super::host::HostFacts;
use super::options::{JobPurpose, Options};
use crate::launch::job::Program;

/// The program that the options name, with its interpreter.
pub(super) fn program(options: &Options, host: &HostFacts) -> Result<Program, RunError> {
    if options.module && options.no_python {
        return Err(RunError::conflict(
            "--module",
            "--no-python",
            "a module needs Python; leave one of them out",
        ));
    }
    if options.program.is_empty() && options.purpose == JobPurpose::Check {
        return Ok(Program { path: OsString::new(), arguments: Vec::new(), placeholders: false });
    }
    let Some((path, arguments)) =
        options.program.split_first().filter(|(path, _)| !path.is_empty())
    else {
        let fix = "give what to run behind the options".to_owned();
        return Err(RunError::missing("PROGRAM", fix));
    };
    if options.placeholders {
        for argument in arguments.iter().filter_map(|argument| argument.to_str()) {
            placeholders::check(argument, options.ports)
                .map_err(|error| RunError::invalid("PROGRAM", argument, error.to_string()))?;
        }
    }
    let is_script = Path::new(path).extension().is_some_and(|extension| extension == "py");
    if options.no_python || !(options.module || is_script) {
        let arguments = arguments.to_vec();
        return Ok(Program { path: path.clone(), arguments, placeholders: options.placeholders });
    }
    let named = text(&host.environment, &["PYTHON_EXEC"]);
    let interpreter = named.map_or(host.python.as_str(), |(_, value)| value);
    // Unbuffered, so that lines appear when they are written.
    let before = ["-u"].into_iter().chain(options.module.then_some("-m")).map(OsString::from);
    let arguments = before.chain(options.program.iter().cloned()).collect();
    Ok(Program { path: interpreter.into(), arguments, placeholders: options.placeholders })
}
