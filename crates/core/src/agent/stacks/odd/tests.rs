use super::*;
use crate::agent::stacks::{Frame, WorkerStack};

/// Nodes by the places of their workers: `"aab aaa"` are two nodes with three workers each. `?` is a worker without a
/// stack, and a capital letter is a stack of the kernel.
fn nodes(places: &str) -> Vec<NodeStacks> {
    let mut ranks = 0..;
    let mut worker = |place: char| {
        let rank = ranks.next().unwrap();
        let frame = Frame { function: place.to_lowercase().to_string(), file: "f".into(), line: 1 };
        let frames = if place == '?' { Vec::new() } else { vec![frame] };
        let note = (place == '?' || place.is_uppercase()).then(|| "no py-spy".to_owned());
        WorkerStack { rank, step: None, frames, note }
    };
    let mut node = |(number, places): (usize, &str)| NodeStacks {
        host: format!("h{number}"),
        node: format!("n{number}"),
        workers: places.chars().map(&mut worker).collect(),
    };
    places.split(' ').enumerate().map(&mut node).collect()
}

#[test]
fn a_node_is_to_blame_only_if_there_is_no_doubt() {
    let same = "all ranks are at the same place";
    let few = "fewer than two of three ranks are at the same place";
    let ways = "not all stacks could be taken in the same way";
    let table: [(&str, Result<&[&str], &str>); 17] = [
        ("aaab aaaa", Ok(&["n0"])),
        ("aaaa aaaa aaab", Ok(&["n2"])),
        // Ranks of one node may be at several places.
        ("aaaa aaaa aabc", Ok(&["n2"])),
        ("aa aa bb", Ok(&["n2"])),
        ("a a b", Ok(&["n2"])),
        ("AA AB AA", Ok(&["n1"])),
        // The only node: it restarts.
        ("aaab", Ok(&["n0"])),
        // One of eight nodes, and no more.
        ("a a a a a a b a", Ok(&["n6"])),
        ("a a a a a a b b", Err("the ranks at other places are on 2 of 8 nodes")),
        ("a a a a a a a a a a a a a a b c", Ok(&["n14", "n15"])),
        ("a b", Err(few)),
        ("aab bba", Err(few)),
        ("aaaa aaaa", Err(same)),
        ("a", Err(same)),
        ("aaa aa?", Err("the stack of rank 5 is not known")),
        ("aaa aaB", Err(ways)),
        ("Aaa aab", Err(ways)),
    ];
    for (places, expected) in table {
        let odd = OddNodes::of(&nodes(places), 0);
        let ids: Vec<&str> = odd.nodes.iter().map(|node| node.id.as_str()).collect();
        match expected {
            Ok(expected) => assert_eq!(ids, expected, "{places}: {}", odd.reason),
            Err(reason) => assert_eq!((ids.len(), odd.reason.as_str()), (0, reason), "{places}"),
        }
    }
}

#[test]
fn nodes_that_do_not_answer_or_say_no_name_blame_nobody() {
    let reason = |nodes: &[NodeStacks], missing| {
        let OddNodes { nodes, reason } = OddNodes::of(nodes, missing);
        assert_eq!(nodes, []);
        reason
    };
    assert_eq!(reason(&nodes("aaab aaaa"), 1), "1 of the group's nodes did not answer");
    assert_eq!(reason(&[], 0), "no worker is left");
    let mut unnamed = nodes("aaab aaaa");
    unnamed[0].node.clear();
    assert_eq!(reason(&unnamed, 0), "the node at another place has an earlier version");
}
