//! Real etcds that the library and the command start: what they leave behind, which is nothing.

mod cluster;
mod command;
mod failures;
mod life;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rallypoint::etcd_server::EtcdServerOptions;

use crate::support::Version;
use crate::support::hostile::eventually;
use crate::support::process::Directory;

/// For what must come about by itself. A busy machine may take its time.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// The usual options, with a binary that a test can tell from all others by its path.
pub fn options(binary: &Path) -> EtcdServerOptions {
    EtcdServerOptions::default().with(|options| options.binary = Some(binary.to_owned()))
}

/// A program in `directory` that notes down its arguments, one start a line, in a file beside it, and
/// then does as the shell script says. `ETCD` there is the path of a real etcd.
pub fn fake(directory: &Directory, script: &str) -> PathBuf {
    let path = directory.path().join("etcd");
    let real = Version::V3_5.etcd();
    let script = script.replace("ETCD", real.to_str().unwrap());
    let starts = starts_file(&path);
    // In one piece, since several may be started at once.
    let text = format!(
        "#!/bin/sh\nline=$(printf '%s\\t' \"$@\")\nprintf '%s\\n' \"$line\" >> '{}'\n{script}\n",
        starts.display()
    );
    // Not written by this process: a program cannot be executed while anyone has it open for writing,
    // and whatever another test forks at that moment would have it open too.
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
    path
}

/// A fake that is a real etcd of this version.
pub fn real(directory: &Directory, version: Version) -> PathBuf {
    fake(directory, &format!("exec '{}' \"$@\"", version.etcd().display()))
}

fn starts_file(fake: &Path) -> PathBuf {
    fake.with_extension("starts")
}

/// The arguments of each time that a fake was started.
pub fn starts(fake: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(starts_file(fake)).unwrap_or_default();
    text.lines().map(Into::into).collect()
}

/// What follows `flag` in a command line.
pub fn argument<'a>(line: &'a str, flag: &str) -> &'a str {
    let mut words = line.split('\t').skip_while(|word| *word != flag);
    words.nth(1).unwrap_or_else(|| panic!("there is no {flag} in {line}"))
}

/// Whether there is such a process, other than as a memory of one.
pub fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).is_some_and(|c| c != 'Z')
}

/// The processes that have `text` in their command line.
pub fn processes_with(text: &Path) -> BTreeSet<u32> {
    let text = text.as_os_str().as_encoded_bytes();
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let name = entry.unwrap().file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if line.windows(text.len()).any(|part| part == text) {
            found.insert(pid);
        }
    }
    found
}

/// Waits until nothing is left of what a fake was started for: no process, no directory.
pub async fn nothing_is_left(fake: &Path) {
    let gone = async |path: &Path| {
        eventually("no process is left", PATIENCE, async || processes_with(path).is_empty()).await;
    };
    gone(fake).await;
    for line in starts(fake) {
        let data = PathBuf::from(argument(&line, "--data-dir"));
        gone(&data).await;
        eventually("no directory is left", PATIENCE, async || !data.exists()).await;
    }
}
