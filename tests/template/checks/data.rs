//! Tables: what they are keyed by, what is deleted when, what outlives the stack.

use serde_json::json;
use webhook_serializer::protocol::format::attribute;

use super::{Case, Objections};

pub fn check(case: &Case, objections: &mut Objections) {
    let mut tables = vec![("EntitiesTable", vec!["entity"]), ("InboxTable", vec!["entity", "item"])];
    // What is there already is left as it is.
    tables.retain(|(table, ..)| case.table(table) == *table);
    let deployed = &case.deployed;
    let found: Vec<_> = deployed.of_type("AWS::DynamoDB::Table").into_keys().collect();
    let mut wanted = tables.iter().map(|(name, ..)| *name).collect::<Vec<_>>();
    wanted.sort_unstable();
    objections.unless(found == wanted, || format!("the tables are {found:?}"));

    let encrypted = match case.parameter("TableKeyArn") {
        none if none.is_empty() => json!({ "SSEEnabled": "true" }),
        key => json!({ "SSEEnabled": "true", "SSEType": "KMS", "KMSMasterKeyId": key }),
    };
    for (table, keys) in tables {
        let mut at = |path: &str, value| objections.unless_at(deployed, &format!("{table} {path}"), value);
        let kinds = ["HASH", "RANGE"];
        let schema = keys.iter().zip(kinds).map(|(key, kind)| json!({ "AttributeName": key, "KeyType": kind }));
        at("Properties KeySchema", schema.collect());
        let types = keys.iter().map(|key| json!({ "AttributeName": key, "AttributeType": "S" }));
        at("Properties AttributeDefinitions", types.collect());
        // What is not purged would be kept, and paid for, for ever; deleted by
        // another attribute, a delivery could go before it is settled.
        let ttl = json!({ "AttributeName": attribute::PURGE_AT, "Enabled": "true" });
        at("Properties TimeToLiveSpecification", ttl);
        // What was answered 2xx is there still when the stack is not.
        at("DeletionPolicy", json!("Retain"));
        at("UpdateReplacePolicy", json!("Retain"));
        at("Properties DeletionProtectionEnabled", json!("true"));
        at("Properties PointInTimeRecoverySpecification", json!({ "PointInTimeRecoveryEnabled": "true" }));
        at("Properties SSESpecification", encrypted.clone());
        // A limit of one's own would be met by a flood of one source, and felt by all.
        at("Properties BillingMode", json!("PAY_PER_REQUEST"));
    }
}
