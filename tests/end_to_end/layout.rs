//! Files stay short, and the documents name tests that exist.

use std::{fs, path::PathBuf};

use tests::tree::{read, root, sources};

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

fn test_names(source: &str) -> Vec<&str> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_test = |above: &[&str]| {
        let attributes = above.iter().rev().take_while(|line| !line.is_empty() && !line.ends_with(['{', '}']));
        attributes.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    };
    let tests = (0..lines.len()).filter(|at| is_test(&lines[..*at]));
    tests
        .filter_map(|at| Some(lines[at].trim_start_matches("async ").strip_prefix("fn ")?.split_once('(')?.0))
        .collect()
}

fn tests_called(name: &str, source: &str) -> usize {
    test_names(source).into_iter().filter(|test| *test == name).count()
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
            paths.extend(test_names(&read(&file)).iter().map(|name| format!("{module}::{name}")));
        }
    }
    let is_unmatched = |filter: &&&str| !paths.iter().any(|path| path.contains(**filter));
    filters.iter().filter(is_unmatched).map(|filter| (*filter).to_owned()).collect()
}

/// A command that runs no test would pass with the mistake in the code.
#[test]
fn every_ledger_command_matches_an_existing_test() {
    let page = read(&root().join("tests/README.md"));
    let (_, ledger) = page.split_once("\n## Ledger\n").expect("it has a ledger");
    let entries = ledger.split("\n## ").next().expect("the first of any").lines();
    let entries = entries.filter(|line| line.starts_with("- "));
    let mut commands: Vec<String> =
        entries.flat_map(|entry| entry.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    for patch in fs::read_dir(root().join("tests/ledger")).expect("it can be listed") {
        let patch = read(&patch.expect("it can be listed").path());
        commands.push(patch.strip_prefix("command: ").and_then(|rest| rest.lines().next()).expect("one").to_owned());
    }
    assert!(commands.len() > 60, "the ledger was read: {}", commands.len());
    for command in commands {
        assert_eq!(unmatched(&command), [""; 0], "`{command}` in tests/README.md or tests/ledger");
    }
}

fn objection(shown_by: &str) -> Option<String> {
    let command = shown_by.split(' ').next().expect("the first of any");
    if command.starts_with(".ci/") {
        return (!root().join(command).is_file()).then(|| "there is no such command".to_owned());
    }
    if command == "cargo" {
        return None;
    }
    let Some((path, name)) = shown_by.split_once("::") else {
        return Some("neither a test nor a command".to_owned());
    };
    let path = root().join(path);
    if !path.exists() {
        return Some("there is no such path".to_owned());
    }
    match sources(&path).iter().map(|file| tests_called(name, &read(file))).sum::<usize>() {
        1 => None,
        found => Some(format!("{found} tests of that name")),
    }
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let document = read("docs/promises.md");
    let lines: Vec<&str> = document.lines().collect();
    let mut named = 0;
    for promise in lines.windows(2).filter(|pair| pair[0].starts_with("- ")) {
        let row = promise[0];
        let shown_by = promise[1];
        assert!(shown_by.starts_with("  "), "nothing is said to show: {row}");
        let quoted: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        assert!(!quoted.is_empty() || shown_by.contains("not shown"), "{row}");
        for quoted in quoted {
            if let Some(objection) = objection(quoted) {
                panic!("docs/promises.md: `{quoted}`: {objection}\n{row}");
            }
            named += 1;
        }
    }
    assert!(named > 100, "the table was read: {named}");
}

#[test]
fn promise_naming_no_existing_test_is_reported() {
    let here = |name: &str| objection(&format!("tests/end_to_end/layout.rs::{name}"));
    assert_eq!(here("promise_naming_no_existing_test_is_reported"), None);
    assert_eq!(objection("tests/end_to_end::promise_naming_no_existing_test_is_reported"), None);
    assert_eq!(objection(".ci/ledger --check"), None);
    assert_eq!(here("a_name_that"), Some("0 tests of that name".into()), "a part of one");
    assert_eq!(here("objection"), Some("0 tests of that name".into()), "no test");
    for wrong in ["tests/end_to_end/nowhere.rs::objection", ".ci/nothing", "every promise"] {
        assert!(objection(wrong).is_some(), "{wrong}");
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
    let spelled = |text: &str| ["\"d#", "\"p#", "\"r#", "\"b#"].iter().any(|prefix| text.contains(prefix));
    let files = sources(&root().join("shared"));
    let files: Vec<_> = files.into_iter().filter(|file| spelled(&read(file))).collect();
    assert_eq!(files, [root().join("shared/protocol/src/keys.rs")]);
}
