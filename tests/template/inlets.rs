//! A queue as a way in, beside the core stack.

use serde_json::{Value, json};

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
        assert_eq!(deployed.at("SendEvents"), &Value::Null, "without a rule, no other service may send");
        let visible = number(&messages["VisibilityTimeout"]);
        let timeout = number(core().deployed(&[]).at("Ingest Properties Timeout"));
        assert!(visible >= 6 * timeout, "{visible} s");
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

#[test]
fn only_the_named_rule_may_send_to_the_queue() {
    let deployed = queue(&[("EventRuleArn", RULE)]);
    let policy = deployed.at("SendEvents Properties PolicyDocument Statement 0");
    assert_eq!(policy["Principal"], json!({ "Service": "events.amazonaws.com" }));
    assert_eq!((&policy["Action"], &policy["Resource"]), (&json!("sqs:SendMessage"), &json!("Messages.Arn")));
    assert_eq!(policy["Condition"], json!({ "ArnEquals": { "aws:SourceArn": RULE } }));
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
