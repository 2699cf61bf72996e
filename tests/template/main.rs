//! The templates, checked against the code that they deploy and against the changes that a deployment goes
//! through.

mod asked;
mod changes;
mod deployer;
mod document;
mod door;
mod ebay;
mod functions;
mod grants;
mod inlets;
mod observability;
mod on_aws;
mod other_tools;
mod pages;
mod project;
mod rights;
mod roles;
mod rules;
mod storage;

use document::SamTemplate;
use serializer::stack::Stack;
use tests::tree::read as file;

/// The ARN of a secret in Secrets Manager.
const SECRET: &str = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:sources-Ab12Cd";

const TEMPLATES: [&str; 5] = [
    "template.yaml",
    "templates/observability.yaml",
    "templates/domain.yaml",
    "templates/inlets/queue.yaml",
    "templates/inlets/ebay/template.yaml",
];

fn core() -> SamTemplate {
    SamTemplate::read("template.yaml")
}

#[test]
fn stack_has_outputs_and_parameters_the_command_reads() {
    let template = core();
    let deployed = template.deployed(&[]);
    let stack = Stack { outputs: deployed.outputs.clone(), ..Stack::default() };
    let variables = stack.variables().expect("it has the output CommandLine");
    for (variable, value) in [
        ("ENTITIES_TABLE", "EntitiesTable"),
        ("INBOX_TABLE", "InboxTable"),
        ("QUEUE_URL", "WakeUps"),
        ("FAIR_QUEUE", "false"),
        ("RETENTION_DAYS", "30"),
        ("PARKED_RETENTION_DAYS", "0"),
        ("SOURCES", "/${AWS::StackName}/sources"),
        ("WEBHOOK_URL", "IngestUrl.FunctionUrlwebhooks/"),
    ] {
        assert_eq!(variables.get(variable).map(String::as_str), Some(value), "{variable}");
    }
    for (output, value) in [
        ("IngestFunction", "Ingest"),
        ("WorkerFunction", "Worker"),
        ("SchedulerFunction", "Scheduler"),
        ("DeadLetterQueueUrl", "DeadLetters"),
    ] {
        assert_eq!(deployed.outputs[output], value);
    }
    let parameters = template.defaults();
    for parameter in [
        "WorkerConcurrency",
        "IngestConcurrency",
        "WorkerTimeout",
        "InvokeFunctionArns",
        "CommitTableArns",
        "FrontDoor",
    ] {
        assert!(parameters.contains_key(parameter), "{parameter}");
    }
    assert!(parameters.len() <= 15, "{parameters:?}");
}
