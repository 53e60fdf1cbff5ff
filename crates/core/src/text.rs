//! Text of people and programs, with bounds.

/// The most bytes of a reason in a shared document.
pub(crate) const LONGEST_REASON: usize = 512;

/// The text, or its beginning and an ellipsis if it has more than `most` bytes.
pub(crate) fn bounded(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::bounded;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        for (text, most, expected) in [
            ("", 0, ""),
            ("four", 4, "four"),
            ("fives", 4, "five…"),
            ("größe", 3, "gr…"),
            ("größe", 4, "grö…"),
        ] {
            assert_eq!(bounded(text.to_owned(), most), expected, "{text} {most}");
        }
    }
}
