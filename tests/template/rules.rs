//! The rules that the stacks keep. Each has a test that fails if the rule is broken.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    core,
    document::{DeployedTemplate, SamTemplate, text},
    file,
};

/// Returns the core stack with both doors. It has every resource except the secret's and the key's.
fn with_both_doors() -> DeployedTemplate {
    core().deployed(&[("FrontDoor", "both")])
}

fn observability() -> DeployedTemplate {
    SamTemplate::read("templates/observability.yaml")
        .deployed_beside(&[("Email", "a@example.com")], &with_both_doors().outputs)
}

/// CloudFormation updates code and variables in two calls. A version published on a release would therefore
/// keep the previous release's variables.
#[test]
fn core_template_publishes_no_version_or_alias() {
    let deployed = with_both_doors();
    for (name, resource) in deployed.all() {
        let kind = text(&resource["Type"]);
        assert!(!["Alias", "Version", "DeploymentGroup"].iter().any(|end| kind.ends_with(end)), "{name} is a {kind}");
        for property in ["AutoPublishAlias", "DeploymentPreference", "ProvisionedConcurrencyConfig", "Qualifier"] {
            assert_eq!(resource["Properties"][property], Value::Null, "{name} {property}");
        }
    }
    for (path, function) in [
        ("IngestUrl Properties TargetFunctionArn", "Ingest.Arn"),
        ("IngestApiIntegration Properties IntegrationUri", "Ingest.Arn"),
        ("IngestUrlPermission Properties FunctionName", "Ingest"),
        ("IngestInvokePermission Properties FunctionName", "Ingest"),
        ("IngestApiPermission Properties FunctionName", "Ingest"),
    ] {
        assert_eq!(deployed.text(path), function, "{path}");
    }
}

/// The properties that name a resource for which CloudFormation can generate a name.
const NAMES: &[(&str, &str)] = &[
    ("AWS::ApiGatewayV2::Api", "Name"),
    ("AWS::CloudWatch::Alarm", "AlarmName"),
    ("AWS::CloudWatch::Dashboard", "DashboardName"),
    ("AWS::DynamoDB::Table", "TableName"),
    ("AWS::IAM::ManagedPolicy", "ManagedPolicyName"),
    ("AWS::IAM::Role", "RoleName"),
    ("AWS::Logs::LogGroup", "LogGroupName"),
    ("AWS::SNS::Topic", "TopicName"),
    ("AWS::SQS::Queue", "QueueName"),
    ("AWS::Serverless::Function", "FunctionName"),
];

/// Named tables make a deploy fail that has lost the parameter `Tables`. Any other name would only keep two
/// stacks from existing side by side.
#[test]
fn only_tables_and_documented_resources_have_fixed_names() {
    let core = with_both_doors();
    let observability = observability();
    let mut named = BTreeMap::new();
    for (kind, property) in NAMES {
        for (name, properties) in core.of_type(kind).into_iter().chain(observability.of_type(kind)) {
            if !properties[property].is_null() {
                named.insert(name, text(&properties[property]));
            }
        }
    }
    let stack = |rest: &str| format!("${{AWS::StackName}}{rest}");
    let logs = |function: &str| format!("/aws/lambda/{}", stack(function));
    let expected = BTreeMap::from([
        ("Dashboard", "webhook-serializer-${AWS::Region}".to_owned()),
        ("EntitiesTable", stack("-entities")),
        ("InboxTable", stack("-inbox")),
        ("IngestApi", stack("-webhooks")),
        ("IngestLogs", logs("-ingest")),
        ("SchedulerLogs", logs("-scheduler")),
        ("WorkerLogs", logs("-worker")),
    ]);
    assert_eq!(named, expected);
    // If a stack is removed, its tables keep these names. `Tables` with the stack's name finds them again.
    let found = crate::core().deployed(&[("Tables", "${AWS::StackName}")]).outputs;
    assert_eq!([&found["EntitiesTable"], &found["InboxTable"]], [&expected["EntitiesTable"], &expected["InboxTable"]]);
}

fn samconfig() -> toml::Table {
    file("samconfig.toml").parse().expect("it is TOML")
}

fn deploy_settings(environment: &str) -> toml::Table {
    samconfig()[environment]["deploy"]["parameters"].as_table().expect("a table").clone()
}

#[test]
fn first_sam_deploy_asks_only_for_confirmation() {
    for (name, parameter) in core().0["Parameters"].as_object().expect("a mapping") {
        assert!(!parameter["Default"].is_null(), "the deploy would ask for {name}");
    }
    let held = deploy_settings("default");
    let capabilities = held["capabilities"].as_str().expect("a text");
    assert_eq!(capabilities, "CAPABILITY_IAM", "SAM's transform needs no other in a change set");
    for setting in ["confirm_changeset", "resolve_s3"] {
        assert_eq!(held[setting].as_bool(), Some(true), "{setting}");
    }
    for asks in ["guided", "region", "s3_bucket"] {
        assert!(!held.contains_key(asks), "{asks}");
    }
    let page = file("docs/deploying.md");
    let steps = section(&page, "## First deploy");
    assert!(code(steps).any(|line| line == "sam build && sam deploy"), "the page deploys in another way");
    let others = ["--parameter-overrides FrontDoor=http-api", "--tags", "--s3-bucket", "--no-confirm-changeset"];
    for option in others {
        assert!(steps.contains(option), "the page does not offer {option}");
    }
    assert!(code(steps).any(|line| line.starts_with("export AWS_REGION=")), "the page chooses no region");
}

#[test]
fn sam_configuration_pins_no_parameter() {
    let config = samconfig();
    let mut stacks = BTreeSet::new();
    let global = &config["default"]["global"]["parameters"];
    for environment in ["default", "observability", "domain"] {
        let held = deploy_settings(environment);
        assert!(!held.contains_key("parameter_overrides"), "{environment}: SAM keeps the previous values");
        assert_eq!(held["on_failure"].as_str(), Some("DELETE"), "{environment}: what failed is in the next one's way");
        let stack = held.get("stack_name").unwrap_or(&global["stack_name"]);
        assert!(stacks.insert(text_of(stack)), "{environment}: two templates under one name would delete a stack");
        // The core is deployed from the template that `sam build` made.
        let template = held.get("template_file").map(text_of);
        let wanted = (environment != "default").then(|| format!("templates/{environment}.yaml"));
        assert_eq!(template, wanted, "{environment}");
    }
}

fn text_of(value: &toml::Value) -> String {
    value.as_str().expect("a text").to_owned()
}

#[test]
fn changelog_and_deploying_page_forbid_upgrading_earlier_stacks() {
    let changelog = file("CHANGELOG.md");
    let steps = section(&changelog, "### Upgrading from an earlier checkout");
    let is_said = |line: &str| line.starts_with("- A stack of an earlier template cannot be upgraded: remove it");
    assert!(steps.lines().any(is_said), "the changelog does not say that such a stack cannot be upgraded");
    let page = file("docs/deploying.md");
    assert!(section(&page, "## Upgrade").contains("without the parameter `Sources`"), "nor does the page");
    // A template of an earlier checkout is recognised by its missing parameter `Sources`.
    assert!(core().defaults().contains_key("Sources"));
}

#[test]
fn core_template_sets_no_role_names_and_no_vpc() {
    let deployed = with_both_doors();
    for (name, properties) in deployed.of_type("AWS::Serverless::Function") {
        assert_eq!(properties["VpcConfig"], Value::Null, "{name}");
    }
    for (name, properties) in deployed.of_type("AWS::IAM::Role") {
        assert_eq!((&properties["RoleName"], &properties["Path"]), (&Value::Null, &Value::Null), "{name}");
    }
    assert_eq!(deployed.at("ReadSources Properties Path"), &Value::Null);
    let page = file("docs/left-out.md");
    let left_out = section(&page, "## Deployment");
    for item in ["- **VPC attachment**", "- **Prescribed role names and paths.**", "- **China.**"] {
        assert!(left_out.lines().any(|line| line.starts_with(item)), "{item}");
    }
}

/// Lambda shows a function's variables to everybody who may read the function's configuration.
#[test]
fn function_variables_use_only_parameters_without_secrets() {
    let template = core();
    let mut reached = BTreeSet::new();
    for name in template.defaults().keys() {
        let of = |value: &str| {
            let deployed = template.deployed(&[(name.as_str(), value)]);
            ["Ingest", "Worker", "Scheduler"].map(|function| deployed.variables(function))
        };
        // The parameter's values are chosen so that mappings and conditions tell them apart.
        let [one, other] = if name == "WorkerTimeout" { ["60", "120"] } else { ["/one", "/other"] };
        if of(one) != of(other) {
            reached.insert(name.clone());
        }
        assert_eq!(template.0["Parameters"][name]["NoEcho"], Value::Null, "{name} would be a secret");
    }
    let expected = ["FairQueue", "Jobs", "ParkedRetentionDays", "RetentionDays", "Sources", "Tables", "WorkerTimeout"];
    assert!(reached.iter().eq(expected), "{reached:?}");
    assert!(!file("template.yaml").contains("{{resolve:"), "a resolved secret would be a variable's value");
}

/// Returns the part of a page from a heading to the next one of the same or a higher level.
pub fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let level = heading.find(' ').expect("a heading");
    let is_next = |line: &str| line.find(|sign: char| sign != '#').is_some_and(|signs| (1..=level).contains(&signs));
    let mut is_code = false;
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        is_code ^= line.trim_start().starts_with("```");
        if !is_code && is_next(line) {
            break;
        }
        end += line.len();
    }
    &rest[..end]
}

/// Returns the lines of a page's code blocks, without indentation.
fn code(page: &str) -> impl Iterator<Item = &str> {
    page.split("```").skip(1).step_by(2).flat_map(|block| block.lines().skip(1)).map(str::trim)
}
