//! `serializer doctor`: findings about a source's queue, in an emulated stack.

use serde_json::{Value, json};

use crate::{
    aws::StackWithLocal,
    doctor::{findings, of, well},
};

const QUEUE_SOURCES: &str = "[sources.orders]\nprovider='generic'\n\
                             queue='arn:aws:sqs:eu-central-1:123456789012:orders'\nhandler='orders'\n\
                             generic={entity='/id'}";

/// Returns a healthy stack that has a source with a queue.
fn with_queue() -> StackWithLocal {
    let stack = well();
    let document =
        json!({ "Parameter": { "Name": "/shop", "Type": "SecureString", "Version": 3, "Value": QUEUE_SOURCES } });
    stack.aws.answer("AmazonSSM.GetParameter", 200, document.to_string());
    stack
}

/// Returns result, text and advice of a finding.
fn finding(stack: &StackWithLocal, check: &str) -> [String; 3] {
    let told = findings(&stack.ran(&["doctor", "--no-rows", "--json"]));
    let finding = of(&told, check);
    ["result", "says", "advice"].map(|name| finding[name].as_str().unwrap_or_default().to_owned())
}

/// Promise: `doctor` checks that Lambda hands the messages of a source's queue to ingest, and deletes only stored ones.
#[test]
fn queue_without_a_right_event_source_mapping_is_reported() {
    let stack = with_queue();
    let path = "/2015-03-31/event-source-mappings/?EventSourceArn=arn%3Aaws%3Asqs%3Aeu-central-1%3A123456789012%3Aorders\
                &FunctionName=shop-Ingest-1";
    let asked = || finding(&stack, "queue of orders");
    assert_eq!(asked()[0], "not made", "the stack does not name ingest");
    stack.deployed_with_outputs(&[("IngestFunction", "shop-Ingest-1")], &[]);
    let mapping =
        |state: &str, types: &[&str]| json!([{ "UUID": "u-2", "State": state, "FunctionResponseTypes": types }]);
    let reports = ["ReportBatchItemFailures"];
    let not_yet = "does not hand its messages to ingest yet: the event source mapping is ";
    let enable = "--uuid u-2 --enabled";
    for (mappings, result, says, advice) in [
        (json!([]), "wrong", "no event source mapping hands the messages", "templates/inlets/queue.yaml"),
        (
            mapping("Enabled", &[]),
            "wrong",
            "Lambda also deletes messages that were not stored",
            "--uuid u-2 --function-response-types ReportBatchItemFailures",
        ),
        (mapping("Disabled", &reports), "wrong", "is Disabled, so messages wait", enable),
        (mapping("Disabling", &reports), "wrong", "is Disabling, so messages wait", enable),
        (mapping("Creating", &reports), "warning", &format!("{not_yet}Creating"), "again in a minute"),
        (mapping("Enabling", &reports), "warning", &format!("{not_yet}Enabling"), "again in a minute"),
        (mapping("Updating", &reports), "warning", &format!("{not_yet}Updating"), "again in a minute"),
        (mapping("Enabled", &reports), "ok", "hands its messages to ingest", ""),
    ] {
        stack.aws.answer(path, 200, json!({ "EventSourceMappings": mappings }).to_string());
        let [found, said, advised] = asked();
        assert_eq!(found, result, "{said}");
        assert!(said.contains(says) && advised.contains(advice), "{said}: {advised}");
    }
    stack.aws.answer(path, 404, r#"{"__type":"ResourceNotFoundException","Message":"no"}"#);
    assert!(asked()[1].contains("no event source mapping hands the messages"));
    stack.aws.deny(path);
    let [result, says, _] = asked();
    assert!(result == "not made" && says.contains("lambda:ListEventSourceMappings"), "{says}");
}

/// Promise: `doctor` checks visibility timeout and redrive policy of a source's queue, and names the command that mends
/// them.
#[test]
fn queue_settings_that_lose_messages_are_reported() {
    let stack = with_queue();
    let asked = || finding(&stack, "settings of orders");
    let dead_letters = "arn:aws:sqs:eu-central-1:123456789012:dead";
    let policy =
        |receives: Value| json!({ "deadLetterTargetArn": dead_letters, "maxReceiveCount": receives }).to_string();
    let command = |visibility: &str, target: &str, receives: &str| {
        let redrive = json!({ "deadLetterTargetArn": target, "maxReceiveCount": receives }).to_string();
        let attributes = json!({ "VisibilityTimeout": visibility, "RedrivePolicy": redrive });
        format!(
            "`aws sqs set-queue-attributes --queue-url https://sqs.eu-central-1.amazonaws.com/123456789012/orders \
             --attributes '{attributes}'`"
        )
    };
    for (visibility, policy, result, says, advice) in [
        ("60", None, "wrong", "no redrive policy", command("60", "ARN_OF_A_DEAD_LETTER_QUEUE", "720")),
        (
            "9",
            Some(policy(json!(1000))),
            "wrong",
            "the visibility timeout of 9 s is shorter than ingest's timeout of 10 s",
            command("60", dead_letters, "1000"),
        ),
        (
            "60",
            Some(policy(json!(719))),
            "warning",
            "after 719 receives, 60 s apart; an outage of 12 h moves every message",
            command("60", dead_letters, "720"),
        ),
        ("3600", Some(policy(json!("3"))), "warning", "after 3 receives", command("3600", dead_letters, "12")),
        ("30", Some(policy(json!(1000))), "warning", "after 1000 receives", command("60", dead_letters, "1000")),
        ("59", Some(policy(json!(1000))), "warning", "AWS advises six", command("60", dead_letters, "1000")),
        ("60", Some(policy(json!(720))), "ok", "moves to the dead-letter queue after 12 h", String::new()),
    ] {
        let mut attributes = json!({ "VisibilityTimeout": visibility });
        if let Some(policy) = &policy {
            attributes["RedrivePolicy"] = json!(policy);
        }
        stack.aws.answer("AmazonSQS.GetQueueAttributes", 200, json!({ "Attributes": attributes }).to_string());
        let [found, said, advised] = asked();
        assert_eq!((found.as_str(), &advised), (result, &advice), "{said}");
        assert!(said.contains(says), "{said}");
    }
    let url = r#""QueueUrl":"https://sqs.eu-central-1.amazonaws.com/123456789012/orders""#;
    assert!(stack.aws.asked("AmazonSQS.GetQueueAttributes").iter().any(|body| body.contains(url)));
}

#[test]
fn missing_or_unreadable_queue_of_a_source_is_reported() {
    let stack = with_queue();
    let missing = r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"no"}"#;
    stack.aws.answer("AmazonSQS.GetQueueAttributes", 400, missing);
    let [result, says, advice] = finding(&stack, "settings of orders");
    assert_eq!((&*result, &*says), ("wrong", "there is no queue arn:aws:sqs:eu-central-1:123456789012:orders"));
    assert!(advice.contains("templates/inlets/queue.yaml, or correct `queue`"), "{advice}");
    stack.aws.deny("AmazonSQS.GetQueueAttributes");
    let [result, says, advice] = finding(&stack, "settings of orders");
    assert!(result == "not made" && says.ends_with("your credentials lack sqs:GetQueueAttributes"), "{says}");
    let command = "`aws sqs get-queue-attributes --attribute-names RedrivePolicy VisibilityTimeout --queue-url \
                   https://sqs.eu-central-1.amazonaws.com/123456789012/orders`";
    assert!(advice.contains(command), "{advice}");
}

/// A source that gets no webhooks has no URL to check.
#[test]
fn silent_source_with_queue_gets_advice_about_its_queue() {
    let stack = with_queue();
    let told = findings(&stack.ran(&["doctor", "--json"]));
    let silent = of(&told, "source orders");
    let advice = "check what sends messages to arn:aws:sqs:eu-central-1:123456789012:orders";
    assert_eq!((&silent["result"], &silent["advice"]), (&json!("warning"), &json!(advice)));
}
