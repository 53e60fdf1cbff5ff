use super::*;

#[test]
fn every_node_comes_to_the_same_server() {
    use HostAnswer::{Serves, Silent};
    let by = |remembers| HostAnswer::StandsBy { remembers };
    // The own position, the answers of the hosts, and what follows.
    let table: [(Option<usize>, &[HostAnswer], Course); 14] = [
        // Before any group, only the first host opens.
        (Some(0), &[by(0), by(0), by(0)], Course::Open),
        (Some(1), &[by(0), by(0), by(0)], Course::WaitFor(0)),
        (Some(1), &[Silent, by(0), by(0)], Course::WaitFor(0)),
        (None, &[by(0), Silent, Silent], Course::WaitFor(0)),
        // The server that is open is used, also by a host that could open one.
        (Some(0), &[by(3), Serves { formed: 0 }, by(3)], Course::Use(1)),
        (None, &[Silent, Silent, Serves { formed: 4 }], Course::Use(2)),
        // The latest group comes before the order, and the order before nothing.
        (Some(0), &[Serves { formed: 3 }, Serves { formed: 5 }, by(5)], Course::Use(1)),
        (Some(2), &[Serves { formed: 3 }, Silent, Serves { formed: 3 }], Course::Use(0)),
        (Some(2), &[Silent, Serves { formed: 0 }, Serves { formed: 0 }], Course::Use(1)),
        // The head is silent: the first host that remembers the latest group opens.
        (Some(1), &[Silent, by(2), by(2)], Course::Open),
        (Some(2), &[Silent, by(2), by(2)], Course::WaitFor(1)),
        (Some(1), &[Silent, by(2), by(3)], Course::WaitFor(2)),
        // A head that has come back without its memory waits for a host that has it.
        (Some(0), &[by(0), by(2), by(2)], Course::WaitFor(1)),
        (None, &[Silent, Silent, by(2)], Course::WaitFor(2)),
    ];
    for (own, answers, course) in table {
        assert_eq!(choose(own, answers), course, "host {own:?} hears {answers:?}");
    }
}
