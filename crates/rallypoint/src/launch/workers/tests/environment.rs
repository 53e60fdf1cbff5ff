//! What a worker finds in its environment: all of ours, what is its own, and no secret.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

use rallypoint_core::agent::environment::{NOTICE_FILE, variables};

use super::*;

const NAME: &str =
    "launch::workers::tests::environment::a_worker_has_our_environment_its_own_and_no_secret";
const INSIDE: &str = "RALLYPOINT_TEST_ENVIRONMENT";

/// What the launcher is to be started with.
fn inherited() -> Vec<(&'static str, &'static OsStr)> {
    vec![
        ("HOME", OsStr::new("/nowhere")),
        ("BYTES", OsStr::from_bytes(b"\xff\xfe")),
        ("LINES_OF_TEXT", OsStr::new("a\n b'\"$x\\")),
        ("EMPTY", OsStr::new("")),
        // Names that a shell cannot write.
        ("BASH_FUNC_module%%", OsStr::new("() { :; }")),
        ("a.b-c", OsStr::new("x = y")),
        // What a shell on the way must not run, nor stumble over.
        ("BASH_FUNC_read%%", OsStr::new("() {  echo hijacked; exit 1\n}")),
        ("BASH_FUNC_exec%%", OsStr::new("() {  echo hijacked; exit 1\n}")),
        ("BASH_FUNC_broken%%", OsStr::new("() { if")),
        ("BASH_ENV", OsStr::new("/dev/stdin")),
        // To be replaced.
        ("RANK", OsStr::new("77")),
        ("TORCHELASTIC_ERROR_FILE", OsStr::new("/launcher's")),
    ]
}

#[test]
fn a_worker_has_our_environment_its_own_and_no_secret() {
    if env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(inside());
    }
    // The same again, in a program with an environment that the other tests should not have: no shell is to be
    // found in it.
    let path = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/cat", path.path().join("cat")).unwrap();
    let again = Command::new(env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env_clear()
        .envs(inherited())
        .env("PATH", path.path())
        .env("RALLYPOINT_SECRET", "hush")
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && said.contains("1 passed"), "{said}");
}

async fn inside() {
    let mut ground = ground_of(1, "cat", &["/proc/self/environ"]);
    ground.spec.logs.redirects = "1".parse().unwrap();
    ground.run().await;
    let files = ground.files(0, 0);
    let text = fs::read(&files.stdout).unwrap();
    let mut found: Vec<&[u8]> =
        text.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()).collect();
    found.sort_unstable();
    let mut own =
        variables(&ground.spec.environment, &ground.order(0), 0, files.error.to_str().unwrap());
    own.insert(NOTICE_FILE.to_owned(), files.notice.to_str().unwrap().to_owned());
    let pair = |name: &str, value: &OsStr| [name.as_ref(), value].join(OsStr::new("=")).into_vec();
    let mut expected: Vec<Vec<u8>> =
        own.iter().map(|(name, value)| pair(name, value.as_ref())).collect();
    let ours = inherited().into_iter().filter(|(name, _)| !own.contains_key(*name));
    expected.extend(ours.map(|(name, value)| pair(name, value)));
    expected.push(pair("PATH", &env::var_os("PATH").unwrap()));
    expected.push(pair(INSIDE, "1".as_ref()));
    expected.sort_unstable();
    let text = |pairs: &[&[u8]]| -> Vec<String> {
        pairs.iter().map(|pair| pair.escape_ascii().to_string()).collect()
    };
    let expected: Vec<&[u8]> = expected.iter().map(Vec::as_slice).collect();
    assert_eq!(text(&found), text(&expected));
}
