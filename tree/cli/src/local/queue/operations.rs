//! SQS's operations: from what travelled to [`Queues`] and back.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::batch;
use super::error::{Code, QueueError};
use super::limits::{self, MESSAGE_BYTES};
use super::message::{Message, MessageAttribute, NewMessage, Sent, md5_of_attributes};
use super::queues::{Queues, Receive};
use super::settings::{ACCOUNT, QueueSettings, check_attribute_name};
use super::wire::*;

/// The queues as seen from one address, which their URLs name.
pub(super) struct Operations<'a> {
    pub(super) queues: &'a Queues,
    pub(super) address: SocketAddr,
    /// The trace header that the request came under; a message without one of its own takes it, as in SQS.
    pub(super) trace_header: Option<String>,
}

impl Operations<'_> {
    pub(super) fn send_message(&self, request: SendMessage) -> Result<SentReceipt, QueueError> {
        let message = self.new_message(request.message)?;
        self.queues.send(name_in(&request.queue_url)?, message).map(Into::into)
    }

    pub(super) fn send_message_batch(
        &self,
        request: BatchRequest<SentMessage>,
    ) -> Result<BatchAnswer<SentReceipt>, QueueError> {
        let queue = name_in(&request.queue_url)?;
        self.queues.describe(queue)?;
        batch::check(&request.entries, "SendMessageBatchRequestEntry")?;
        let messages = request.entries.into_iter().map(|it| (it.id, self.new_message(it.entry)));
        let messages: Vec<_> = messages.collect();
        let size: usize = messages.iter().filter_map(|(_, it)| it.as_ref().ok()).map(NewMessage::size).sum();
        if size > MESSAGE_BYTES {
            let message =
                format!("Batch requests cannot be longer than {MESSAGE_BYTES} bytes. You have sent {size} bytes.");
            return Err(QueueError::new(Code::BatchRequestTooLong, message));
        }
        // Those that could be read go in together; their outcomes come back in the same order.
        let readable = messages.iter().filter_map(|(_, message)| message.as_ref().ok()).cloned();
        let mut sent = self.queues.send_all(queue, readable)?.into_iter();
        Ok(batch::answer(messages.into_iter().map(|(id, message)| {
            let outcome = message.and_then(|_| sent.next().expect("one outcome for each message"));
            (id, outcome.map(Into::into))
        })))
    }

    pub(super) async fn receive_message(&self, request: ReceiveMessage) -> Result<Received, QueueError> {
        let queue = name_in(&request.queue_url)?;
        let system_names: Vec<_> =
            request.message_system_attribute_names.into_iter().chain(request.attribute_names).collect();
        let receive = Receive {
            max_messages: limits::check_receive_count(request.max_number_of_messages.unwrap_or(1))?,
            visibility_timeout: request.visibility_timeout.map(|it| limits::VISIBILITY.parse(it)).transpose()?,
            wait: request.wait_time_seconds.map(|it| limits::WAIT.parse(it)).transpose()?,
        };
        let messages = self.queues.receive(queue, receive).await?;
        let messages = messages.into_iter().map(|it| received(it, &system_names, &request.message_attribute_names));
        Ok(Received { messages: messages.collect() })
    }

    pub(super) fn delete_message(&self, request: DeleteMessage) -> Result<Nothing, QueueError> {
        self.queues.delete(name_in(&request.queue_url)?, &request.deleted.receipt_handle)?;
        Ok(Nothing {})
    }

    pub(super) fn delete_message_batch(
        &self,
        request: BatchRequest<Deleted>,
    ) -> Result<BatchAnswer<Nothing>, QueueError> {
        let queue = name_in(&request.queue_url)?;
        self.queues.describe(queue)?;
        batch::check(&request.entries, "DeleteMessageBatchRequestEntry")?;
        let delete = |it: Deleted| self.queues.delete(queue, &it.receipt_handle).map(|()| Nothing {});
        Ok(batch::answer(request.entries.into_iter().map(|it| (it.id, delete(it.entry)))))
    }

    pub(super) fn change_message_visibility(&self, request: ChangeMessageVisibility) -> Result<Nothing, QueueError> {
        self.change_visibility(name_in(&request.queue_url)?, request.changed)
    }

    pub(super) fn change_message_visibility_batch(
        &self,
        request: BatchRequest<ChangedVisibility>,
    ) -> Result<BatchAnswer<Nothing>, QueueError> {
        let queue = name_in(&request.queue_url)?;
        self.queues.describe(queue)?;
        batch::check(&request.entries, "ChangeMessageVisibilityBatchRequestEntry")?;
        let entries = request.entries.into_iter();
        Ok(batch::answer(entries.map(|it| (it.id, self.change_visibility(queue, it.entry)))))
    }

    fn change_visibility(&self, queue: &str, request: ChangedVisibility) -> Result<Nothing, QueueError> {
        let seconds = request.visibility_timeout.ok_or_else(|| QueueError::missing("VisibilityTimeout"))?;
        self.queues.change_visibility(queue, &request.receipt_handle, limits::VISIBILITY.parse(seconds)?)?;
        Ok(Nothing {})
    }

    pub(super) fn purge_queue(&self, request: OfQueue) -> Result<Nothing, QueueError> {
        self.queues.purge(name_in(&request.queue_url)?)?;
        Ok(Nothing {})
    }

    pub(super) fn get_queue_url(&self, request: GetQueueUrl) -> Result<Url, QueueError> {
        self.queues.describe(&request.queue_name)?;
        Ok(Url { queue_url: queue_url(self.address, &request.queue_name) })
    }

    /// Creates the queue, or finds it with the attributes given.
    pub(super) fn create_queue(&self, request: CreateQueue) -> Result<Url, QueueError> {
        let existing = self.queues.describe(&request.queue_name).ok().map(|it| it.settings);
        let mut wanted = existing.clone().unwrap_or_else(|| QueueSettings::named(&request.queue_name));
        wanted.set(&request.attributes)?;
        match existing {
            None => self.queues.put(wanted)?,
            Some(existing) if existing == wanted => {}
            Some(_) => {
                let message = "A queue already exists with the same name and a different value for an attribute";
                return Err(QueueError::new(Code::QueueNameExists, message));
            }
        }
        Ok(Url { queue_url: queue_url(self.address, &request.queue_name) })
    }

    pub(super) fn list_queues(&self, request: ListQueues) -> Result<Urls, QueueError> {
        let names = self.queues.names().into_iter().filter(|name| name.starts_with(&request.queue_name_prefix));
        Ok(Urls { queue_urls: names.map(|name| queue_url(self.address, &name)).collect() })
    }

    pub(super) fn get_queue_attributes(&self, request: GetQueueAttributes) -> Result<Attributes, QueueError> {
        let queue = name_in(&request.queue_url)?;
        let described = self.queues.describe(queue)?;
        request.attribute_names.iter().try_for_each(|name| check_attribute_name(name))?;
        let counts = self.queues.counts(queue)?;
        let mut attributes = described.settings.attributes();
        attributes.extend([
            ("ApproximateNumberOfMessages".to_owned(), counts.visible.to_string()),
            ("ApproximateNumberOfMessagesNotVisible".to_owned(), counts.in_flight.to_string()),
            ("ApproximateNumberOfMessagesDelayed".to_owned(), counts.delayed.to_string()),
            ("CreatedTimestamp".to_owned(), described.created_at.as_secs().to_string()),
            ("LastModifiedTimestamp".to_owned(), described.modified_at.as_secs().to_string()),
            ("QueueArn".to_owned(), described.settings.arn()),
        ]);
        attributes.retain(|name, _| asked_for(&request.attribute_names, name));
        Ok(Attributes { attributes })
    }

    pub(super) fn set_queue_attributes(&self, request: SetQueueAttributes) -> Result<Nothing, QueueError> {
        let mut settings = self.queues.describe(name_in(&request.queue_url)?)?.settings;
        settings.set(&request.attributes)?;
        self.queues.put(settings)?;
        Ok(Nothing {})
    }

    fn new_message(&self, message: SentMessage) -> Result<NewMessage, QueueError> {
        let mut attributes = BTreeMap::new();
        for (name, value) in message.message_attributes {
            attributes.insert(name.clone(), text_attribute(&name, value)?);
        }
        let mut system = message.message_system_attributes;
        let own_header = system.remove("AWSTraceHeader").and_then(|it| it.string_value);
        Ok(NewMessage {
            body: message.message_body.unwrap_or_default(),
            delay: message.delay_seconds.map(|seconds| limits::DELAY.parse(seconds)).transpose()?,
            attributes,
            trace_header: own_header.or_else(|| self.trace_header.clone()),
            group_id: message.message_group_id,
        })
    }
}

/// A queue's URL at this address.
pub fn queue_url(address: SocketAddr, name: &str) -> String {
    format!("http://{address}/{ACCOUNT}/{name}")
}

/// A queue's name is the last part of its URL; the rest is not looked at, so that any way to this machine will do.
fn name_in(queue_url: &str) -> Result<&str, QueueError> {
    queue_url.rsplit('/').next().filter(|name| !name.is_empty()).ok_or_else(QueueError::no_such_queue)
}

fn text_attribute(name: &str, value: AttributeValue) -> Result<MessageAttribute, QueueError> {
    let AttributeValue { data_type, string_value } = value;
    if data_type.starts_with("Binary") {
        let message = format!("Message attribute {name}: the local stand-in takes no binary values.");
        return Err(QueueError::new(Code::UnsupportedOperation, message));
    }
    match string_value.filter(|value| !value.is_empty()) {
        Some(string_value) => Ok(MessageAttribute { data_type, string_value }),
        None => {
            let message =
                format!("Message (user) attribute '{name}' must contain a non-empty value of type '{data_type}'.");
            Err(QueueError::new(Code::InvalidParameterValue, message))
        }
    }
}

fn received(message: Message, system_names: &[String], names: &[String]) -> ReceivedMessage {
    let mut attributes = message.system_attributes();
    attributes.retain(|name, _| asked_for(system_names, name));
    let md5_of_body = message.md5_of_body();
    let mut message_attributes = message.attributes;
    message_attributes.retain(|name, _| asked_for(names, name));
    ReceivedMessage {
        message_id: message.message_id,
        receipt_handle: message.receipt_handle,
        md5_of_body,
        body: message.body,
        attributes,
        md5_of_message_attributes: md5_of_attributes(&message_attributes),
        message_attributes,
    }
}

/// Whether a list of names, with SQS's wildcards, asks for this one.
fn asked_for(names: &[String], name: &str) -> bool {
    names.iter().any(|asked| match asked.strip_suffix(".*") {
        Some(prefix) => name.starts_with(prefix),
        None => asked == "All" || asked == name,
    })
}

impl From<Sent> for SentReceipt {
    fn from(sent: Sent) -> Self {
        Self {
            message_id: sent.message_id,
            md5_of_message_body: sent.md5_of_body,
            md5_of_message_attributes: sent.md5_of_attributes,
        }
    }
}
