//! Pages and scripts that name the templates' parameters, outputs and rights.

use std::collections::BTreeSet;

use crate::{core, document::Template, file};

/// The capitalised words before `=` in a text's code.
fn assigned(text: &str) -> BTreeSet<&str> {
    let words = text.split(|sign: char| sign.is_whitespace() || "\"'`(".contains(sign));
    let names = words.filter_map(|word| Some(word.split_once('=')?.0));
    names.filter(|name| name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric)).collect()
}

/// CamelCase names in these texts that are not parameters.
const OTHERS: &[&str] = &["Enabled", "PointInTimeRecoveryEnabled", "Stacks"];

#[test]
fn pages_and_scripts_name_only_parameters_that_exist() {
    let templates = ["template.yaml", "templates/observability.yaml", "templates/domain.yaml"].map(Template::read);
    let parameters: BTreeSet<String> = templates.iter().flat_map(|template| template.defaults().into_keys()).collect();
    for path in ["docs/deploying.md", "docs/data.md", "docs/operating.md", "docs/runbooks/restore.md", ".ci/on-aws"] {
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

/// SAM refuses `NAME=` without a value, and so may a parameter's pattern.
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

#[test]
fn deploying_page_lists_every_permission_to_deploy() {
    let page = file("docs/deploying.md");
    for action in ["kms:CreateGrant", "kms:DescribeKey", "iam:PassRole", "lambda:PutFunctionRecursionConfig"] {
        assert!(page.contains(action), "{action}");
    }
}

#[test]
fn sam_configuration_pins_no_parameter() {
    let config = file("samconfig.toml");
    assert!(!config.contains("parameter_overrides"), "SAM keeps the previous values");
    let set =
        |key: &str| config.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(" = ")).collect::<Vec<_>>();
    let names: BTreeSet<_> = set("stack_name").into_iter().collect();
    assert_eq!((names.len(), set("stack_name").len()), (3, 3), "two templates under one name would delete a stack");
    assert_eq!(set("on_failure"), ["\"DELETE\""; 3], "a failed first deploy leaves nothing in the next one's way");
    assert_eq!(set("template_file").len(), 2, "the core's is what `sam build` made");
    set("template_file").into_iter().for_each(|template| drop(Template::read(template.trim_matches('"'))));
}

#[test]
fn terraform_follows_the_template_and_keeps_old_code() {
    let text = file("templates/terraform/main.tf");
    assert!(text.contains("template_body"), "no bucket's URL, which would be the partition's");
    assert!(text.contains("filesha256"), "other code is another place");
    assert!(text.contains("create_before_destroy = true"), "a rollback needs the old zips");
}

#[test]
fn pages_name_regions_without_function_urls() {
    let data = file("docs/data.md");
    assert!(!data.contains("as long again"), "SQS counts a dead letter's retention from the first send");
    let (page, command) = (file("docs/deploying.md"), file("cli/src/commands/setup/doctor/stack.rs"));
    for region in ["ap-south-2", "ap-southeast-4", "ca-west-1", "eu-south-2", "eu-central-2", "il-central-1", "us-gov"]
    {
        assert!(page.contains(region) && command.contains(region), "{region} has no Function URLs");
    }
}

#[test]
fn page_names_every_asset_of_a_release() {
    let (workflow, page) = (file(".github/workflows/release.yml"), file("docs/without-rust.md"));
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

#[test]
fn deploying_page_has_at_most_2500_words() {
    let words =
        file("docs/deploying.md").split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    assert!(words <= 2500, "{words}");
}
