//! A host of two sockets with two nodes each, and what its workers get of it.

use std::fs;

use tempfile::TempDir;

use super::sysfs::{device_nodes, topology};
use super::topology::{list, parse};
use super::*;

/// Sixteen processors in eight cores: processor n and n + 8 are one core. Nodes 0 and 1 are of the first
/// socket. Each node has two cores, and each core of nodes 0 and 2 has a last-level cache of its own.
fn host() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: String, text: String| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text + "\n").unwrap();
    };
    let pair = |first: usize| format!("{first}-{},{}-{}", first + 1, first + 8, first + 9);
    for node in 0..4 {
        write(format!("sys/devices/system/node/node{node}/cpulist"), pair(2 * node));
    }
    // One with memory and no processors.
    write("sys/devices/system/node/node4/cpulist".to_owned(), String::new());
    for processor in 0..16 {
        let at = |file: &str| format!("sys/devices/system/cpu/cpu{processor}/{file}");
        let core = processor % 8;
        let socket = if core < 4 { "0-3,8-11" } else { "4-7,12-15" };
        // Kernels differ in what they call it.
        let names = match processor % 2 {
            0 => ["package_cpus_list", "core_cpus_list"],
            _ => ["core_siblings_list", "thread_siblings_list"],
        };
        let threads = format!("{core},{}", core + 8);
        write(at(&format!("topology/{}", names[0])), socket.to_owned());
        write(at(&format!("topology/{}", names[1])), threads.clone());
        let is_split = matches!(core / 2, 0 | 2);
        let shared = if is_split { threads } else { pair(core / 2 * 2) };
        for (index, level, shared) in [(0, 1, processor.to_string()), (3, 3, shared)] {
            write(at(&format!("cache/index{index}/level")), level.to_string());
            write(at(&format!("cache/index{index}/shared_cpu_list")), shared);
        }
    }
    for (address, vendor, class, node) in [
        ("0000:81:00.0", "0x10de", "0x030200", "3"),
        ("0000:01:00.0", "0x10de", "0x030000", "2"),
        ("0000:01:00.1", "0x10de", "0x040300", "2"),
        ("0000:02:00.0", "0x1002", "0x030000", "0"),
        ("0000:c1:00.0", "0x10de", "0x030200", "-1"),
    ] {
        for (file, text) in [("vendor", vendor), ("class", class), ("numa_node", node)] {
            write(format!("sys/bus/pci/devices/{address}/{file}"), text.to_owned());
        }
    }
    root
}

#[test]
fn lists_of_processors_are_read_and_written() {
    for text in ["0", "0-3", "0-3,8,10-11", ""] {
        assert_eq!(list(&parse(text).unwrap()), text);
    }
    assert_eq!(list(&parse("3,1,2\n").unwrap()), "1-3");
    assert_eq!(parse("x"), None);
}

#[test]
fn workers_get_what_the_binding_says() {
    let host = host();
    let topology = topology(host.path());
    assert_eq!(topology.nodes.len(), 4);
    let share = |binding, homes: &[u32]| -> Vec<String> {
        (0..homes.len()).map(|rank| list(&topology.share(binding, homes, rank))).collect()
    };
    for (binding, homes, expected) in [
        (NumaBinding::Node, &[0, 3][..], &["0-1,8-9", "6-7,14-15"][..]),
        (NumaBinding::Socket, &[0, 3], &["0-3,8-11", "4-7,12-15"]),
        // Whole cores, and all of them.
        (NumaBinding::Exclusive, &[0], &["0-1,8-9"]),
        (NumaBinding::Exclusive, &[0, 1, 0], &["0,8", "2-3,10-11", "1,9"]),
        (NumaBinding::Exclusive, &[0, 0, 0], &["0,8", "1,9", "0,8"]),
        (NumaBinding::CoreComplex, &[0, 1, 0, 0], &["0,8", "2-3,10-11", "1,9", "0,8"]),
    ] {
        assert_eq!(share(binding, homes), expected, "{binding:?} {homes:?}");
    }
}

#[test]
fn only_what_we_may_use_is_given_away() {
    let host = host();
    let topology = topology(host.path()).within(&parse("0,2-3,9-10").unwrap());
    assert_eq!(topology.nodes.keys().copied().collect::<Vec<_>>(), [0, 1]);
    let share = |binding, rank| list(&topology.share(binding, &[0, 1, 1], rank));
    assert_eq!(share(NumaBinding::Node, 0), "0,9");
    assert_eq!(share(NumaBinding::Socket, 0), "0,2-3,9-10");
    assert_eq!(share(NumaBinding::Exclusive, 0), "0,9");
    assert_eq!(
        (share(NumaBinding::Exclusive, 1), share(NumaBinding::Exclusive, 2)),
        ("2,10".to_owned(), "3".to_owned())
    );
    assert_eq!(share(NumaBinding::CoreComplex, 2), "2-3,10");
}

#[test]
fn what_is_not_known_does_not_divide_a_node() {
    let mut topology = Topology::default();
    topology.nodes.insert(0, parse("0-3").unwrap());
    for binding in [NumaBinding::Socket, NumaBinding::Exclusive, NumaBinding::CoreComplex] {
        assert_eq!(list(&topology.share(binding, &[0, 0], 1)), "0-3");
    }
}

#[test]
fn a_worker_is_near_its_device_and_without_one_it_is_its_turn() {
    let host = host();
    let topology = topology(host.path());
    let devices = device_nodes(host.path());
    assert_eq!(devices, [Some(2), Some(3), None]);
    for (visible, expected) in [
        (None, [2, 3, 2, 3]),
        (Some("1, 0"), [3, 2, 2, 3]),
        (Some("GPU-8932f937,0"), [0, 2, 2, 3]),
        (Some(""), [0, 1, 2, 3]),
    ] {
        assert_eq!(homes(&topology, &devices, 4, visible), expected, "{visible:?}");
    }
    assert_eq!(homes(&topology, &[], 6, None), [0, 1, 2, 3, 0, 1]);
}

#[test]
fn no_worker_is_bound_without_a_binding_or_without_nodes() {
    let host = host();
    assert!(bindings(host.path(), None, 2, None).is_empty());
    let empty = tempfile::tempdir().unwrap();
    assert!(bindings(empty.path(), Some(NumaBinding::Node), 2, None).is_empty());
}

#[test]
fn what_is_started_there_stays_there() {
    let own = sched_getaffinity(None).unwrap();
    let one = (0..CpuSet::MAX_CPU).find(|processor| own.is_set(*processor)).unwrap();
    let mut set = CpuSet::new();
    set.set(one);
    let grep = || {
        let mut grep = std::process::Command::new("grep");
        grep.args(["Cpus_allowed_list:", "/proc/self/status"]).output().unwrap()
    };
    let said = String::from_utf8(on(Some(&set), grep).stdout).unwrap();
    assert_eq!(said.split_whitespace().last(), Some(&*one.to_string()));
    // And we are where we were.
    assert!(sched_getaffinity(None).unwrap() == own);
}
