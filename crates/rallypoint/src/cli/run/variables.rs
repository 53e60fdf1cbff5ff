//! The environment as the defaults of the options (`PET_NNODES` for `--nnodes`), underscores for dashes, and
//! better messages for clap's errors.

use clap::builder::ArgAction;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};

use super::error::RunError;
use super::options::Options;
use crate::launch::job::{Environment, Provenance};

/// Options of torchrun that `rallypoint run` does not have, and their replacements.
const REFUSED: [(&str, &str); 8] = [
    ("start-method", "workers are programs, and start as such"),
    ("event-log-handler", "use --events, which appends events to a file, one JSON object a line"),
    ("run-path", "leave it out; a *.py file runs under python3 -u by itself"),
    ("logs-specs", "use --log-dir, --redirects and --tee"),
    ("duplicate-stdout-filters", "use --tee, and search its files"),
    ("duplicate-stderr-filters", "use --tee, and search its files"),
    ("print-completion", "--help lists the options, and their beginnings are enough"),
    ("use-env", "leave it out; the ranks are always in the environment"),
];

/// The variable of an option.
fn variable(option: &Arg) -> Option<String> {
    option.get_long()?;
    Some(format!("PET_{}", option.get_id().as_str().to_ascii_uppercase()))
}

/// The variable of an option and its value, unless it is empty.
fn standing(option: &Arg, environment: &Environment) -> Option<(String, String)> {
    let name = variable(option)?;
    let value = environment.get(&name).filter(|value| !value.is_empty())?.clone();
    Some((name, value))
}

fn is_flag(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::SetTrue)
}

/// The command, with the environment's values as defaults of its options.
pub(crate) fn command(environment: &Environment) -> Command {
    let prepare = |option: Arg| {
        let underscores = option.get_long().filter(|long| long.contains('-'));
        let underscores = underscores.map(|long| long.replace('-', "_"));
        let default = standing(&option, environment).map(|(_, value)| match value.as_str() {
            "1" if is_flag(&option) => "true".to_owned(),
            "0" if is_flag(&option) => "false".to_owned(),
            _ => value,
        });
        // So that a negative number is a wrong value, not an unknown option.
        let option = if is_flag(&option) { option } else { option.allow_negative_numbers(true) };
        let option = option.aliases(underscores);
        match default {
            Some(default) => option.default_value(default),
            None => option,
        }
    };
    // Of two values for one option the later one counts, as with torchrun.
    Options::command()
        .infer_long_args(true)
        .args_override_self(true)
        .mut_args(|option| if option.get_long().is_some() { prepare(option) } else { option })
}

/// The options, and which of them came from the environment.
pub(crate) fn read(
    matches: &ArgMatches,
    environment: &Environment,
) -> Result<(Options, Vec<Provenance>), RunError> {
    let options =
        Options::from_arg_matches(matches).map_err(|error| explain(error, environment))?;
    let mut provenance = Vec::new();
    for option in Options::command().get_arguments() {
        let id = option.get_id().as_str();
        let Some((name, value)) = standing(option, environment) else { continue };
        if matches.value_source(id) != Some(ValueSource::DefaultValue) {
            continue;
        }
        // The value may contain a password.
        let value = if id == "rdzv_conf" { "…".to_owned() } else { value };
        let long = option.get_long().unwrap_or(id);
        provenance.push(Provenance::new(format!("--{long}"), value, name));
    }
    Ok((options, provenance))
}

/// A clap error, with better words for torchrun's options, abbreviations and variables.
pub(crate) fn explain(error: clap::Error, environment: &Environment) -> RunError {
    let named = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(named)) => named.clone(),
        _ => return RunError::Usage(Box::new(error)),
    };
    let better = match error.kind() {
        ErrorKind::UnknownArgument => unknown(&named),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            wrong_variable(&named, &error, environment)
        }
        _ => None,
    };
    better.unwrap_or_else(|| RunError::Usage(Box::new(error)))
}

fn unknown(named: &str) -> Option<RunError> {
    let plain = named.strip_prefix("--")?.replace('_', "-");
    let options = Options::command();
    let longs = options.get_arguments().filter_map(Arg::get_long);
    let candidates: Vec<String> =
        longs.filter(|long| long.starts_with(&plain)).map(|long| format!("--{long}")).collect();
    let option = named.to_owned();
    if candidates.len() > 1 {
        return Some(RunError::Ambiguous { option, candidates });
    }
    let refused = REFUSED.iter().find(|(name, _)| name.starts_with(&plain))?;
    Some(RunError::Refused { option, instead: refused.1 })
}

/// Names the variable instead of the option, if the wrong value came from the environment.
fn wrong_variable(named: &str, error: &clap::Error, environment: &Environment) -> Option<RunError> {
    let long = named.strip_prefix("--")?.split([' ', '=']).next()?;
    let options = Options::command();
    let option = options.get_arguments().find(|option| option.get_long() == Some(long))?;
    let (name, value) = standing(option, environment)?;
    if !matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(at)) if *at == value)
    {
        return None;
    }
    let fix = match (error.get(ContextKind::ValidValue), std::error::Error::source(error)) {
        _ if is_flag(option) => "give 0 or 1".to_owned(),
        (Some(ContextValue::Strings(valid)), _) => format!("give one of {}", valid.join(", ")),
        (_, Some(source)) => source.to_string(),
        _ => "it is no value of the option".to_owned(),
    };
    Some(RunError::invalid(name, value, fix))
}
