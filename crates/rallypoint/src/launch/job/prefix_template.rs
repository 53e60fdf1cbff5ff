//! The prefix of every line that a worker writes to the console.

use std::fmt;
use std::str::FromStr;

/// Text with placeholders, such as `[${role_name}-${rank}]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PrefixTemplate(Vec<TemplatePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Value(TemplateMacro),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplateMacro {
    RoleName,
    LocalRank,
    Rank,
    HostName,
}

const MACROS: [(&str, TemplateMacro); 4] = [
    ("role_name", TemplateMacro::RoleName),
    ("local_rank", TemplateMacro::LocalRank),
    ("rank", TemplateMacro::Rank),
    ("hostname", TemplateMacro::HostName),
];

/// The worker whose lines get the prefix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineSource<'a> {
    pub(crate) role_name: &'a str,
    pub(crate) local_rank: u32,
    pub(crate) rank: u32,
    pub(crate) hostname: &'a str,
}

impl Default for PrefixTemplate {
    /// torchrun's prefix: `[role0]:`.
    fn default() -> Self {
        let text = |text: &str| TemplatePart::Text(text.to_owned());
        let values = [
            TemplatePart::Value(TemplateMacro::RoleName),
            TemplatePart::Value(TemplateMacro::LocalRank),
        ];
        Self([text("[")].into_iter().chain(values).chain([text("]:")]).collect())
    }
}

impl PrefixTemplate {
    /// The prefix of one worker's lines.
    pub(crate) fn render(&self, source: LineSource<'_>) -> String {
        let mut line = String::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(text) => line.push_str(text),
                TemplatePart::Value(TemplateMacro::RoleName) => line.push_str(source.role_name),
                TemplatePart::Value(TemplateMacro::HostName) => line.push_str(source.hostname),
                TemplatePart::Value(TemplateMacro::LocalRank) => {
                    line.push_str(&source.local_rank.to_string());
                }
                TemplatePart::Value(TemplateMacro::Rank) => line.push_str(&source.rank.to_string()),
            }
        }
        line
    }
}

impl fmt::Display for PrefixTemplate {
    /// The template as the user writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match part {
                TemplatePart::Text(text) => f.write_str(&text.replace('$', "$$"))?,
                TemplatePart::Value(value) => {
                    let name = MACROS.iter().find(|(_, known)| known == value);
                    write!(f, "${{{}}}", name.map_or("", |(name, _)| name))?;
                }
            }
        }
        Ok(())
    }
}

impl FromStr for PrefixTemplate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            parts.push(TemplatePart::Text(before.to_owned()));
            if let Some(after) = after.strip_prefix('$') {
                parts.push(TemplatePart::Text("$".to_owned()));
                rest = after;
                continue;
            }
            let (name, after) = named(after).ok_or_else(|| wrong("$"))?;
            let found = MACROS.iter().find(|(known, _)| *known == name);
            let (_, found) = found.ok_or_else(|| wrong(&format!("${{{name}}}")))?;
            parts.push(TemplatePart::Value(*found));
            rest = after;
        }
        parts.push(TemplatePart::Text(rest.to_owned()));
        parts.retain(|part| *part != TemplatePart::Text(String::new()));
        Ok(Self(parts))
    }
}

/// The name after a dollar sign, in braces or not, and the rest of the text.
fn named(text: &str) -> Option<(&str, &str)> {
    if let Some(inner) = text.strip_prefix('{') {
        return inner.split_once('}');
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn wrong(what: &str) -> String {
    let known: Vec<String> = MACROS.iter().map(|(name, _)| format!("${{{name}}}")).collect();
    format!("{what} stands for nothing; there are {}, and $$ for the sign itself", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str) -> String {
        let source =
            LineSource { role_name: "trainer", local_rank: 11, rank: 27, hostname: "node3" };
        text.parse::<PrefixTemplate>().unwrap().render(source)
    }

    #[test]
    fn values_take_the_place_of_their_names() {
        for (text, expected) in [
            ("[${role_name}${local_rank}]:", "[trainer11]:"),
            ("$hostname/$rank ", "node3/27 "),
            ("$$${rank}$$", "$27$"),
            ("plain", "plain"),
            ("", ""),
        ] {
            assert_eq!(render(text), expected, "{text}");
        }
        let usual: PrefixTemplate = "[${role_name}${local_rank}]:".parse().unwrap();
        assert_eq!(usual, PrefixTemplate::default());
    }

    #[test]
    fn a_name_without_a_value_is_named() {
        for (text, words) in [
            ("${world}", "${world} stands for nothing; there are ${role_name}, ${local_rank}"),
            ("$", "$ stands for nothing"),
            ("${rank", "$ stands for nothing"),
            ("a $ b", "$ stands for nothing"),
        ] {
            let error = text.parse::<PrefixTemplate>().unwrap_err();
            assert!(error.starts_with(words), "{text}: {error}");
        }
    }
}
