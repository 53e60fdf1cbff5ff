//! "Did you mean": the known name that is most like an unknown one.

/// The known name that is most like `word`, if any is like it.
pub(crate) fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.trim().to_ascii_lowercase();
    let distance = |name: &str| {
        // A user who writes the beginning of a name means that name.
        if word.len() >= 3 && name.starts_with(&word) {
            return 0;
        }
        strsim::damerau_levenshtein(&word, name)
    };
    // A third of the letters may be wrong; beyond that it is another word.
    let likely = |name: &&str| distance(name) <= (word.len().max(3)) / 3;
    known.into_iter().filter(likely).min_by_key(|name| distance(name))
}

/// The guess, for a place between the error and the list of the known names.
pub(crate) fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(|| ". ".to_owned(), |name| format!(": did you mean {name}? "))
}

/// Names for a sentence.
pub(crate) fn list<S: AsRef<str>>(names: &[S]) -> String {
    names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        const KNOWN: [&str; 4] = ["timeout", "last_call_timeout", "key", "heartbeat_timeout"];
        for (word, expected) in [
            ("last_call_timout", Some("last_call_timeout")),
            ("TIMEOUT", Some("timeout")),
            ("timoeut", Some("timeout")),
            ("heartbeat", Some("heartbeat_timeout")),
            ("kye", Some("key")),
            ("ke", Some("key")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(suggest(word, KNOWN), expected, "{word:?}");
        }
    }
}
