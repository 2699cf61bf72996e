//! Files stay short, the ledger names tests that exist, and scripts are portable.

use std::{fs, path::PathBuf};

use tests::tree::{read, root, sources};

use crate::promises::tests_of;

const LONGEST: usize = 700;

#[test]
fn no_file_is_longer_than_seven_hundred_lines() {
    let files = sources(root());
    assert!(files.contains(&root().join("tests/end_to_end/layout.rs")), "this one is looked at");
    let long: Vec<String> = files
        .iter()
        .map(|file| (read(file).lines().count(), file))
        .filter(|(lines, _)| *lines > LONGEST)
        .map(|(lines, file)| format!("{}: {lines}", file.display()))
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn every_file_begins_with_a_header() {
    let has_header = |file: &PathBuf| {
        read(file).lines().find(|line| !line.starts_with("#!")).is_some_and(|line| line.starts_with("//!"))
    };
    let without: Vec<PathBuf> = sources(root()).into_iter().filter(|file| !has_header(file)).collect();
    assert!(without.is_empty(), "{without:?}");
}

/// Returns the filters of a command in the ledger that match no test. A filter without a suite is one for
/// `end_to_end`.
fn unmatched(command: &str) -> Vec<String> {
    let words = command.split_whitespace().filter(|word| !["cargo", "test", "--locked", "--"].contains(word));
    let words: Vec<&str> = words.collect();
    let (folder, filters) = match words.as_slice() {
        ["-p", "tests", "--test", suite, filters @ ..] | ["--test", suite, filters @ ..] => {
            (format!("tests/{suite}"), filters)
        }
        ["-p", "webhook-serializer", "--lib", filters @ ..] | ["lib", filters @ ..] => ("shared/src".into(), filters),
        ["protocol", filters @ ..] => ("shared/protocol/src".into(), filters),
        ["-p", "model", filters @ ..] => ("tests/model".into(), filters),
        filters @ [first, ..] if first.contains("::") => ("tests/end_to_end".into(), filters),
        _ => return Vec::new(),
    };
    let mut paths = Vec::new();
    if !filters.is_empty() {
        let folder = root().join(folder);
        for file in sources(&folder) {
            let module = file.strip_prefix(&folder).expect("below it").with_extension("");
            let module = module.to_str().expect("a path in UTF-8").replace('/', "::");
            paths.extend(tests_of(&read(&file)).iter().map(|test| format!("{module}::{}", test.name)));
        }
    }
    let is_unmatched = |filter: &&&str| !paths.iter().any(|path| path.contains(**filter));
    filters.iter().filter(is_unmatched).map(|filter| (*filter).to_owned()).collect()
}

/// A command that runs no test would pass with the mistake in the code.
#[test]
fn every_ledger_command_matches_an_existing_test() {
    let page = read(root().join("tests/README.md"));
    let (_, ledger) = page.split_once("\n## Ledger\n").expect("it has a ledger");
    let entries = ledger.split("\n## ").next().expect("the first of any").lines();
    let entries = entries.filter(|line| line.starts_with("- "));
    let mut commands: Vec<String> =
        entries.flat_map(|entry| entry.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    for patch in fs::read_dir(root().join("tests/ledger")).expect("it can be listed") {
        let patch = read(patch.expect("it can be listed").path());
        commands.push(patch.strip_prefix("command: ").and_then(|rest| rest.lines().next()).expect("one").to_owned());
    }
    assert!(commands.len() > 60, "the ledger was read: {}", commands.len());
    for command in commands {
        assert_eq!(unmatched(&command), [""; 0], "`{command}` in tests/README.md or tests/ledger");
    }
}

/// Commands that work only with GNU tools, or with a newer bash than that of macOS.
const ONLY_ELSEWHERE: [&str; 16] = [
    "sed -i",
    "sed -r",
    "stat -c",
    "grep -P",
    "readlink -f",
    "date -d",
    "sort -V",
    "xargs",
    "cp -t",
    "--parents",
    "mapfile",
    "readarray",
    "declare -A",
    "nproc",
    "realpath",
    "apt-get",
];

/// Promise: scripts run with macOS's tools.
#[test]
fn scripts_use_only_portable_commands() {
    let scripts = fs::read_dir(root().join(".ci")).expect("it can be listed").map(|entry| entry.unwrap().path());
    let mut looked_at = 0;
    for script in scripts.filter(|path| path.is_file() && !path.ends_with("debian")) {
        looked_at += 1;
        let is_done = |line: &&str| !line.trim_start().starts_with('#') && !line.contains("echo \"");
        for line in read(&script).lines().filter(is_done) {
            for word in ONLY_ELSEWHERE {
                assert!(!line.contains(word), "{}: `{word}` in: {line}", script.display());
            }
        }
    }
    assert!(looked_at >= 20, "the scripts were read: {looked_at}");
}

#[test]
fn row_key_prefixes_are_defined_in_one_file() {
    let spelled = |text: &str| ["\"d#", "\"p#", "\"r#", "\"s#", "\"b#"].iter().any(|prefix| text.contains(prefix));
    let files = sources(&root().join("shared"));
    let files: Vec<_> = files.into_iter().filter(|file| spelled(&read(file))).collect();
    assert_eq!(files, [root().join("shared/protocol/src/keys.rs")]);
}
