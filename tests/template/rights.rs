//! The rights that the pages list suffice for the `aws` commands that they show.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::Value;
use tests::tree::root;

use crate::{document::texts, file};

/// Returns all files of a folder of the repository that end in `end`, except in its subfolders.
fn files(folder: &str, end: &str) -> Vec<String> {
    let root = root().join(folder);
    let all = fs::read_dir(&root).expect("a folder").map(|entry| entry.expect("an entry").path());
    let named = |path: PathBuf| format!("{folder}/{}", path.file_name().expect("a name").to_string_lossy());
    all.filter(|path| path.to_string_lossy().ends_with(end)).map(named).collect()
}

/// Returns the actions that a text lists in code, as `service:Action` or, of the same service, `Action`.
fn listed(text: &str) -> BTreeSet<String> {
    let mut service = "";
    let mut found = BTreeSet::new();
    for span in text.split('`').skip(1).step_by(2) {
        let (of, name) = span.split_once(':').unwrap_or((service, span));
        let is_action = name.starts_with(|sign: char| sign.is_ascii_uppercase())
            && name.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '*');
        if is_action && of.chars().all(|sign| sign.is_ascii_lowercase() || sign == '-') {
            service = of;
            found.insert(format!("{of}:{name}"));
        }
    }
    found
}

/// Returns the actions in a page's list items that begin like this. Further sentences of an item are
/// about single commands.
fn items(page: &str, begins: &[&str]) -> BTreeSet<String> {
    let is_item = |line: &&str| begins.iter().any(|begin| line.starts_with(&format!("- {begin}")));
    let first = |line: &str| listed(line.split(". ").next().expect("split yields at least one"));
    let found: BTreeSet<String> = page.lines().filter(is_item).flat_map(first).collect();
    assert!(!found.is_empty(), "{begins:?} list nothing");
    found
}

/// Returns the rights that a person has who operates a stack, by docs/deploying.md.
fn operator() -> BTreeSet<String> {
    items(&file("docs/deploying.md"), &["for the sources:", "to operate it:", "for the runbooks:"])
}

/// Returns whether the deployer's policy grants the action on some resource.
fn is_deployers(action: &str) -> bool {
    let policy: Value = serde_json::from_str(&file("templates/deploy-policy.json")).expect("it is JSON");
    let statements = policy["Statement"].as_array().expect("a list").iter();
    let mut granted = statements.flat_map(|statement| texts(&statement["Action"]));
    granted.any(|pattern| pattern == action || pattern.strip_suffix('*').is_some_and(|start| action.starts_with(start)))
}

/// Returns the actions of a call of the AWS command line.
fn actions(service: &str, verb: &str) -> Vec<String> {
    let name: String = verb.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
    let names: &[&str] = match (service, verb) {
        ("configure" | "login" | "sso", _) | ("sts", "get-caller-identity") => &[],
        ("logs", "tail") => &["FilterLogEvents"],
        ("dynamodb", "wait") => &["DescribeTable"],
        // DynamoDB reads and writes the new table with the caller's rights.
        ("dynamodb", "restore-table-to-point-in-time" | "restore-table-from-backup") => {
            &[&name, "BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan", "UpdateItem"]
        }
        // SQS moves the messages with the caller's rights.
        ("sqs", "start-message-move-task") => {
            &[&name, "DeleteMessage", "GetQueueAttributes", "ReceiveMessage", "SendMessage"]
        }
        ("cloudformation", "deploy") => {
            &["CreateChangeSet", "DescribeChangeSet", "DescribeStacks", "ExecuteChangeSet", "GetTemplateSummary"]
        }
        _ => &[&name],
    };
    names.iter().map(|name| format!("{service}:{name}")).collect()
}

/// Returns the actions of all calls of `aws` in a text's code.
fn called(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (start, _) in text.match_indices("aws ") {
        let is_command = text[..start].ends_with(['\n', ' ', '`', '(', '"']);
        let mut words = text[start + 4..].split(|sign: char| sign.is_whitespace() || "`\")".contains(sign));
        let (Some(service), Some(verb)) = (words.next(), words.next()) else { continue };
        let is_word = |word: &str| word.len() > 2 && word.chars().all(|sign| sign.is_ascii_lowercase() || sign == '-');
        if is_command && is_word(service) && is_word(verb) {
            found.extend(actions(service, verb));
        }
    }
    found
}

/// Promise: the listed rights suffice for the commands of pages, runbooks and `doctor`.
#[test]
fn operator_has_the_rights_that_runbooks_need() {
    let operator = operator();
    let mut calls = 0;
    for page in files("docs/runbooks", ".md") {
        let text = file(&page);
        let own = text.split("\n## ").next().map(listed).unwrap_or_default();
        let called = called(&text);
        calls += called.len();
        let missing: Vec<_> =
            called.iter().filter(|action| !operator.contains(*action) && !own.contains(*action)).collect();
        assert!(missing.is_empty(), "{page}: nobody is told to grant {missing:?}");
        let deploys = text.contains("sam deploy") || text.contains("sam build");
        assert!(!deploys || text.contains("rights to deploy"), "{page}: it deploys");
    }
    assert!(calls > 30, "{calls} calls");
}

/// What `doctor` advises, and the pages about deploying, may need the deployer's rights.
#[test]
fn operator_or_deployer_may_do_what_pages_and_doctor_show() {
    let operator = operator();
    let mut calls = 0;
    let others = ["README.md", "templates/rust/README.md", "cli/src/commands/target.rs"].map(str::to_owned);
    for path in files("docs", ".md").into_iter().chain(files("cli/src/commands/setup/doctor", ".rs")).chain(others) {
        let called = called(&file(&path));
        calls += called.len();
        // An administrator makes the deployer's role.
        let is_administrators = |action: &str| path == "docs/company.md" && action.starts_with("iam:");
        let is_granted = |action: &str| operator.contains(action) || is_deployers(action) || is_administrators(action);
        let missing: Vec<_> = called.iter().filter(|action| !is_granted(action)).collect();
        assert!(missing.is_empty(), "{path}: nobody is told to grant {missing:?}");
    }
    assert!(calls > 20, "{calls} calls");
}

/// `aws dynamodb wait table-exists` gives up after 25 looks, 20 seconds apart. A restore takes longer.
#[test]
fn restore_waits_for_tables_in_a_loop() {
    for path in ["docs/runbooks/restore.md", ".ci/on-aws"] {
        let text = file(path);
        let (_, restore) = text.split_once("restore-table-to-point-in-time").expect("it restores");
        let wait = restore.lines().find(|line| line.contains("wait table-exists")).expect("it waits");
        assert!(wait.trim_start().starts_with("until aws "), "{path}: {wait}");
    }
    assert!(file("docs/runbooks/restore.md").contains("eight minutes"), "the page says when a wait ends");
}
