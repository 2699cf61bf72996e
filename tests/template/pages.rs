//! Pages and scripts that name parameters, outputs or permissions of the templates.

use std::collections::BTreeSet;

use crate::{TEMPLATES, core, document::SamTemplate, file};

/// Returns the capitalised words before `=` in a text's code.
fn assigned(text: &str) -> BTreeSet<&str> {
    let words = text.split(|sign: char| sign.is_whitespace() || "\"'`(".contains(sign));
    let names = words.filter_map(|word| Some(word.split_once('=')?.0));
    names.filter(|name| name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric)).collect()
}

/// CamelCase names in these texts that are not parameters.
const OTHERS: &[&str] = &["Enabled", "PointInTimeRecoveryEnabled", "Stacks"];

const PAGES_AND_SCRIPTS: [&str; 8] = [
    ".ci/on-aws",
    "docs/company.md",
    "docs/data.md",
    "docs/deploying.md",
    "docs/operating.md",
    "docs/queues.md",
    "docs/runbooks/restore.md",
    "templates/github/webhooks.yml",
];

#[test]
fn pages_and_scripts_name_only_existing_parameters() {
    let templates = TEMPLATES.map(SamTemplate::read);
    let parameters: BTreeSet<String> = templates.iter().flat_map(|template| template.defaults().into_keys()).collect();
    for path in PAGES_AND_SCRIPTS {
        let text = file(path);
        for name in assigned(&text).into_iter().filter(|name| !OTHERS.contains(name) && name.len() > 3) {
            let is_environment = name.chars().all(|sign| sign.is_uppercase() || sign.is_numeric());
            assert!(is_environment || parameters.contains(name), "{path} gives {name}, which is no parameter");
        }
    }
    let page = file("docs/deploying.md");
    for parameter in core().defaults().keys() {
        assert!(page.contains(&format!("`{parameter}`")), "docs/deploying.md does not explain {parameter}");
    }
}

/// SAM refuses `NAME=` without a value. A parameter's pattern may refuse it too.
#[test]
fn no_script_passes_an_empty_parameter() {
    let parameters = core().defaults();
    for path in [".ci/on-aws", "docs/deploying.md", "docs/runbooks/restore.md"] {
        let text = file(path);
        let is_empty = |word: &&str| word.strip_suffix('=').is_some_and(|name| parameters.contains_key(name));
        let words = text.split(|sign: char| sign.is_whitespace() || "\"'`".contains(sign));
        assert_eq!(words.filter(is_empty).collect::<Vec<_>>(), [""; 0], "{path}");
    }
}

/// Returns the words of a text that name a region.
fn regions(text: &str) -> BTreeSet<&str> {
    let words = text.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '-'));
    let is_region = |word: &&str| {
        let parts: Vec<&str> = word.split('-').collect();
        parts.len() == 3 && parts[0].len() == 2 && parts[2].parse::<u8>().is_ok()
    };
    words.filter(is_region).collect()
}

/// `.ci/parameters` saves the regions whose registry has no type of Function URLs.
///
/// Promise: the page names every region without Function URLs.
#[test]
fn deploying_page_and_doctor_list_same_regions() {
    let saved: Vec<String> = serde_json::from_str(include_str!("regions.json")).expect("it is JSON");
    let is_listed = |region: &&str| !region.starts_with("us-gov-") && !region.starts_with("cn-");
    let listed: BTreeSet<&str> = saved.iter().map(String::as_str).filter(is_listed).collect();
    assert!(saved.iter().any(|region| region.starts_with("us-gov-")), "GovCloud has none either");
    let page = file("docs/deploying.md");
    let command = file("cli/src/commands/setup/doctor/stack.rs");
    let (_, list) = command.split_once("const WITHOUT_FUNCTION_URLS").expect("doctor has a list");
    let (list, rest) = list.split_once("];").expect("the list ends");
    let said =
        page.lines().find(|line| line.starts_with("**Regions without Function URLs**")).expect("the page has a list");
    assert_eq!(regions(said), listed, "docs/deploying.md");
    assert_eq!(regions(list), listed, "doctor");
    assert!(said.contains("`us-gov-…`") && rest.contains("starts_with(\"us-gov-\")"), "GovCloud has none either");
    assert!(
        said.contains("`FrontDoor=http-api`") && rest.contains("deploy with FrontDoor=http-api"),
        "and where to go"
    );
}

/// SQS counts retention from the first send, and continues to count in the dead-letter queue.
#[test]
fn data_page_states_the_queues_retention() {
    let deployed = core().deployed(&[]);
    let days = deployed.of_type("AWS::SQS::Queue").into_values().map(|queue| {
        let seconds = queue["MessageRetentionPeriod"].as_str().expect("a text").parse::<u32>().expect("a number");
        seconds / 86_400
    });
    let days: BTreeSet<u32> = days.collect();
    let page = file("docs/data.md");
    let row = page.lines().find(|line| line.starts_with("| queues |")).expect("the page has a row of queues");
    let kept = row.trim_end_matches(" |").rsplit(" | ").next().expect("a cell");
    let said: BTreeSet<u32> = kept.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert_eq!((days.len(), &said), (1, &days), "{kept}");
    assert!(kept.contains("dead letters included"), "{kept}");
}

#[test]
fn without_rust_page_names_every_release_asset() {
    let workflow = file(".github/workflows/release.yml");
    let page = file("docs/without-rust.md");
    assert!(workflow.contains("run: .ci/dist\n") && file("justfile").contains("dist:\n    .ci/dist\n"), "one folder");
    for (made, named) in [
        ("webhook-serializer-$GITHUB_REF_NAME.tar.gz", "`webhook-serializer-VERSION.tar.gz`"),
        ("serializer-$GITHUB_REF_NAME-${{ matrix.target }}", "`serializer-VERSION-TARGET.tar.gz`"),
        ("> SHA256SUMS", "`SHA256SUMS`"),
    ] {
        assert!(workflow.contains(made) && page.contains(named), "{named}");
    }
    let targets = workflow.lines().filter_map(|line| line.split_once("target: ")?.1.split(',').next());
    let targets: Vec<_> = targets.collect();
    assert_eq!(targets.len(), 3, "{targets:?}");
    targets.iter().for_each(|target| assert!(page.contains(&format!("`{target}`")), "{target}"));
}

/// The tag of an action can be moved to other code; its commit cannot.
#[test]
fn workflows_name_each_action_by_its_commit() {
    for path in [
        ".github/workflows/ci.yml",
        ".github/workflows/release.yml",
        "templates/github/deploy-webhooks.yml",
        "templates/github/webhooks.yml",
    ] {
        let workflow = file(path);
        let used = workflow.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix("uses: "));
        for action in used.filter(|action| !action.starts_with("./")) {
            let (name, version) = action.split_once(" # v").unwrap_or((action, ""));
            let commit = name.split_once('@').map_or("", |(_, commit)| commit);
            let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_commit && !version.is_empty(), "{path}: {action}");
        }
        // The default of a container is sh, which has no `*.{tgz,whl}`.
        let has_bash = workflow.contains("defaults:\n  run:\n    shell: bash\n");
        assert!(has_bash || !workflow.contains("container: ${{"), "{path}");
    }
}

#[test]
fn deploying_page_has_at_most_2300_words() {
    let words =
        file("docs/deploying.md").split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    assert!(words <= 2300, "{words}");
}
