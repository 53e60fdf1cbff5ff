#![allow(dead_code, unused_imports, clippy::all)]
#[path = "../support/mod.rs"]
mod support;
mod etcd_server {
    pub fn lives(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).is_some_and(|c| c != 'Z')
    }
}
#[path = "../it/secure.rs"]
mod secure;
mod launch {
    #[path = "/work/h4/crates/rallypoint/tests/it/launch/chaos.rs"]
    mod chaos;
    #[path = "/work/h4/crates/rallypoint/tests/it/launch/ground.rs"]
    mod ground;
    #[path = "/work/h4/crates/rallypoint/tests/it/launch/hosts.rs"]
    pub mod hosts;
    #[path = "/work/h4/crates/rallypoint/tests/it/launch/launcher.rs"]
    mod launcher;
    #[path = "/work/h4/crates/rallypoint/tests/it/launch/processes.rs"]
    mod processes;
    #[path = "/work/h4/crates/rallypoint/tests/it/launch/recorded.rs"]
    pub mod recorded;
    #[path = "/work/h4/crates/rallypoint/tests/it/launch/succession/mod.rs"]
    mod succession;
    #[path = "/work/h4/crates/rallypoint/tests/it/launch/workers.rs"]
    mod workers;
    pub use self::ground::{Group, Job, free_endpoint, host_of};
    pub use self::launcher::{Ended, Launcher};
    pub use self::workers::Worker;
    use std::time::{Duration, Instant};
    pub const PATIENCE: Duration = Duration::from_secs(60);
    pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    pub fn until_true(what: &str, mut is_so: impl FnMut() -> bool) {
        until(what, || is_so().then_some(()));
    }
    pub fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }
}
