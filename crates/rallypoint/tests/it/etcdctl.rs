//! Stock etcdctl against real etcd and against ours, side by side: the same words come out. It speaks the v3 API by
//! itself; to be told so is a warning among its words from 3.6 on.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::process::{Directory, Process, Recipe};
use crate::support::{Embedded, Etcd, Version};

const PASSWORD: &str = "open sesame";

/// One of the two servers, as etcdctl sees it.
struct Side {
    version: Version,
    address: String,
    user: Option<String>,
    lease: String,
}

impl Side {
    fn new(version: Version, address: String) -> Self {
        Self { version, address, user: None, lease: String::new() }
    }

    fn args(&self, args: &[&str]) -> Vec<String> {
        let mut all = vec!["--endpoints".to_owned(), self.address.clone()];
        if let Some(user) = &self.user {
            all.extend(["--user".to_owned(), user.clone()]);
        }
        all.extend(args.iter().map(|arg| arg.replace("{lease}", &self.lease)));
        all
    }

    /// What etcdctl prints, and whether it is content.
    fn run(&mut self, args: &[&str], input: &str) -> String {
        let mut child = Command::new(self.version.etcdctl())
            .args(self.args(args))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        let output = String::from_utf8_lossy(&done.stdout).into_owned();
        if args.starts_with(&["lease", "grant"]) {
            self.lease = output.split_whitespace().nth(1).unwrap_or_default().to_owned();
        }
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        // Besides the error proper there are log lines, which are about the client.
        let error: String = errors.lines().filter(|line| line.starts_with("Error")).collect();
        self.normal(&format!("{output}{error}\nsuccess: {}", done.status.success()))
    }

    /// Without what belongs to one server alone.
    fn normal(&self, text: &str) -> String {
        let own = ["\"ClusterID\"", "\"MemberID\"", "\"RaftTerm\""];
        let lines = text.lines().filter(|line| !own.iter().any(|name| line.starts_with(name)));
        let mut text = lines.collect::<Vec<_>>().join("\n").replace(&self.address, "<address>");
        if !self.lease.is_empty() {
            text = text.replace(&self.lease, "<lease>");
            if let Ok(id) = i64::from_str_radix(&self.lease, 16) {
                text = text.replace(&id.to_string(), "<lease>");
            }
        }
        text
    }
}

fn both(sides: &mut [Side; 2], args: &[&str], input: &str) -> String {
    let [real, ours] = sides.each_mut().map(|side| side.run(args, input));
    assert_eq!(ours, real, "etcdctl {} {args:?}: ours, and etcd's", sides[0].version.name());
    real
}

#[tokio::test]
async fn the_same_words_for_keys() {
    for version in Version::all() {
        let (etcd, ours) = tokio::join!(Etcd::start(version), Embedded::memory());
        let mut sides = [Side::new(version, etcd.address()), Side::new(version, ours.address())];
        let txn = "value(\"a\") = \"2\"\nver(\"none\") = \"0\"\n\nput t yes\nget a\ndel b\n\nput t no\n\n";
        let other = "mod(\"a\") > \"1000\"\n\nput t yes\n\nget t\nget --prefix a\n\n";
        for (args, input, content) in [
            (&["put", "a", "1"][..], "", true),
            (&["put", "--prev-kv", "a", "2"], "", true),
            (&["put", "b", "1", "-w", "fields"], "", true),
            (&["put", "c"], "from the input", true),
            (&["put", "--ignore-value", "a"], "", true),
            (&["put", "--ignore-value", "none"], "", false),
            (&["put", "--lease=123", "a", "1"], "", false),
            (&["put", "", "1"], "", false),
            (&["get", "a"], "", true),
            (&["get", "none"], "", true),
            (&["get", "--prefix", "", "-w", "fields"], "", true),
            (&["get", "a", "c", "--print-value-only"], "", true),
            (&["get", "--from-key", "b", "--keys-only"], "", true),
            (&["get", "--prefix", "", "--limit=2", "-w", "fields"], "", true),
            (&["get", "--prefix", "", "--sort-by=MODIFY", "--order=DESCEND"], "", true),
            (&["get", "a", "--rev=2", "--consistency=s"], "", true),
            (&["get", "a", "--rev=1000"], "", false),
            (&["txn"], txn, true),
            (&["txn", "-w", "fields"], other, true),
            (&["txn"], "ver(\"a\") > \"0\"\n\nput a 1\nput a 2\n\n\n", false),
            (&["del", "--prev-kv", "c"], "", true),
            (&["del", "none"], "", true),
            (&["compaction", "4"], "", true),
            (&["compaction", "4"], "", false),
            (&["compaction", "1000"], "", false),
            (&["get", "a", "--rev=2"], "", false),
            (&["del", "--prefix", "", "-w", "fields"], "", true),
            (&["alarm", "list"], "", true),
            (&["lock", "name", "echo", "held"], "", true),
        ] {
            // That both say the same would not be worth much if neither did what it was told.
            let said = both(&mut sides, args, input);
            assert!(said.ends_with(&format!("success: {content}")), "{args:?}: {said}");
        }
    }
}

#[tokio::test]
async fn the_same_words_for_leases() {
    for version in Version::all() {
        let (etcd, ours) = tokio::join!(Etcd::start(version), Embedded::memory());
        let mut sides = [Side::new(version, etcd.address()), Side::new(version, ours.address())];
        let granted = both(&mut sides, &["lease", "grant", "100"], "");
        assert!(granted.starts_with("lease <lease> granted with TTL(100s)"), "{granted}");
        for args in [
            &["put", "--lease={lease}", "a", "1"][..],
            &["put", "--lease={lease}", "b", "1"],
            &["get", "a", "-w", "fields"],
            &["lease", "list"],
            &["lease", "keep-alive", "--once", "{lease}"],
            &["put", "--ignore-lease", "a", "2"],
            &["put", "b", "2"],
            &["lease", "revoke", "{lease}"],
            &["lease", "revoke", "{lease}"],
            &["lease", "timetolive", "{lease}"],
            &["lease", "keep-alive", "--once", "{lease}"],
            &["get", "--prefix", ""],
            &["lease", "grant", "9000000001"],
        ] {
            both(&mut sides, args, "");
        }
        both(&mut sides, &["lease", "grant", "1"], "");
        both(&mut sides, &["lease", "grant", "500"], "");
        both(&mut sides, &["put", "--lease={lease}", "c", "1"], "");
        // The seconds left depend on how quick we are.
        let left = |text: String| text.replace("remaining(498s)", "remaining(499s)");
        let [real, ours] = sides
            .each_mut()
            .map(|side| left(side.run(&["lease", "timetolive", "{lease}", "--keys"], "")));
        assert_eq!(ours, real);
        assert!(real.contains("remaining(499s), attached keys([c])"), "{real}");
    }
}

#[tokio::test]
async fn the_same_words_for_watches() {
    for version in Version::all() {
        let (etcd, ours) = tokio::join!(Etcd::start(version), Embedded::memory());
        let mut sides = [Side::new(version, etcd.address()), Side::new(version, ours.address())];
        for args in [&["put", "a", "1"][..], &["put", "a", "2"], &["del", "a"], &["put", "b", "1"]]
        {
            both(&mut sides, args, "");
        }
        let directory = Directory::new();
        let [real, ours] = ["real", "ours"].map(|name| directory.path().join(name));
        let _watches = [(&sides[0], &real), (&sides[1], &ours)].map(|(side, log)| {
            let args = side.args(&["watch", "--prefix", "", "--rev=2", "--prev-kv"]);
            let args = args.into_iter().map(Into::into).collect();
            let program = version.etcdctl();
            Process::start(&Recipe { program, args, env: Vec::new(), log: log.clone() })
        });
        both(&mut sides, &["put", "the", "end"], "");
        let started = Instant::now();
        loop {
            let [real, ours] = [&real, &ours].map(|log| std::fs::read_to_string(log).unwrap());
            if real.ends_with("the\nend\n") && ours.ends_with("the\nend\n") {
                assert_eq!(ours, real);
                assert!(real.contains("DELETE"), "{real}");
                break;
            }
            let late = started.elapsed() > Duration::from_secs(10);
            assert!(!late, "etcd's watch told\n{real}\nours told\n{ours}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn the_same_shape_of_what_is_their_own() {
    for version in Version::all() {
        let (etcd, ours) = tokio::join!(Etcd::start(version), Embedded::memory());
        let mut sides = [Side::new(version, etcd.address()), Side::new(version, ours.address())];
        // The names of the fields, not what is in them.
        let fields = |text: String| -> BTreeSet<String> {
            text.lines().filter_map(|line| Some(line.split_once(" : ")?.0.to_owned())).collect()
        };
        let status = ["endpoint", "status", "-w", "fields"];
        let [real, ours] = sides.each_mut().map(|side| fields(side.run(&status, "")));
        assert_eq!(ours, real);
        assert!(real.contains("\"Version\""), "{real:?}");

        let [real, ours] = sides.each_mut().map(|side| side.run(&["endpoint", "health"], ""));
        let healthy = "<address> is healthy: successfully committed proposal";
        for text in [real, ours] {
            // 3.4 says it on the error stream, which is left out; both say it by their success.
            assert!(text.ends_with("success: true"), "{text}");
            assert!(text.starts_with(healthy) || version == Version::V3_4, "{text}");
        }

        // An id, its state, its name, where its peers and where its clients find it, no learner.
        for side in &mut sides {
            let text = side.run(&["member", "list"], "");
            let member: Vec<&str> = text.lines().next().unwrap().split(", ").collect();
            assert_eq!((member.len(), member[1], member[5]), (6, "started", "false"), "{text}");
            assert_eq!(member[4], "http://<address>");
        }
    }
}

#[tokio::test]
async fn the_same_words_for_users() {
    for version in Version::all() {
        let etcd = Etcd::start(version).await;
        let directory = Directory::new();
        let file = directory.path().join("password");
        std::fs::write(&file, PASSWORD).unwrap();
        let args = ["--user", "root", "--password-file", file.to_str().unwrap()];
        let ours = Embedded::in_directory(directory, false, &args).await;
        let mut sides = [Side::new(version, etcd.address()), Side::new(version, ours.address())];
        let root = format!("root:{PASSWORD}");
        for args in [
            &["user", "add", &root][..],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            let done = sides[0].run(args, "");
            assert!(done.ends_with("success: true"), "{done}");
        }
        for user in
            [None, Some(root), Some("root:wrong".to_owned()), Some(format!("me:{PASSWORD}"))]
        {
            for side in &mut sides {
                side.user = user.clone();
            }
            both(&mut sides, &["put", "a", "1"], "");
            both(&mut sides, &["get", "a"], "");
        }
    }
}

/// Its memory is read from the metrics, and what it wrote is compacted and defragmented.
#[tokio::test]
async fn the_check_of_its_scale_passes() {
    let ours = Embedded::memory().await;
    let endpoint = ours.address();
    let words = ["check", "datascale", "--load", "s", "--auto-compact", "--auto-defrag"];
    let done = Command::new(Version::V3_5.etcdctl())
        .args(["--endpoints", &endpoint])
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("PASS"), "{said}");
    assert!(said.contains("Defragmented"), "{said}");
}
