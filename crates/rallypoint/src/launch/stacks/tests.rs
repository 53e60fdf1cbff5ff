use super::*;

fn member(pid: u32, parent: u32) -> GroupMember {
    GroupMember { pid, parent }
}

/// Numbers that no process has, so none of them is Python.
#[test]
fn the_process_that_works_is_below_a_script_that_waits() {
    const LEADER: u32 = 4_000_000_000;
    for (members, expected) in [
        (vec![], None),
        (vec![member(LEADER, 1)], Some(LEADER)),
        (vec![member(LEADER, 1), member(LEADER + 1, LEADER)], Some(LEADER + 1)),
        (
            vec![member(LEADER, 1), member(LEADER + 1, LEADER), member(LEADER + 2, LEADER)],
            Some(LEADER),
        ),
        // The leader is gone.
        (vec![member(LEADER + 2, 1)], Some(LEADER + 2)),
    ] {
        assert_eq!(chosen(&members), expected, "{members:?}");
    }
}

#[tokio::test]
async fn every_worker_has_an_answer() {
    let mut child = std::process::Command::new("sleep");
    let mut child =
        std::os::unix::process::CommandExt::process_group(&mut child, 0).arg("60").spawn().unwrap();
    let targets = StackTargets {
        host: "h1".into(),
        node: "n1".into(),
        base_rank: 4,
        groups: vec![Some(child.id()), None],
        program: "sleep".into(),
        debug_ports: BTreeMap::new(),
    };
    let stacks = targets.take(Duration::from_secs(30)).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let [sleeps, exited] = &stacks.workers[..] else { panic!("{stacks:?}") };
    assert_eq!((sleeps.rank, sleeps.frames.is_empty()), (4, false));
    assert_eq!((exited.rank, exited.note.as_deref()), (5, Some("no process any more")));
}
