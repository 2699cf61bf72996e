//! Tables and queues.

use serde_json::{Value, json};
use serializer::local::{MAX_RECEIVES, VISIBILITY_TIMEOUT, indexes};
use webhook_serializer::{
    engine::deferred::LARGEST_MESSAGE,
    protocol::{
        format::attribute,
        table::{Index, SortKind, TableName},
    },
};

use crate::core;

/// Promise: tables are encrypted, recoverable and outlive the stack.
#[test]
fn tables_match_code_and_outlive_the_stack() {
    let deployed = core().deployed(&[]);
    for (table, name, keys, owner) in [
        ("EntitiesTable", "entities", &["entity"][..], TableName::Entities),
        ("InboxTable", "inbox", &["entity", "item"], TableName::Inbox),
    ] {
        let at = |path: &str| deployed.at(&format!("{table} {path}")).clone();
        let schema = keys.iter().zip(["HASH", "RANGE"]);
        let schema: Value = schema.map(|(key, kind)| json!({ "AttributeName": key, "KeyType": kind })).collect();
        assert_eq!(at("Properties KeySchema"), schema);
        let held: Vec<Value> = indexes::of(&owner).map(index).collect();
        assert_eq!(at("Properties GlobalSecondaryIndexes"), Value::Array(held));
        let sorted = indexes::of(&owner).map(|index| match index.sort_kind() {
            SortKind::Number => (index.sort(), "N"),
            SortKind::Bytes => (index.sort(), "B"),
        });
        let defined = keys.iter().map(|key| (*key, "S")).chain(sorted);
        let defined: Value =
            defined.map(|(name, kind)| json!({ "AttributeName": name, "AttributeType": kind })).collect();
        assert_eq!(at("Properties AttributeDefinitions"), defined);
        // Two stacks cannot have tables of one name. So if a deploy has lost the parameter `Tables`, it fails
        // instead of making a second, empty pair.
        assert_eq!(at("Properties TableName"), format!("${{AWS::StackName}}-{name}"));
        let purged = json!({ "AttributeName": attribute::PURGE_AT, "Enabled": "true" });
        assert_eq!(at("Properties TimeToLiveSpecification"), purged);
        assert_eq!(at("Properties PointInTimeRecoverySpecification PointInTimeRecoveryEnabled"), "true");
        assert_eq!(at("Properties BillingMode"), "PAY_PER_REQUEST");
        // Tables of a failed first deploy are removed. Otherwise they would be in the way of the next one.
        assert_eq!(at("DeletionPolicy"), "RetainExceptOnCreate");
        assert_eq!(at("UpdateReplacePolicy"), "Retain");
        assert_eq!(at("Properties DeletionProtectionEnabled"), Value::Null);
        // This property would select AWS's managed key, whose calls AWS bills.
        assert_eq!(at("Properties SSESpecification"), Value::Null);
    }
    let key = "arn:aws:kms:eu-central-1:123456789012:key/mine";
    let encrypted = core().deployed(&[("TableKeyArn", key)]);
    for table in ["EntitiesTable", "InboxTable"] {
        assert_eq!(encrypted.text(&format!("{table} Properties SSESpecification KMSMasterKeyId")), key);
    }
    let restored = core().deployed(&[("Tables", "restored")]);
    assert!(restored.of_type("AWS::DynamoDB::Table").is_empty());
    assert_eq!(restored.outputs["InboxTable"], "restored-inbox");
}

/// Returns an index as the template has it.
fn index(index: Index) -> Value {
    let projection = match index.projects() {
        [] => json!({ "ProjectionType": "KEYS_ONLY" }),
        names => json!({ "ProjectionType": "INCLUDE", "NonKeyAttributes": names }),
    };
    let keys = [(attribute::ENTITY, "HASH"), (index.sort(), "RANGE")];
    let schema: Value = keys.iter().map(|(key, kind)| json!({ "AttributeName": key, "KeyType": kind })).collect();
    json!({ "IndexName": index.name(), "KeySchema": schema, "Projection": projection })
}

#[test]
fn queues_keep_largest_messages_for_14_days() {
    let deployed = core().deployed(&[]);
    for (queue, properties) in deployed.of_type("AWS::SQS::Queue") {
        assert_eq!(properties["MessageRetentionPeriod"], "1209600", "{queue}");
        assert_eq!(properties["MaximumMessageSize"], LARGEST_MESSAGE.to_string(), "{queue}");
        assert_eq!(properties["SqsManagedSseEnabled"], "true", "{queue}");
    }
    let redrive = json!({ "deadLetterTargetArn": "DeadLetters.Arn", "maxReceiveCount": MAX_RECEIVES.to_string() });
    assert_eq!(*deployed.at("WakeUps Properties RedrivePolicy"), redrive);
    assert_eq!(deployed.text("WakeUps Properties VisibilityTimeout"), VISIBILITY_TIMEOUT.as_secs().to_string());
}
