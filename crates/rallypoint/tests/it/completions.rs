//! `rallypoint completions` and `rallypoint man`: what a package installs beside the command.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::process::Directory;

fn rallypoint(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rallypoint")).args(words).output().unwrap()
}

fn printed(words: &[&str]) -> String {
    let output = rallypoint(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that `rallypoint --help` lists.
fn commands() -> Vec<String> {
    let help = printed(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

/// The long options that the help of a command lists.
fn options(command: &str) -> BTreeSet<String> {
    let help = printed(&[command, "--help"]);
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let words = lines.flat_map(str::split_whitespace).filter(|word| word.starts_with("--"));
    words.map(|word| word.trim_end_matches(['.', ',', '[', '=']).to_owned()).collect()
}

#[test]
fn every_shell_learns_every_command() {
    let commands = commands();
    assert!(commands.contains(&"run".to_owned()), "{commands:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]);
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell} does not know {command}");
        }
    }
    let refused = rallypoint(&["completions", "csh"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("bash"), "{refused:?}");
}

/// What a user of bash gets for these words when pressing the tab key after the last.
fn completed(words: &[&str]) -> String {
    let (last, before) = words.split_last().unwrap();
    let script = r#"
        source <("$0" completions bash)
        last=$1 before=$2
        shift 2
        COMP_WORDS=(rallypoint "$@")
        COMP_CWORD=$#
        _rallypoint rallypoint "$last" "$before"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut bash = Command::new("bash");
    bash.args(["-euc", script, env!("CARGO_BIN_EXE_rallypoint"), last]);
    bash.arg(before.last().unwrap_or(&"rallypoint")).args(words);
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_commands_options_and_values() {
    assert_eq!(completed(&["exp"]), "explain\n");
    assert_eq!(completed(&["run", "--rdzv-endp"]), "--rdzv-endpoint\n");
    assert_eq!(completed(&["--log-format", "j"]), "json\n");
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = directory.read_dir().unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn there_is_a_page_of_the_manual_for_every_command_with_all_of_its_options() {
    let directory = Directory::new();
    let pages = directory.path().join("share/man/man1");
    printed(&["man", pages.to_str().unwrap()]);
    let names = names(&pages);
    assert!(names.contains("rallypoint.1"), "{names:?}");
    for command in commands().iter().filter(|command| *command != "help") {
        let name = format!("rallypoint-{command}.1");
        assert!(names.contains(&name), "{name} is not among {names:?}");
        // roff writes a hyphen as `\-`.
        let page = std::fs::read_to_string(pages.join(&name)).unwrap().replace("\\-", "-");
        for option in options(command) {
            assert!(page.contains(&option), "{name} does not name {option}");
        }
    }
    let run = options("run");
    assert!(run.contains("--rdzv-endpoint") && run.len() > 20, "{run:?}");
}

/// The pages are those of the program, not of the host that writes them.
#[test]
fn the_manual_does_not_depend_on_the_environment() {
    let directory = Directory::new();
    let written = |name: &str, environment: &[(&str, &str)]| {
        let pages = directory.path().join(name);
        let mut man = Command::new(env!("CARGO_BIN_EXE_rallypoint"));
        assert!(
            man.arg("man")
                .arg(&pages)
                .envs(environment.iter().copied())
                .status()
                .unwrap()
                .success()
        );
        std::fs::read_to_string(pages.join("rallypoint-run.1")).unwrap()
    };
    let plain = written("plain", &[]);
    let told = written("told", &[("PET_NNODES", "7:9"), ("COLUMNS", "40")]);
    assert_eq!(plain, told);
}

/// Sentences are filled to the width of the terminal; an example is a line that can be copied.
#[test]
fn an_example_in_the_manual_stays_as_it_is() {
    let directory = Directory::new();
    printed(&["man", directory.path().to_str().unwrap()]);
    let page = std::fs::read_to_string(directory.path().join("rallypoint-replay.1")).unwrap();
    let page = page.replace("\\-", "-");
    let lines: Vec<&str> = page.lines().collect();
    let example = lines.iter().position(|line| *line == "  rallypoint replay events.jsonl");
    let example = example.unwrap_or_else(|| panic!("{page}"));
    assert_eq!(lines[example - 1], ".nf", "{page}");
    assert!(lines[example..].contains(&".fi"), "{page}");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let directory = Directory::new();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = rallypoint(&["man", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(file.to_str().unwrap()) && said.contains("directory"), "{said}");
}
