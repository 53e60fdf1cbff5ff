//! Slurm's lists of hosts: `node[001-004,7],gpu2`.

/// The first hosts of the list, `most` of them, or the error in it. The list has at least one.
pub(super) fn first_hosts(list: &str, most: usize) -> Result<Vec<String>, &'static str> {
    check_brackets(list)?;
    let mut hosts = Vec::new();
    let mut depth = 0;
    let outside_brackets = |letter: char| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        letter == ',' && depth == 0
    };
    for folded in list.trim().split(outside_brackets) {
        unfold(String::new(), folded, most, &mut hosts)?;
    }
    Ok(hosts)
}

/// Adds the hosts of one part of a list: `prefix`, and `folded` with each number of its brackets.
fn unfold(
    prefix: String,
    folded: &str,
    most: usize,
    hosts: &mut Vec<String>,
) -> Result<(), &'static str> {
    if hosts.len() >= most {
        return Ok(());
    }
    let Some((before, inner)) = folded.split_once('[') else {
        let host = prefix + folded;
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err("a host of it has no name");
        }
        hosts.push(host);
        return Ok(());
    };
    let (ranges, after) = inner.split_once(']').unwrap_or((inner, ""));
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let width = first.len();
        for number in number(first)?..=number(last)? {
            let prefix = format!("{prefix}{before}{number:0width$}");
            unfold(prefix, after, most, hosts)?;
            if hosts.len() >= most {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn number(text: &str) -> Result<u64, &'static str> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| text.parse().ok()).flatten();
    number.ok_or("the brackets should hold numbers, such as [1-4,7]")
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
    fn the_first_hosts_of_a_list() {
        for (list, expected) in [
            ("node1", &["node1"][..]),
            ("node[001-004,7],gpu2", &["node001", "node002", "node003"]),
            ("gpu2,node[001-004,7]", &["gpu2", "node001", "node002"]),
            ("node[9-11]", &["node9", "node10", "node11"]),
            ("a[1,2]b[1-2]", &["a1b1", "a1b2", "a2b1"]),
            ("a,b", &["a", "b"]),
        ] {
            assert_eq!(first_hosts(list, 3).unwrap(), expected, "{list}");
        }
    }

    fn first_host(list: &str) -> Result<String, &'static str> {
        first_hosts(list, 1).map(|hosts| hosts.concat())
    }

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
            let _ = first_hosts(&list, 3);
        }
    }
}
