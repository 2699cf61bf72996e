//! The promises: each stands above the test that shows it, and `docs/promises.md` lists them.
//!
//! The page's order, headings, commands and further tests are written by hand. `.ci/generate` takes a promise's text
//! from its test, finds tests that have moved, and adds a new promise after the last one of the same file or folder.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use tests::{
    made::check_part,
    tree::{read, root, sources},
};

const PAGE: &str = "docs/promises.md";

pub struct NamedTest {
    pub name: String,
    /// The promises in its documentation, `/// Promise: …`. Each is a paragraph.
    promises: Vec<String>,
}

/// Returns the tests of a source file.
pub fn tests_of(source: &str) -> Vec<NamedTest> {
    let mut tests = Vec::new();
    let mut is_test = false;
    let mut doc = Vec::new();
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((name, _)) =
            line.trim_start_matches("async ").strip_prefix("fn ").and_then(|line| line.split_once('('))
        {
            if is_test {
                let paragraphs = doc.split(|line| line.is_empty()).map(|lines| lines.join(" "));
                let promises = paragraphs.filter_map(|text| Some(text.strip_prefix("Promise: ")?.to_owned()));
                let promises = promises.map(|text| text.trim_end_matches('.').to_owned()).collect();
                tests.push(NamedTest { name: name.to_owned(), promises });
            }
            (is_test, doc) = (false, Vec::new());
        } else if line.is_empty() || line.ends_with(['{', '}']) {
            (is_test, doc) = (false, Vec::new());
        }
    }
    tests
}

/// All tests of the repository, each with its file.
struct TestList(Vec<(PathBuf, NamedTest)>);

impl TestList {
    fn read() -> Self {
        let files = sources(root()).into_iter();
        Self(files.flat_map(|file| tests_of(&read(&file)).into_iter().map(move |test| (file.clone(), test))).collect())
    }

    /// Returns the tests of that name in the file, or below the folder.
    fn called(&self, path: &str, name: &str) -> Vec<&(PathBuf, NamedTest)> {
        let path = root().join(path);
        self.0.iter().filter(|(file, test)| test.name == name && file.starts_with(&path)).collect()
    }

    /// Returns how the page names a test: by its file, or by `src` for a unit test.
    fn path_of(file: &Path) -> String {
        let path = file.strip_prefix(root()).expect("below it").to_str().expect("a path in UTF-8");
        path.split_once("/src/").map_or(path.to_owned(), |(package, _)| format!("{package}/src"))
    }

    /// Returns the reference to a test of the page, with its new path if the test has moved.
    fn current(&self, quoted: &str) -> String {
        let Some((path, name)) = quoted.split_once("::") else { return quoted.to_owned() };
        let [(file, _)] = self.called("", name)[..] else { return quoted.to_owned() };
        if file.starts_with(root().join(path)) { quoted.to_owned() } else { format!("{}::{name}", Self::path_of(file)) }
    }

    fn objection(&self, shown_by: &str) -> Option<String> {
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
        if !root().join(path).exists() {
            return Some("there is no such path".to_owned());
        }
        match self.called(path, name).len() {
            1 => None,
            found => Some(format!("{found} tests of that name")),
        }
    }
}

/// Returns the references in a line of the page that shows a promise.
fn quoted(shown_by: &str) -> impl Iterator<Item = &str> {
    shown_by.split('`').skip(1).step_by(2)
}

/// Returns the page with the promises and paths of today's tests.
fn made(page: &str, tests: &TestList) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut open: BTreeSet<&str> = tests.0.iter().flat_map(|(_, test)| &test.promises).map(String::as_str).collect();
    let on_page: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect();
    let mut old = page.lines();
    while let Some(line) = old.next() {
        let Some(text) = line.strip_prefix("- ").and_then(|text| text.strip_suffix(':')) else {
            lines.push(line.to_owned());
            continue;
        };
        let shown_by = old.next().expect("what shows it");
        let parts = shown_by.split('`').enumerate();
        let parts = parts.map(|(at, part)| if at % 2 == 1 { tests.current(part) } else { part.to_owned() });
        let shown_by = parts.collect::<Vec<_>>().join("`");
        let first = quoted(&shown_by).filter_map(|quoted| quoted.split_once("::")).next();
        let text = match first.map(|(path, name)| tests.called(path, name)) {
            None => text.to_owned(),
            Some(found) => {
                let mut all = found.iter().flat_map(|(_, test)| &test.promises);
                let is_new = |promise: &&String| !on_page.contains(&format!("{promise}:"));
                match all.clone().find(|promise| *promise == text).or_else(|| all.find(is_new)) {
                    Some(promise) => promise.clone(),
                    None => continue,
                }
            }
        };
        open.remove(text.as_str());
        lines.extend([format!("- {text}:"), shown_by]);
    }
    for (file, test) in &tests.0 {
        for promise in test.promises.iter().filter(|promise| open.contains(promise.as_str())) {
            let path = TestList::path_of(file);
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let last = |part: &str| lines.iter().rposition(|line| line.starts_with("  ") && line.contains(part));
            let at = last(&path).or_else(|| last(folder)).map_or(lines.len(), |at| at + 1);
            lines.splice(at..at, [format!("- {promise}:"), format!("  `{path}::{}`", test.name)]);
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn promises_page_follows_the_tests() {
    check_part(PAGE, "", "", &made(&read(PAGE), &TestList::read()));
}

#[test]
fn renamed_moved_and_new_promises_reach_the_page() {
    let source = "/// Promise: a kept\n/// line.\n///\n/// Promise: another.\n#[test]\nfn shown() {}\n";
    let tests =
        TestList(tests_of(source).into_iter().map(|test| (root().join("tests/end_to_end/a.rs"), test)).collect());
    let page = "# Promises\n\n- a kept line:\n  `tests/end_to_end/b.rs::shown`. Not shown: more\n- gone:\n  `tests/c.rs::gone`\n";
    let kept = "# Promises\n\n- a kept line:\n  `tests/end_to_end/a.rs::shown`. Not shown: more\n";
    assert_eq!(made(page, &tests), format!("{kept}- another:\n  `tests/end_to_end/a.rs::shown`\n"));
    assert_eq!(made(&page.replace("a kept line", "worded differently"), &tests), made(page, &tests));
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let document = read(PAGE);
    let tests = TestList::read();
    let lines: Vec<&str> = document.lines().collect();
    let mut named = 0;
    for promise in lines.windows(2).filter(|pair| pair[0].starts_with("- ")) {
        let row = promise[0];
        let shown_by = promise[1];
        assert!(shown_by.starts_with("  "), "nothing is said to show: {row}");
        let quoted: Vec<&str> = quoted(shown_by).collect();
        assert!(!quoted.is_empty() || shown_by.contains("not shown"), "{row}");
        for quoted in quoted {
            if let Some(objection) = tests.objection(quoted) {
                panic!("{PAGE}: `{quoted}`: {objection}\n{row}");
            }
            named += 1;
        }
    }
    assert!(named > 100, "the table was read: {named}");
}

#[test]
fn promise_naming_no_existing_test_is_reported() {
    let tests = TestList::read();
    let here = |name: &str| tests.objection(&format!("tests/end_to_end/promises.rs::{name}"));
    assert_eq!(here("promise_naming_no_existing_test_is_reported"), None);
    assert_eq!(tests.objection("tests/end_to_end::promise_naming_no_existing_test_is_reported"), None);
    assert_eq!(tests.objection(".ci/ledger --check"), None);
    assert_eq!(here("a_name_that"), Some("0 tests of that name".into()), "a part of one");
    assert_eq!(here("quoted"), Some("0 tests of that name".into()), "no test");
    for wrong in ["tests/end_to_end/nowhere.rs::quoted", ".ci/nothing", "every promise"] {
        assert!(tests.objection(wrong).is_some(), "{wrong}");
    }
}
