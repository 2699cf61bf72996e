//! A queue as a way in, beside the core stack.

use serde_json::{Value, json};
use serializer::local::{INGEST_TIMEOUT, SOURCE_VISIBILITY};

use crate::{
    core,
    document::{DeployedTemplate, SamTemplate, texts},
};

const RULE: &str = "arn:aws:events:eu-central-1:123456789012:rule/partner/orders";

fn queue(given: &[(&str, &str)]) -> DeployedTemplate {
    SamTemplate::read("templates/inlets/queue.yaml").deployed_beside(given, &core().deployed(&[]).outputs)
}

fn number(value: &Value) -> u64 {
    crate::document::text(value).parse().unwrap_or_else(|_| panic!("{value} is no number"))
}

/// Promise: if ingest cannot store a message, the template's queue offers it again for 12 hours, and then moves it to a
/// dead-letter queue. The event source reports single failures. Ingest has only the rights that Lambda needs.
#[test]
fn queue_of_a_source_loses_no_message() {
    for (kind, name) in [("standard", "${AWS::StackName}"), ("fifo", "${AWS::StackName}.fifo")] {
        let deployed = queue(&[("QueueType", kind)]);
        assert_eq!(deployed.broken, [""; 0]);
        let messages = deployed.at("Messages Properties");
        let dead = deployed.at("DeadLetters Properties");
        assert_eq!(messages["QueueName"], name);
        assert_eq!(messages["FifoQueue"], dead["FifoQueue"], "both are of one type");
        assert_eq!(messages["FifoQueue"].is_null(), kind == "standard");
        assert_eq!(deployed.at("SendEvents"), &Value::Null, "without a rule or principal, nobody else may send");
        let visible = number(&messages["VisibilityTimeout"]);
        let timeout = number(core().deployed(&[]).at("Ingest Properties Timeout"));
        assert_eq!([timeout, visible], [INGEST_TIMEOUT, SOURCE_VISIBILITY].map(|time| time.as_secs()));
        let receives = number(&messages["RedrivePolicy"]["maxReceiveCount"]);
        assert!(receives <= 1000 && receives * visible >= 12 * 3600, "{receives} receives");
        for name in ["Messages", "DeadLetters"] {
            assert_eq!(number(deployed.at(&format!("{name} Properties MessageRetentionPeriod"))), 14 * 86_400);
            assert_eq!(deployed.text(&format!("{name} DeletionPolicy")), "RetainExceptOnCreate");
            assert_eq!(deployed.text(&format!("{name} UpdateReplacePolicy")), "Retain");
        }
        let source = deployed.at("Source Properties");
        assert_eq!(texts(&source["FunctionResponseTypes"]), ["ReportBatchItemFailures"]);
        assert_eq!(source["FunctionName"], "Ingest");
        assert_eq!(deployed.at("Source DependsOn"), "ReadMessages", "Lambda refuses a role without rights");
        let rights = deployed.at("ReadMessages Properties");
        assert_eq!(texts(&rights["Roles"]), ["IngestRole"]);
        let statements = rights["PolicyDocument"]["Statement"].as_array().expect("a list");
        let actions: Vec<Vec<String>> = statements.iter().map(|statement| texts(&statement["Action"])).collect();
        assert_eq!(actions, [["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"]]);
        assert_eq!(statements[0]["Resource"], "Messages.Arn");
        assert_eq!(deployed.outputs["QueueArn"], "Messages.Arn");
    }
}

/// Returns the statements of the queue's policy.
fn senders(given: &[(&str, &str)]) -> Value {
    let deployed = queue(given);
    assert_eq!(deployed.broken, [""; 0]);
    assert_eq!(texts(deployed.at("SendEvents Properties Queues")), ["Messages"]);
    let policies = deployed.of_type("AWS::SQS::QueuePolicy").len();
    assert_eq!(policies, 1, "a queue has one policy");
    deployed.at("SendEvents Properties PolicyDocument Statement").clone()
}

fn rule_statement() -> Value {
    json!({
        "Sid": "SendEvents", "Effect": "Allow", "Principal": { "Service": "events.amazonaws.com" },
        "Action": "sqs:SendMessage", "Resource": "Messages.Arn",
        "Condition": { "ArnEquals": { "aws:SourceArn": RULE } },
    })
}

fn principal_statement(principal: &str, actions: &[&str]) -> Value {
    json!({
        "Sid": "SendMessages", "Effect": "Allow", "Principal": { "AWS": principal },
        "Action": actions, "Resource": "Messages.Arn",
    })
}

/// Only Amazon's guide demands the right to read the queue's attributes.
///
/// Promise: only the rule and the principal that you name may send to the template's queue from outside the account.
#[test]
fn only_named_rule_and_principal_may_send() {
    const AMAZON: &str = "437568002678";
    const COMMERCETOOLS: &str = "arn:aws:iam::362576667341:user/subscriptions";
    let amazon = principal_statement(AMAZON, &["sqs:SendMessage", "sqs:GetQueueAttributes"]);
    let commercetools = principal_statement(COMMERCETOOLS, &["sqs:SendMessage"]);
    assert_eq!(senders(&[("EventRuleArn", RULE)]), json!([rule_statement()]));
    assert_eq!(senders(&[("SenderPrincipal", AMAZON)]), json!([amazon]));
    assert_eq!(senders(&[("SenderPrincipal", COMMERCETOOLS)]), json!([commercetools]));
    let both = senders(&[("EventRuleArn", RULE), ("SenderPrincipal", COMMERCETOOLS)]);
    assert_eq!(both, json!([rule_statement(), commercetools]));
    let page = crate::file("docs/queues.md");
    for principal in [AMAZON, COMMERCETOOLS] {
        assert!(page.contains(&format!("SenderPrincipal={principal}")), "{principal}");
    }
}

#[test]
fn alarms_of_the_queue_name_its_page_and_the_topic() {
    let topic = "arn:aws:sns:eu-central-1:123456789012:webhook-serializer-observability-Topic-1";
    let [without, with] = [queue(&[]), queue(&[("AlarmTopicArn", topic)])];
    let alarms = with.of_type("AWS::CloudWatch::Alarm");
    assert_eq!(alarms.len(), 3);
    for (name, alarm) in alarms {
        let description = alarm["AlarmDescription"].as_str().expect("a text");
        assert!(description.ends_with("What to do - docs/runbooks/messages.md"), "{name}: {description}");
        assert_eq!((&alarm["AlarmActions"], &alarm["OKActions"]), (&json!([topic]), &json!([topic])), "{name}");
        assert_eq!(without.at(&format!("{name} Properties AlarmActions")), &Value::Null, "{name}");
    }
    let metrics = with.at("NothingStoredAlarm Properties Metrics").as_array().expect("a list");
    let names: Vec<_> = metrics.iter().filter_map(|one| one["MetricStat"]["Metric"]["MetricName"].as_str()).collect();
    assert_eq!(names, ["NumberOfMessagesReceived", "NumberOfMessagesDeleted"]);
    assert_eq!(metrics[2]["Expression"], "IF(FILL(deleted, 0) < 1, FILL(received, 0), 0)");
}
