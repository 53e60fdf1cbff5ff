//! `rallypoint bench`: that it measures, not what.

use std::process::Command;

use crate::support::process::own_temporary_files;

#[test]
fn a_store_is_measured() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_rallypoint"));
    bench.args(["bench", "store", "--calls", "2", "--json"]);
    let output = own_temporary_files(&mut bench).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<serde_json::Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    let names: Vec<&str> = rows.iter().filter_map(|row| row["what"].as_str()).collect();
    assert_eq!(
        names,
        [
            "set",
            "get, 10 keys",
            "get, 1000 keys",
            "get, set by another",
            "add, 1 at once",
            "add, 32 at once",
            "add, 128 at once"
        ]
    );
    assert!(rows.iter().all(|row| row["median_us"].as_f64() > Some(0.0)), "{rows:?}");
}
