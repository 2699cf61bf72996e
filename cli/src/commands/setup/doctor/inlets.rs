//! Checks that Lambda hands the messages of the sources' queues to ingest, and deletes only those that were stored.

mod settings;

use serde_json::Value;
use serializer::stack::{
    Stack,
    api::{Refusal, Service, Services},
};
use webhook_serializer::{
    aws::Account,
    sources::{QueueArn, Sources},
};

use super::finding::CheckFinding;

const REPORT: &str = "ReportBatchItemFailures";

pub async fn queues(account: &Account, stack: Option<&Stack>, sources: &Sources) -> Vec<CheckFinding> {
    let services = Services::of(account);
    let sqs = account.sqs(&account.http_client());
    let mut findings = Vec::new();
    for source in sources.iter() {
        let Some(queue) = &source.queue else { continue };
        let check = format!("queue of {}", source.name);
        findings.push(match stack.and_then(|stack| stack.outputs.get("IngestFunction")) {
            Some(ingest) => one(&services, ingest, &check, queue).await,
            None => CheckFinding::not_made(&check, "add --stack NAME: the stack's outputs name ingest"),
        });
        findings.push(settings::read(&sqs, &format!("settings of {}", source.name), queue).await);
    }
    findings
}

async fn one(services: &Services, ingest: &str, check: &str, queue: &QueueArn) -> CheckFinding {
    let arn = queue.as_str().replace(':', "%3A");
    let path = format!("/2015-03-31/event-source-mappings/?EventSourceArn={arn}&FunctionName={ingest}");
    match services.get(Service::LAMBDA, "ListEventSourceMappings", &path).await {
        Ok(told) => mapped(check, queue, &told["EventSourceMappings"][0]),
        Err(Refusal::Other { code, .. }) if code == "ResourceNotFoundException" => mapped(check, queue, &Value::Null),
        Err(refusal) => CheckFinding::refused(check, &refusal),
    }
}

fn mapped(check: &str, queue: &QueueArn, mapping: &Value) -> CheckFinding {
    let id = mapping["UUID"].as_str().unwrap_or_default();
    let reports =
        mapping["FunctionResponseTypes"].as_array().is_some_and(|types| types.iter().any(|one| one == REPORT));
    match mapping["State"].as_str() {
        None => CheckFinding::wrong(
            check,
            format!("no event source mapping hands the messages of {queue} to ingest, so they wait"),
            "deploy templates/inlets/queue.yaml, or correct `queue` (docs/queues.md)",
        ),
        Some(_) if !reports => CheckFinding::wrong(
            check,
            format!("the event source mapping lacks {REPORT}, so Lambda also deletes messages that were not stored"),
            format!("`aws lambda update-event-source-mapping --uuid {id} --function-response-types {REPORT}`"),
        ),
        Some(state @ ("Creating" | "Enabling" | "Updating")) => {
            let says = format!("Lambda does not hand its messages to ingest yet: the event source mapping is {state}");
            CheckFinding::warning(check, says, "run this again in a minute")
        }
        Some("Enabled") => CheckFinding::ok(check, "Lambda hands its messages to ingest, and deletes the stored ones"),
        Some(state) => CheckFinding::wrong(
            check,
            format!("the event source mapping is {state}, so messages wait"),
            format!("`aws lambda update-event-source-mapping --uuid {id} --enabled`"),
        ),
    }
}
