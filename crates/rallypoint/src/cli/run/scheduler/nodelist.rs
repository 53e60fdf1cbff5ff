//! Slurm's lists of hosts: `node[001-004,7],gpu2`.

/// The first host of the list, or the error in it.
pub(super) fn first_host(list: &str) -> Result<String, &'static str> {
    check_brackets(list)?;
    let mut rest = list.trim();
    let mut host = String::new();
    // The text up to the first comma outside brackets, with the first number of each pair of brackets.
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..end]);
        let Some(inner) = rest[end..].strip_prefix('[') else { break };
        let Some((numbers, after)) = inner.split_once(']') else { break };
        let first = numbers.split([',', '-']).next().unwrap_or_default();
        if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("the brackets should hold numbers, such as [1-4,7]");
        }
        host.push_str(first);
        rest = after;
    }
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err("its first host has no name");
    }
    Ok(host)
}

fn check_brackets(list: &str) -> Result<(), &'static str> {
    let mut open = false;
    for letter in list.chars() {
        match letter {
            '[' if open => return Err("there are brackets within brackets"),
            ']' if !open => return Err("a bracket is closed that was not opened"),
            '[' | ']' => open = !open,
            _ => {}
        }
    }
    if open { Err("a bracket is not closed") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_host_of_a_list() {
        for (list, expected) in [
            ("node1", "node1"),
            ("node[001-004,7],gpu2", "node001"),
            ("gpu2,node[001-004,7]", "gpu2"),
            ("node[7]", "node7"),
            ("node[7,3-5]-ib", "node7-ib"),
            ("rack[2-3]node[01-16]", "rack2node01"),
            ("tux[0-9][10-19]", "tux010"),
            (" a.cluster.org,b", "a.cluster.org"),
        ] {
            assert_eq!(first_host(list).as_deref(), Ok(expected), "{list}");
        }
    }

    #[test]
    fn a_broken_list_is_told_from_a_host() {
        for (list, words) in [
            ("", "no name"),
            (",a", "no name"),
            ("a b", "no name"),
            ("node[1-2", "not closed"),
            ("node1]", "not opened"),
            ("node[1[2]]", "within brackets"),
            ("node[]", "hold numbers"),
            ("node[a-b]", "hold numbers"),
            ("node[-4]", "hold numbers"),
            ("node1,gpu[2", "not closed"),
        ] {
            assert!(first_host(list).unwrap_err().contains(words), "{list}");
        }
    }

    proptest! {
        /// However the hosts are folded into brackets, the first one comes out.
        #[test]
        fn folding_does_not_change_the_first_host(
            prefix in "[a-z]{1,6}-?",
            suffix in "(-[a-z]{1,3})?",
            first in 0u32..2000,
            more in prop::collection::vec(0u32..50, 0..4),
            width in 0usize..6,
            others in prop::collection::vec("[a-z]{1,4}[0-9]{0,2}", 0..3),
        ) {
            let start = format!("{first:0width$}");
            let ranges: String =
                more.iter().map(|length| format!(",{first}-{}", first + length)).collect();
            let others: String = others.iter().map(|host| format!(",{host}")).collect();
            let list = format!("{prefix}[{start}{ranges}]{suffix}{others}");
            prop_assert_eq!(first_host(&list), Ok(format!("{prefix}{start}{suffix}")));
        }

        #[test]
        fn anything_is_answered(list in "[a-c0-9\\[\\],\\- ]{0,12}") {
            let _ = first_host(&list);
        }
    }
}
