//! The invariants that are about the code itself.

use std::path::{Path, PathBuf};

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A2: wire messages become core types in `convert/`, and records of the log in `server/wal/record.rs`.
#[test]
fn conversion_alone_names_both_wire_and_core_types() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let code = |path: &PathBuf| -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().filter(|line| !line.trim_start().starts_with("//")).map(Into::into).collect()
    };
    let names = |path: &PathBuf, what: &str| code(path).iter().any(|line| line.contains(what));
    let both: Vec<&PathBuf> = files
        .iter()
        .filter(|path| names(path, "crate::proto") && names(path, "rallypoint_core"))
        .collect();
    assert!(both.len() > 3, "the search finds nothing: {both:?}");
    for file in both {
        let converts = file.parent().is_some_and(|folder| folder.ends_with("src/convert"))
            || file.ends_with("src/server/wal/record.rs");
        assert!(converts, "{file:?}");
    }
}

/// Every line of code of the crates' sources, with its file; comments and tests left out.
fn lines_of_code() -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    sources(&crates.join("rallypoint/src"), &mut files);
    sources(&crates.join("core/src"), &mut files);
    sources(&crates.join("py/src"), &mut files);
    let mut lines = Vec::new();
    for file in files.into_iter().filter(|file| !file.ends_with("tests.rs")) {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            if line.starts_with("#[cfg(test)]") {
                break;
            }
            if !line.trim_start().starts_with("//") {
                lines.push((file.clone(), line.to_owned()));
            }
        }
    }
    lines
}

/// The command line depends on the launcher, never the reverse: what parses words makes a `launch::job::JobSpec`.
#[test]
fn the_launcher_does_not_name_the_command_line() {
    let launcher = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/launch");
    let mut files = Vec::new();
    sources(&launcher, &mut files);
    assert!(files.len() > 20, "the search finds nothing: {files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let names = ["crate::cli::", "clap"].iter().any(|word| line.contains(word));
            assert!(!names, "{file:?}: {line}");
        }
    }
}

/// A3: where something lies is decided in one place.
#[test]
fn keys_are_built_in_one_place() {
    // Of a run's keys, and of a store's.
    let signs = ["rdzv/", "/torch", "torchelastic/", "run_{", "b\"=\"", "b\">\"", "b\"+\""];
    let builds: Vec<(PathBuf, String)> = lines_of_code()
        .into_iter()
        .filter(|(_, line)| signs.iter().any(|sign| line.contains(sign)))
        .collect();
    assert!(builds.len() > 10, "the search finds nothing: {builds:?}");
    for (file, line) in builds {
        let place = file.with_extension("").to_string_lossy().into_owned();
        assert!(place.contains("core/src/rendezvous/keys"), "{file:?}: {line}");
    }
}

/// Users filter the log by target, so a record must not change its target when its code moves.
#[test]
fn log_records_name_their_target() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for one in ["rallypoint/src", "core/src", "py/src"] {
        sources(&crates.join(one), &mut files);
    }
    let mut records = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for level in ["error", "warn", "info", "debug", "trace"] {
            for record in text.split(&format!("tracing::{level}!(")).skip(1) {
                records += 1;
                let start: String = record.chars().take(60).collect();
                assert!(record.trim_start().starts_with("target: "), "{file:?}: {start}");
            }
        }
    }
    assert!(records > 100, "the search finds nothing: {records}");
}

/// The loggers that the plugin shows at level INFO are targets of the library, or its own.
#[test]
fn the_plugin_shows_loggers_that_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let plugin = crates.join("py/python/rallypoint/_torch_handler.py");
    let plugin = std::fs::read_to_string(plugin).unwrap();
    let (_, names) = plugin.split_once("for name in (").unwrap();
    let (names, _) = names.split_once(')').unwrap();
    let names: Vec<&str> = names.split(", ").map(|name| name.trim_matches('"')).collect();
    assert!(names.contains(&"waiting"), "{names:?}");
    for name in names.into_iter().filter(|name| *name != "torchrun") {
        let target = format!("rallypoint::{name}");
        assert!(rallypoint::log_target::ALL.contains(&target.as_str()), "{name}");
    }
}

/// A5: a time of day means something else on another host, so the code of what nodes share reads none. What documents
/// hold for people to read is a `DisplayTime`, which has no order.
#[test]
fn nodes_share_no_time_of_day() {
    for (file, line) in lines_of_code() {
        let path = file.to_string_lossy().into_owned();
        let shared = path.contains("/core/src/") || path.contains("/rendezvous/");
        let tells_time = ["SystemTime", "UNIX_EPOCH", "chrono", "ClockId::Realtime"];
        let told = tells_time.iter().any(|sign| line.contains(sign));
        assert!(!(shared && told), "{path}: {line}");
    }
}
