//! Sends messages through SQS. Only this file uses the client of SQS.

use std::{sync::Arc, time::Duration};

use aws_sdk_sqs::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    types::{ChangeMessageVisibilityBatchRequestEntry, QueueAttributeName},
};
use futures_util::future::BoxFuture;

use crate::aws::{meter::Meter, unanswered};
use crate::engine::queue::{Depth, Message, Queue, QueueError, Visibility, delay_seconds};

#[derive(Debug, Clone)]
pub struct SqsQueue {
    client: Client,
    url: String,
    is_fair: bool,
    meter: Option<Arc<Meter>>,
}

impl SqsQueue {
    pub fn new(client: Client, url: impl Into<String>) -> Self {
        Self { client, url: url.into(), is_fair: false, meter: None }
    }

    /// Sends each message with the hash of its entity's account as `MessageGroupId`. With such messages, a standard
    /// queue is a [fair queue], which hands out other accounts' messages before one account's backlog. Two accounts
    /// with the same hash would only share a backlog's delay.
    ///
    /// [fair queue]: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html
    #[must_use]
    pub fn fair(mut self) -> Self {
        self.is_fair = true;
        self
    }

    #[must_use]
    pub fn metered(mut self, meter: Arc<Meter>) -> Self {
        self.meter = Some(meter);
        self
    }

    async fn send_once(&self, message: &Message, delay: Duration) -> Result<(), QueueError> {
        let seconds = delay_seconds(delay);
        if let Some(meter) = &self.meter {
            meter.sent();
        }
        self.client
            .send_message()
            .queue_url(&self.url)
            .message_body(message.text())
            .delay_seconds(i32::try_from(seconds).unwrap_or(i32::MAX))
            .set_message_group_id(self.is_fair.then(|| message.entity().account_hash()))
            .send()
            .await
            .map(|_| ())
            .map_err(|error| describe(&error))
    }

    async fn hide_once(&self, receipts: &[String], time: Duration) -> Result<(), QueueError> {
        let seconds = i32::try_from(time.as_millis().div_ceil(1000)).unwrap_or(i32::MAX);
        let entries = receipts.iter().enumerate().map(|(number, receipt)| {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder();
            entry.id(number.to_string()).receipt_handle(receipt).visibility_timeout(seconds).build()
        });
        let entries: Result<Vec<_>, _> = entries.collect();
        if let Some(meter) = &self.meter {
            meter.extended();
        }
        let answer = self
            .client
            .change_message_visibility_batch()
            .queue_url(&self.url)
            .set_entries(Some(entries.expect("each has an id and a receipt")))
            .send()
            .await
            .map_err(|error| describe(&error))?;
        match answer.failed().first() {
            None => Ok(()),
            Some(failed) => Err(QueueError::Unavailable(failed.code().to_owned())),
        }
    }

    async fn waiting_now(&self) -> Result<u64, QueueError> {
        let name = QueueAttributeName::ApproximateNumberOfMessages;
        let answer = self
            .client
            .get_queue_attributes()
            .queue_url(&self.url)
            .attribute_names(name.clone())
            .send()
            .await
            .map_err(|error| describe(&error))?;
        let count = answer.attributes.and_then(|mut attributes| attributes.remove(&name));
        count
            .and_then(|count| count.parse().ok())
            .ok_or_else(|| QueueError::Unavailable("the queue does not say how many messages it has".into()))
    }
}

fn describe<E: ProvideErrorMetadata>(error: &SdkError<E>) -> QueueError {
    QueueError::Unavailable(match error {
        SdkError::ServiceError(service) => {
            return QueueError::from_code(service.err().code().unwrap_or("no error code"));
        }
        SdkError::TimeoutError(_) => "time-out".to_owned(),
        SdkError::DispatchFailure(failed) => unanswered(failed.as_connector_error()),
        _ => "the answer could not be read".to_owned(),
    })
}

// The queue's operations are several traits, so that a function contains only the code it uses.

impl Queue for SqsQueue {
    fn send<'a>(&'a self, message: &'a Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(self.send_once(message, delay))
    }
}

impl Visibility for SqsQueue {
    fn hide<'a>(&'a self, receipts: &'a [String], time: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(self.hide_once(receipts, time))
    }
}

impl Depth for SqsQueue {
    fn waiting(&self) -> BoxFuture<'_, Result<u64, QueueError>> {
        Box::pin(self.waiting_now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        aws::Account,
        engine::queue::WakeUp,
        protocol::entity::EntityKey,
        tls::endpoint::{Endpoint, EndpointReply},
    };

    /// Returns the request with which a wake-up is sent.
    async fn request(fair: fn(SqsQueue) -> SqsQueue) -> String {
        let mut endpoint = Endpoint::start(|_| EndpointReply::status(200)).await;
        let account = Account::local(endpoint.url(), endpoint.url());
        let queue = fair(SqsQueue::new(account.sqs(&account.http_client()), "http://127.0.0.1/1/wake-ups"));
        let wake_up = WakeUp::of(&EntityKey::parse("shopify/acme.example/order/1").unwrap());
        // The endpoint's answer is empty, which does not matter here.
        let _ = queue.send(&wake_up.into(), Duration::from_secs(3)).await;
        String::from_utf8(endpoint.posted().await.body).unwrap()
    }

    #[tokio::test]
    async fn only_a_fair_queue_gets_the_accounts_group() {
        let common = r#"{"QueueUrl":"http://127.0.0.1/1/wake-ups","MessageBody":"{\"entity\":\"shopify/acme.example/order/1\"}","DelaySeconds":3"#;
        assert_eq!(request(|queue| queue).await, format!("{common}}}"));
        let group = EntityKey::parse("shopify/acme.example/order/2").unwrap().account_hash();
        assert_eq!(request(SqsQueue::fair).await, format!(r#"{common},"MessageGroupId":"{group}"}}"#));
    }
}
