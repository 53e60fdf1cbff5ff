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

/// A2: what a message means is decided in one place.
#[test]
fn one_file_names_both_wire_and_core_types() {
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
    assert_eq!(both.len(), 1, "{both:?}");
    assert!(both[0].ends_with("convert.rs"));
}
