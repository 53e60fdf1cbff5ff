//! Reads the options of a backend by the table: names, aliases, types, limits and defaults.

use std::str::FromStr;
use std::time::Duration;

use super::{Backend, Kind, OptionSpec, rows};
use crate::config::error::ConfigError;
use crate::config::parameters::RendezvousParameters;
use crate::config::suggest::suggest;
use crate::config::values::{self, MAX_SECONDS, PortRange};

/// The options that were given, and the table that they are read by.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    parameters: &'a RendezvousParameters,
    backend: Backend,
}

/// A value, and the name that it was given under.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) name: &'static str,
    pub(super) value: &'a str,
}

impl Given<'_> {
    fn invalid(self, fix: impl Into<String>) -> ConfigError {
        ConfigError::invalid(self.name, self.value, fix)
    }
}

impl<'a> Reader<'a> {
    /// Reads the options of `backend`.
    ///
    /// # Errors
    /// [`ConfigError::UnknownOption`] names an option that the backend does not have.
    pub(crate) fn new(
        parameters: &'a RendezvousParameters,
        backend: Backend,
    ) -> Result<Self, ConfigError> {
        let names =
            |row: &'static OptionSpec| [row.name].into_iter().chain(row.aliases.iter().copied());
        let known: Vec<&'static str> = rows(backend).flat_map(names).collect();
        match parameters.config.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(Self { parameters, backend }),
            Some(option) => Err(ConfigError::UnknownOption {
                backend: parameters.backend.clone(),
                option: option.clone(),
                suggestion: suggest(option, known.iter().copied()).map(str::to_owned),
                known,
            }),
        }
    }

    /// Reads parameters without options: every value is the default of the table.
    pub(super) fn unchecked(parameters: &'a RendezvousParameters, backend: Backend) -> Self {
        Self { parameters, backend }
    }

    pub(super) fn parameters(&self) -> &'a RendezvousParameters {
        self.parameters
    }

    /// A time that has a default.
    pub(super) fn time(&self, name: &str) -> Result<Duration, ConfigError> {
        Ok(self.optional_time(name)?.unwrap_or_default())
    }

    /// A time that may be absent.
    pub(super) fn optional_time(&self, name: &str) -> Result<Option<Duration>, ConfigError> {
        let row = self.row(name);
        self.parse(row, |text| match row.kind {
            Kind::WholeSeconds { least } => {
                values::count(text, least, MAX_SECONDS).map(|time| Duration::from_secs(time.into()))
            }
            Kind::Seconds { least } => values::seconds(text, least),
            _ => Err(format!("{name} is no time in the table of options")),
        })
    }

    /// A whole number that has a default.
    pub(super) fn count(&self, name: &str) -> Result<u32, ConfigError> {
        Ok(self.optional_count(name)?.unwrap_or_default())
    }

    /// A whole number that may be absent.
    pub(super) fn optional_count(&self, name: &str) -> Result<Option<u32>, ConfigError> {
        let row = self.row(name);
        let least = if let Kind::Count { least } = row.kind { least } else { 0 };
        self.parse(row, |text| values::count(text, least, u32::MAX))
    }

    /// A switch that has a default.
    pub(super) fn switch(&self, name: &str) -> Result<bool, ConfigError> {
        Ok(self.optional_switch(name)?.unwrap_or_default())
    }

    /// A switch that may be absent.
    pub(crate) fn optional_switch(&self, name: &str) -> Result<Option<bool>, ConfigError> {
        self.parse(self.row(name), values::switch)
    }

    /// One of the words of the table.
    pub(super) fn choice<T: FromStr>(&self, name: &str) -> Result<T, ConfigError> {
        let row = self.row(name);
        let text = self.given(row)?.map(|given| given.value).or(row.default).unwrap_or_default();
        let words = if let Kind::Choice(words) = row.kind { words } else { &[] };
        text.parse()
            .map_err(|_| ConfigError::invalid(row.name, text, format!("give {}", any_of(words))))
    }

    /// A port or a range of ports.
    pub(super) fn ports(&self, name: &str) -> Result<Option<PortRange>, ConfigError> {
        self.parse(self.row(name), PortRange::parse)
    }

    /// A value that `parse` reads, if there is one.
    pub(super) fn parsed<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        self.parse(self.row(name), parse)
    }

    /// Text, which must not be empty.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, ConfigError> {
        self.parse(self.row(name), |text| Ok(text.to_owned()))
    }

    /// The value that was given, and under which of the names of the option.
    pub(super) fn given_as(&self, name: &str) -> Result<Option<Given<'a>>, ConfigError> {
        self.given(self.row(name))
    }

    fn parse<T>(
        &self,
        row: &'static OptionSpec,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let given = self.given(row)?;
        let default = row.default.map(|value| Given { name: row.name, value });
        let Some(found) = given.or(default) else { return Ok(None) };
        parse(found.value).map(Some).map_err(|fix| found.invalid(fix))
    }

    fn given(&self, row: &'static OptionSpec) -> Result<Option<Given<'a>>, ConfigError> {
        let mut found: Option<Given<'a>> = None;
        for name in [row.name].into_iter().chain(row.aliases.iter().copied()) {
            let Some(value) = self.parameters.get(name) else { continue };
            let given = Given { name, value };
            if value.is_empty() && matches!(row.kind, Kind::Text | Kind::File) {
                return Err(given.invalid("give a value, or leave it out"));
            }
            match found {
                Some(first) if first.value != value => {
                    return Err(ConfigError::conflict(
                        format!("{} {:?}", first.name, first.value),
                        format!("{name} {value:?}"),
                        "they are names of one option; give one of them",
                    ));
                }
                Some(_) => {}
                None => found = Some(given),
            }
        }
        Ok(found)
    }

    fn row(&self, name: &str) -> &'static OptionSpec {
        rows(self.backend).find(|row| row.name == name).expect("the option is in the table")
    }
}

/// Words for a sentence: `a, b or c`.
fn any_of(words: &[&str]) -> String {
    match words {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        words => words.join(""),
    }
}
