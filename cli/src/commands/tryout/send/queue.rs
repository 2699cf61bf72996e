//! Puts the messages of SQS events into the queues of a local run.

use anyhow::{Context, Result, anyhow};
use aws_sdk_sqs::{error::ProvideErrorMetadata, primitives::Blob, types::MessageAttributeValue};
use base64::{Engine, engine::general_purpose::STANDARD};
use serializer::local::{
    local_queue_url,
    samples::queued::{EventAttribute, EventMessage},
};
use webhook_serializer::{
    aws::Account,
    sources::{QueueArn, Sources},
    time::Env,
};

use crate::commands::target::environment_of;

pub(super) struct LocalQueues {
    url: String,
    endpoint: String,
    sqs: aws_sdk_sqs::Client,
}

/// A message in a local queue.
pub(super) struct Queued {
    pub(super) entity: String,
    pub(super) message_id: String,
}

/// Returns the ARN of a queue that no source has, if there is one.
pub(super) fn unknown<'a>(messages: &'a [EventMessage], sources: &Sources) -> Option<&'a str> {
    let mut queues = messages.iter().map(|message| message.record.event_source_arn.as_str());
    queues.find(|queue| sources.of_queue(queue).is_none())
}

impl LocalQueues {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        let environment = environment_of(url).await?;
        let endpoint = environment.get("AWS_ENDPOINT_URL_SQS").cloned();
        let endpoint = endpoint.with_context(|| format!("{url} names no queue"))?;
        let account = Account::local("", endpoint.clone());
        Ok(Self { url: url.to_owned(), sqs: account.sqs(&account.http_client()), endpoint })
    }

    /// Sends a message to the queue that its event names.
    pub(super) async fn send(&self, message: &EventMessage, sources: &Sources) -> Result<Queued> {
        let EventMessage { record, attributes } = message;
        let arn = record.event_source_arn.as_str();
        let source = sources.of_queue(arn).with_context(|| sources.no_such_queue(arn))?;
        let queue = source.queue.as_ref().context("its source has a queue")?;
        let own = |name: &str| record.attributes.get(name).cloned();
        let mut send = self
            .sqs
            .send_message()
            .queue_url(local_queue_url(&self.endpoint, queue))
            .message_body(&record.body)
            .set_message_group_id(own("MessageGroupId"))
            .set_message_deduplication_id(own("MessageDeduplicationId"));
        for (name, attribute) in attributes {
            send = send.message_attributes(name, value(attribute).with_context(|| format!("attribute {name}"))?);
        }
        let sent = send.send().await.map_err(|error| self.explain(queue, &error))?;
        Ok(Queued {
            entity: record.receive(source, Env::system().now()).incoming.entity.to_string(),
            message_id: sent.message_id.unwrap_or_default(),
        })
    }

    fn explain(&self, queue: &QueueArn, error: &impl ProvideErrorMetadata) -> anyhow::Error {
        match (error.code(), error.message()) {
            (Some("AWS.SimpleQueueService.NonExistentQueue" | "QueueDoesNotExist"), _) => anyhow!(
                "no source of {} has queue = \"{queue}\"; start it with the same --sources FILE, or name its document",
                self.url
            ),
            (_, Some(message)) => anyhow!("the queue refuses the message: {message}"),
            _ => anyhow!("the queue at {} does not answer", self.endpoint),
        }
    }
}

fn value(attribute: &EventAttribute) -> Result<MessageAttributeValue> {
    let bytes = attribute.binary_value.as_ref().map(|bytes| STANDARD.decode(bytes)).transpose()?;
    let value = MessageAttributeValue::builder().data_type(&attribute.data_type);
    let value = value.set_string_value(attribute.string_value.clone()).set_binary_value(bytes.map(Blob::new));
    Ok(value.build()?)
}
