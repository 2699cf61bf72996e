//! Checks the tables, the queues and the operator's permissions.

use aws_sdk_dynamodb::{
    Client,
    error::{DisplayErrorContext, ProvideErrorMetadata, SdkError},
    primitives::DateTimeFormat,
    types::{
        AttributeValue, IndexStatus, KeysAndAttributes, PointInTimeRecoveryStatus, TableDescription, TimeToLiveStatus,
    },
};
use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::json;
use serializer::{local::indexes, stack::api::Refusal};
use webhook_serializer::protocol::{
    format::attribute as a,
    table::{Index, SortKind, TableName},
};

use super::finding::CheckFinding;
use crate::commands::target::Deployment;

/// A key that no order has. Write requests for this key carry the condition [`NEVER`], so these requests change
/// nothing.
const NOBODY: &str = "serializer-doctor/nobody";
const NEVER: &str = "attribute_exists(entity) AND attribute_not_exists(entity)";

struct CheckedTable<'a> {
    label: &'static str,
    name: &'a str,
    /// The key attributes, all of type S. The partition key comes first.
    key: &'static [&'static str],
    table: &'static TableName,
}

pub struct StoreParts<'a> {
    deployment: &'a Deployment,
    dynamodb: Client,
    sqs: aws_sdk_sqs::Client,
}

impl<'a> StoreParts<'a> {
    pub fn of(deployment: &'a Deployment) -> Self {
        let http = deployment.account.http_client();
        let dynamodb = deployment.account.dynamodb(&http);
        let sqs = deployment.account.sqs(&http);
        Self { deployment, dynamodb, sqs }
    }

    fn tables(&self) -> [CheckedTable<'_>; 2] {
        let config = &self.deployment.config;
        [
            CheckedTable {
                label: "orders",
                name: &config.entities_table,
                key: &[a::ENTITY],
                table: &TableName::Entities,
            },
            CheckedTable {
                label: "deliveries",
                name: &config.inbox_table,
                key: &[a::ENTITY, a::ITEM],
                table: &TableName::Inbox,
            },
        ]
    }

    pub async fn check_tables(&self) -> Vec<CheckFinding> {
        let mut findings = Vec::new();
        for checked in self.tables() {
            let name = checked.name;
            let check = format!("table of {}", checked.label);
            let described = self.dynamodb.describe_table().table_name(name).send().await;
            let table = match described.map(|described| described.table) {
                Ok(Some(table)) => table,
                Ok(None) => {
                    findings.push(CheckFinding::not_made(&check, "DynamoDB's answer does not describe the table"));
                    continue;
                }
                Err(error) => {
                    findings.push(refused(&check, "dynamodb:DescribeTable", &error));
                    continue;
                }
            };
            let status = table.table_status.as_ref().map(ToString::to_string).unwrap_or_default();
            if !matches!(status.as_str(), "ACTIVE" | "UPDATING") {
                findings.push(CheckFinding::wrong(
                    &check,
                    format!("{name} is {status}"),
                    "deploy again, or wait until it is active",
                ));
                continue;
            }
            if let Some(finding) = wrong_key(&check, &checked, &table) {
                findings.push(finding);
                continue;
            }
            findings.push(self.check_expiry(&check, name).await);
            findings.extend(indexes::of(checked.table).map(|index| check_index(name, &table, index)));
            if !self.deployment.is_local() {
                let is_protected = table.deletion_protection_enabled == Some(true);
                findings.push(self.recovery(checked.label, name, is_protected).await);
                findings.extend(self.encryption(checked.label, name, &table));
            }
        }
        findings
    }

    async fn check_expiry(&self, check: &str, name: &str) -> CheckFinding {
        let described = match self.dynamodb.describe_time_to_live().table_name(name).send().await {
            Ok(described) => described.time_to_live_description,
            Err(error) => return refused(check, "dynamodb:DescribeTimeToLive", &error),
        };
        let is_on = described.is_some_and(|described| {
            let status = described.time_to_live_status();
            described.attribute_name() == Some(a::PURGE_AT)
                && matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling))
        });
        if is_on || self.deployment.is_local() {
            return CheckFinding::ok(check, format!("{name} is active"));
        }
        let specification = format!("Enabled=true,AttributeName={}", a::PURGE_AT);
        CheckFinding::wrong(
            check,
            format!("{name} is active, but its time to live is off: rows never expire"),
            format!(
                "`aws dynamodb update-time-to-live --table-name {name} --time-to-live-specification {specification}`"
            ),
        )
    }

    /// Compares a table's KMS key with the stack's parameter `TableKeyArn`, if the parameter is set. The parameter has
    /// no effect on a table that existed before the stack.
    fn encryption(&self, label: &str, name: &str, table: &TableDescription) -> Option<CheckFinding> {
        let check = format!("encryption of {label}");
        let wanted = self.deployment.stack.as_ref()?.parameters.get("TableKeyArn").filter(|key| !key.is_empty())?;
        let key = table.sse_description().and_then(|told| told.kms_master_key_arn());
        if key == Some(wanted.as_str()) {
            return Some(CheckFinding::ok(&check, format!("{name} is encrypted with TableKeyArn")));
        }
        let says = format!("{name} is encrypted with {}, not with TableKeyArn", key.unwrap_or("DynamoDB's own key"));
        let specification = format!("Enabled=true,SSEType=KMS,KMSMasterKeyId={wanted}");
        let advice = format!("`aws dynamodb update-table --table-name {name} --sse-specification {specification}`");
        Some(CheckFinding::warning(&check, says, advice))
    }

    /// Checks point-in-time recovery and deletion protection. A restored table has neither setting, and the template
    /// leaves deletion protection to the operator.
    async fn recovery(&self, label: &str, name: &str, is_protected: bool) -> CheckFinding {
        let check = format!("recovery of {label}");
        let backups = match self.dynamodb.describe_continuous_backups().table_name(name).send().await {
            Ok(described) => described.continuous_backups_description,
            Err(error) => return refused(&check, "dynamodb:DescribeContinuousBackups", &error),
        };
        let recovery = backups.and_then(|backups| backups.point_in_time_recovery_description);
        let status = recovery.as_ref().and_then(|told| told.point_in_time_recovery_status.as_ref());
        if status != Some(&PointInTimeRecoveryStatus::Enabled) {
            let advice = format!(
                "`aws dynamodb update-continuous-backups --table-name {name} --point-in-time-recovery-specification \
                 PointInTimeRecoveryEnabled=true`"
            );
            return CheckFinding::warning(
                &check,
                format!("{name} cannot be restored: its point-in-time recovery is off"),
                advice,
            );
        }
        if !is_protected {
            let advice = format!("`aws dynamodb update-table --table-name {name} --deletion-protection-enabled`");
            return CheckFinding::warning(&check, format!("{name} has no deletion protection"), advice);
        }
        // A table that is younger than the recovery period has a shorter range.
        let times =
            recovery.and_then(|told| Some([told.earliest_restorable_date_time?, told.latest_restorable_date_time?]));
        let range = times.map(|times| times.map(|time| time.fmt(DateTimeFormat::DateTime).unwrap_or_default()));
        let says = match range {
            Some([earliest, latest]) => {
                format!("{name} is protected, and can be restored to any second from {earliest} to {latest}")
            }
            None => format!("{name} is protected, and its point-in-time recovery is on"),
        };
        CheckFinding::ok(&check, says)
    }

    /// Checks the queue's visibility timeout and the dead-letter queue. `worker` is the worker's timeout in seconds.
    pub async fn check_queue(&self, worker: Option<u64>, dead_letters: Option<&str>) -> Vec<CheckFinding> {
        const CHECK: &str = "queue";
        let attributes = [QueueAttributeName::VisibilityTimeout, QueueAttributeName::ApproximateNumberOfMessages];
        let url = &self.deployment.config.queue_url;
        let asked = self.sqs.get_queue_attributes().queue_url(url).set_attribute_names(Some(attributes.to_vec()));
        let attributes = match asked.send().await {
            Ok(answer) => answer.attributes.unwrap_or_default(),
            Err(error) => return vec![refused(CHECK, "sqs:GetQueueAttributes", &error)],
        };
        let number = |name: &QueueAttributeName| attributes.get(name).and_then(|value| value.parse::<u64>().ok());
        let waiting = number(&QueueAttributeName::ApproximateNumberOfMessages).unwrap_or(0);
        let queue = match (number(&QueueAttributeName::VisibilityTimeout), worker) {
            (Some(visibility), Some(worker)) if visibility < worker => CheckFinding::wrong(
                CHECK,
                format!("the visibility timeout of {visibility} s is shorter than a worker's timeout of {worker} s"),
                // The template has one and a half times the worker's timeout, too.
                format!(
                    "`aws sqs set-queue-attributes --queue-url {url} --attributes VisibilityTimeout={}`",
                    worker * 3 / 2
                ),
            ),
            _ => CheckFinding::ok(CHECK, format!("{waiting} wake-ups wait")),
        };
        let mut findings = vec![queue];
        if let Some(url) = dead_letters {
            findings.push(self.dead_letters(url).await);
        }
        findings
    }

    async fn dead_letters(&self, url: &str) -> CheckFinding {
        const CHECK: &str = "dead letters";
        let name = QueueAttributeName::ApproximateNumberOfMessages;
        match self.sqs.get_queue_attributes().queue_url(url).attribute_names(name.clone()).send().await {
            Err(error) => refused(CHECK, "sqs:GetQueueAttributes", &error),
            Ok(told) => match told.attributes().and_then(|told| told.get(&name)).map(String::as_str) {
                None | Some("0") => CheckFinding::ok(CHECK, "the dead-letter queue is empty"),
                Some(count) => CheckFinding::warning(
                    CHECK,
                    format!("the dead-letter queue has {count} messages"),
                    "read docs/runbooks/dead-letters.md before you delete any: a message may be the only copy of a delivery",
                ),
            },
        }
    }

    /// Tests each DynamoDB permission that operators need on the tables. Each test is a request that changes nothing.
    /// `sqs:SendMessage` is not tested.
    pub async fn permissions(&self) -> Vec<CheckFinding> {
        const CHECK: &str = "permissions";
        let mut granted = 0;
        let mut findings = Vec::new();
        for checked in self.tables() {
            let name = checked.name;
            let answers = self.try_all(&checked).await.into_iter();
            let mut answers: Vec<_> = answers.map(|(action, answer)| (action, name.to_owned(), answer)).collect();
            for index in indexes::of(checked.table) {
                let scan = self.dynamodb.scan().table_name(name).index_name(index.name()).limit(1).send().await;
                answers.push(("Scan", format!("{name}/index/{}", index.name()), answered(&scan)));
            }
            for (action, on, answer) in answers {
                match answer {
                    StoreAnswer::Allowed => granted += 1,
                    StoreAnswer::Denied => findings.push(CheckFinding::wrong(
                        CHECK,
                        format!("dynamodb:{action} on {on} is missing"),
                        format!(
                            "grant it, as docs/deploying.md describes; these commands need it: {}",
                            used_for(action)
                        ),
                    )),
                    StoreAnswer::Unknown(why) => {
                        findings.push(CheckFinding::not_made(CHECK, format!("dynamodb:{action} on {on}: {why}")));
                    }
                }
            }
        }
        if findings.is_empty() {
            findings.push(CheckFinding::ok(CHECK, format!("all {granted} permissions on the tables are granted")));
        }
        findings.push(CheckFinding::not_made(CHECK, "sqs:SendMessage was not tried, because it would wake a worker"));
        findings
    }

    async fn try_all(&self, checked: &CheckedTable<'_>) -> Vec<(&'static str, StoreAnswer)> {
        let table = checked.name;
        let db = &self.dynamodb;
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let values = [NOBODY, "nothing"].map(text);
        let key: std::collections::HashMap<_, _> =
            checked.key.iter().map(|name| (*name).to_owned()).zip(values).collect();
        let many = KeysAndAttributes::builder().keys(key.clone()).build();
        let batch = async {
            match many {
                Ok(many) => answered(&db.batch_get_item().request_items(table, many).send().await),
                Err(error) => StoreAnswer::Unknown(error.to_string()),
            }
        };
        let query = db.query().table_name(table).key_condition_expression("entity = :nobody").limit(1);
        let update = db.update_item().table_name(table).update_expression("REMOVE nothing");
        vec![
            ("GetItem", answered(&db.get_item().table_name(table).set_key(Some(key.clone())).send().await)),
            ("BatchGetItem", batch.await),
            ("Query", answered(&query.expression_attribute_values(":nobody", text(NOBODY)).send().await)),
            ("Scan", answered(&db.scan().table_name(table).limit(1).send().await)),
            ("UpdateItem", answered(&update.set_key(Some(key.clone())).condition_expression(NEVER).send().await)),
            (
                "PutItem",
                answered(
                    &db.put_item()
                        .table_name(table)
                        .set_item(Some(key.clone()))
                        .condition_expression(NEVER)
                        .send()
                        .await,
                ),
            ),
            (
                "DeleteItem",
                answered(
                    &db.delete_item().table_name(table).set_key(Some(key)).condition_expression(NEVER).send().await,
                ),
            ),
        ]
    }
}

/// Checks that a table has an index, and that the index is filled.
fn check_index(table: &str, described: &TableDescription, index: Index) -> CheckFinding {
    let check = format!("index {}", index.name());
    let found = described.global_secondary_indexes().iter().find(|found| found.index_name() == Some(index.name()));
    let Some(found) = found else {
        let projection = match index.projects() {
            [] => json!({ "ProjectionType": "KEYS_ONLY" }),
            names => json!({ "ProjectionType": "INCLUDE", "NonKeyAttributes": names }),
        };
        let schema = [(a::ENTITY, "HASH"), (index.sort(), "RANGE")]
            .map(|(name, kind)| json!({ "AttributeName": name, "KeyType": kind }));
        let create = json!([{
            "Create": { "IndexName": index.name(), "KeySchema": schema, "Projection": projection },
        }]);
        return CheckFinding::warning(
            &check,
            format!("{table} lacks it, so commands and the console read the whole table instead"),
            format!(
                "deploy this release; for tables that the stack did not create: `aws dynamodb update-table --table-name \
                 {table} --attribute-definitions AttributeName=entity,AttributeType=S \
                 AttributeName={},AttributeType={} --global-secondary-index-updates '{create}'`",
                index.sort(),
                if index.sort_kind() == SortKind::Bytes { "B" } else { "N" },
            ),
        );
    };
    match found.index_status().is_none_or(|status| *status == IndexStatus::Active) {
        true => CheckFinding::ok(&check, format!("{table} has it, and it is filled")),
        false => CheckFinding::warning(
            &check,
            format!("{table} is still filling it; until then, commands read the whole table"),
            "wait: DynamoDB takes minutes to hours, by the table's size",
        ),
    }
}

/// Returns the finding for a table with another key than the functions need. The key of an existing table cannot be changed.
fn wrong_key(check: &str, checked: &CheckedTable<'_>, table: &TableDescription) -> Option<CheckFinding> {
    let name = checked.name;
    let types = |name: &str| {
        let defined = table.attribute_definitions().iter().find(|defined| defined.attribute_name() == name);
        defined.map_or("?", |defined| defined.attribute_type().as_str())
    };
    let schema = table.key_schema().iter();
    let found: Vec<_> =
        schema.map(|key| (key.attribute_name(), key.key_type().as_str(), types(key.attribute_name()))).collect();
    let wanted: Vec<_> = checked.key.iter().zip(["HASH", "RANGE"]).map(|(name, kind)| (*name, kind, "S")).collect();
    if found == wanted {
        return None;
    }
    let shown = |key: &[(&str, &str, &str)]| {
        let parts: Vec<_> = key.iter().map(|(name, kind, of)| format!("{name} {kind} {of}")).collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    };
    let options = |each: fn(&(&str, &str, &str)) -> String| wanted.iter().map(each).collect::<Vec<_>>().join(" ");
    let suffix = if *checked.table == TableName::Inbox { "inbox" } else { "entities" };
    let advice = format!(
        "a table's key cannot be changed. Make another pair of tables and deploy with its prefix, Tables=PREFIX: `aws \
         dynamodb create-table --table-name PREFIX-{suffix} --billing-mode PAY_PER_REQUEST --attribute-definitions {} \
         --key-schema {}`",
        options(|(name, _, of)| format!("AttributeName={name},AttributeType={of}")),
        options(|(name, kind, _)| format!("AttributeName={name},KeyType={kind}")),
    );
    Some(CheckFinding::wrong(
        check,
        format!("{name} has the key {}; the functions need {}", shown(&found), shown(&wanted)),
        advice,
    ))
}

fn used_for(action: &str) -> &'static str {
    match action {
        "GetItem" => "show, and all others",
        "BatchGetItem" => "show, status, jobs and redrive",
        "Query" => "show and redrive",
        "Scan" => "status, list and audit",
        "UpdateItem" => "resume, redrive and lease",
        "PutItem" => "redrive and resume",
        "DeleteItem" => "redrive, discard and erase",
        _ => unreachable!("`try_all` tries these"),
    }
}

enum StoreAnswer {
    Allowed,
    Denied,
    Unknown(String),
}

/// Classifies a reply. A reply with a failed condition proves the permission, because DynamoDB evaluates conditions
/// only for permitted callers.
fn answered<T, E, R>(result: &Result<T, SdkError<E, R>>) -> StoreAnswer
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug,
{
    let Err(error) = result else { return StoreAnswer::Allowed };
    match error.as_service_error().and_then(ProvideErrorMetadata::code) {
        Some("ConditionalCheckFailedException") => StoreAnswer::Allowed,
        Some(code) if is_denied(code) => StoreAnswer::Denied,
        Some(code) => StoreAnswer::Unknown(code.to_owned()),
        None => StoreAnswer::Unknown(DisplayErrorContext(error).to_string()),
    }
}

/// Returns whether an error's code says that the caller lacks a permission.
fn is_denied(code: &str) -> bool {
    matches!(code, "AccessDeniedException" | "AccessDenied")
}

/// Returns whether an error's code says that a queue does not exist.
pub(super) fn is_missing_queue(code: &str) -> bool {
    matches!(code, "AWS.SimpleQueueService.NonExistentQueue" | "QueueDoesNotExist")
}

pub(super) fn refused<E, R>(check: &str, needed: &str, error: &SdkError<E, R>) -> CheckFinding
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug,
{
    let (code, message) = error.as_service_error().map_or((None, None), |error| (error.code(), error.message()));
    match code {
        Some(code) if is_denied(code) => {
            let message = message.unwrap_or_default().to_owned();
            CheckFinding::refused(check, &Refusal::Denied { needed: needed.to_owned(), message })
        }
        Some(code) if code == "ResourceNotFoundException" || is_missing_queue(code) => CheckFinding::wrong(
            check,
            "there is no such table or queue",
            "check the region and the account, or deploy again",
        ),
        Some(code) => CheckFinding::not_made(check, format!("{code}: {}", message.unwrap_or_default())),
        None => {
            CheckFinding::wrong(check, "the service does not answer", "check the network, the proxy and the region")
        }
    }
}
