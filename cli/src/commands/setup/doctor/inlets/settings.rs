//! Checks the settings of a source's queue: how long a message is hidden, and when it moves to the dead-letter queue.

use std::{cmp::max, time::Duration};

use aws_sdk_sqs::{Client, error::ProvideErrorMetadata, types::QueueAttributeName};
use serde_json::{Value, json};
use serializer::{
    local::{INGEST_TIMEOUT, SOURCE_VISIBILITY},
    output::{duration, quoted},
};
use webhook_serializer::sources::QueueArn;

use super::super::{finding::CheckFinding, store};

/// The length of an outage, in seconds, in which no message moves to the dead-letter queue.
const OUTAGE: u64 = 12 * 3600;

pub(super) async fn read(sqs: &Client, check: &str, queue: &QueueArn) -> CheckFinding {
    let attributes = [QueueAttributeName::RedrivePolicy, QueueAttributeName::VisibilityTimeout];
    let asked = sqs.get_queue_attributes().queue_url(queue.url()).set_attribute_names(Some(attributes.to_vec()));
    match asked.send().await {
        Ok(answer) => {
            let attribute = |name| answer.attributes().and_then(|all| all.get(&name)).map(String::as_str);
            let visibility = attribute(QueueAttributeName::VisibilityTimeout).and_then(|value| value.parse().ok());
            let Some(visibility) = visibility else {
                return CheckFinding::not_made(check, "SQS's answer has no visibility timeout");
            };
            let policy = attribute(QueueAttributeName::RedrivePolicy).and_then(RedrivePolicy::parse);
            judge(check, queue, visibility, policy.as_ref())
        }
        Err(error) if error.code().is_some_and(store::is_missing_queue) => CheckFinding::wrong(
            check,
            format!("there is no queue {queue}"),
            "deploy templates/inlets/queue.yaml, or correct `queue` (docs/queues.md)",
        ),
        Err(error) => {
            let mut finding = store::refused(check, "sqs:GetQueueAttributes", &error);
            finding.says = format!("the settings of {queue} cannot be read: {}", finding.says);
            let command = "aws sqs get-queue-attributes --attribute-names RedrivePolicy VisibilityTimeout";
            finding.advice.get_or_insert_with(|| {
                format!("`{command} --queue-url {}` with other credentials shows them", quoted(&queue.url()))
            });
            finding
        }
    }
}

struct RedrivePolicy {
    dead_letters: String,
    max_receives: u64,
}

impl RedrivePolicy {
    fn parse(text: &str) -> Option<Self> {
        let policy: Value = serde_json::from_str(text).ok()?;
        let receives = &policy["maxReceiveCount"];
        Some(Self {
            dead_letters: policy["deadLetterTargetArn"].as_str()?.to_owned(),
            // Both a number and its digits are valid.
            max_receives: receives.as_u64().or_else(|| receives.as_str()?.parse().ok())?,
        })
    }
}

/// Judges a visibility timeout, in seconds, and the redrive policy. One command mends all that is wrong.
fn judge(check: &str, queue: &QueueArn, visibility: u64, policy: Option<&RedrivePolicy>) -> CheckFinding {
    let advised = SOURCE_VISIBILITY.as_secs();
    let timeout = INGEST_TIMEOUT.as_secs();
    let longer = max(visibility, advised);
    let dead_letters = policy.map_or("ARN_OF_A_DEAD_LETTER_QUEUE", |policy| &policy.dead_letters);
    let kept = policy.map_or(0, |policy| policy.max_receives);
    let redrive = json!({
        "deadLetterTargetArn": dead_letters, "maxReceiveCount": max(kept, OUTAGE.div_ceil(longer)).to_string(),
    });
    let attributes = json!({ "VisibilityTimeout": longer.to_string(), "RedrivePolicy": redrive.to_string() });
    let command = format!(
        "`aws sqs set-queue-attributes --queue-url {} --attributes {}`",
        quoted(&queue.url()),
        quoted(&attributes.to_string())
    );
    let Some(policy) = policy else {
        let says = "the queue has no redrive policy, so SQS deletes a message that ingest cannot store when its retention ends";
        return CheckFinding::wrong(check, says, command);
    };
    if visibility < timeout {
        let says = format!(
            "the visibility timeout of {visibility} s is shorter than ingest's timeout of {timeout} s, so \
             messages arrive twice"
        );
        return CheckFinding::wrong(check, says, command);
    }
    let receives = policy.max_receives;
    if receives.saturating_mul(visibility) < OUTAGE {
        let says = format!(
            "a message moves to the dead-letter queue after {receives} receives, {visibility} s apart; an outage of 12 h \
             moves every message"
        );
        return CheckFinding::warning(check, says, command);
    }
    if visibility < advised {
        let says =
            format!("the visibility timeout is {visibility} s; AWS advises six times ingest's timeout, {advised} s");
        return CheckFinding::warning(check, says, command);
    }
    let lasts = duration(Duration::from_secs(receives.saturating_mul(visibility)));
    CheckFinding::ok(check, format!("a message that ingest cannot store moves to the dead-letter queue after {lasts}"))
}
