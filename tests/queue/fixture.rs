//! A local queue on a manual clock, and a client of it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use aws_sdk_sqs::{
    Client,
    config::{BehaviorVersion, Credentials, Region, retry::RetryConfig},
    error::ProvideErrorMetadata,
    types::{
        ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName,
        QueueAttributeName,
    },
};
use serializer::local::queue::{QueueSettings, Queues, RedrivePolicy, clock::ManualClock, queue_url, serve};
use tokio::net::TcpListener;
use webhook_serializer::aws::Account;

pub const QUEUE: &str = "wake-ups";

pub struct QueueFixture {
    pub sqs: Client,
    pub url: String,
    pub dead_letters: String,
    pub clock: Arc<ManualClock>,
}

impl QueueFixture {
    /// Serves a queue with a visibility timeout of 30 s.
    pub async fn start() -> Self {
        Self::with(30, 100).await
    }

    /// Serves a queue with this visibility timeout in seconds. After `max_receives`, a message moves to the
    /// dead-letter queue.
    pub async fn with(visibility_timeout: u64, max_receives: u32) -> Self {
        let clock = manual_clock();
        let settings = QueueSettings {
            visibility_timeout: Duration::from_secs(visibility_timeout),
            redrive: Some(RedrivePolicy { dead_letters: "dead-letters".to_owned(), max_receives }),
            ..QueueSettings::named(QUEUE)
        };
        let queues = Queues::memory([QueueSettings::named("dead-letters"), settings]).expect("memory");
        let address = serve_forever(queues.with_clock(clock.clone())).await;
        Self {
            sqs: client(&format!("http://{address}")),
            url: queue_url(address, QUEUE),
            dead_letters: queue_url(address, "dead-letters"),
            clock,
        }
    }

    pub fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub async fn until_a_receive_waits(&self) {
        self.clock.until_waited_for_by(1).await;
    }

    pub async fn send(&self, body: &str) {
        self.sqs.send_message().queue_url(&self.url).message_body(body).send().await.expect("sent");
    }

    pub async fn send_delayed(&self, body: &str, seconds: i32) -> Result<(), String> {
        let send = self.sqs.send_message().queue_url(&self.url).message_body(body).delay_seconds(seconds);
        send.send().await.map(drop).map_err(code)
    }

    /// Receives up to ten messages without waiting.
    pub async fn receive(&self) -> Vec<Message> {
        receive(&self.sqs, &self.url, 0).await
    }

    pub async fn receive_within(&self, seconds: i32) -> Vec<Message> {
        receive(&self.sqs, &self.url, seconds).await
    }

    pub async fn receive_one(&self) -> Message {
        let [message] = <[Message; 1]>::try_from(self.receive().await).expect("one message");
        message
    }

    /// Receives one message with this visibility timeout in seconds.
    pub async fn receive_for(&self, visibility_timeout: i32) -> Message {
        let receive = self.sqs.receive_message().queue_url(&self.url).visibility_timeout(visibility_timeout);
        let messages = receive.send().await.expect("received").messages.unwrap_or_default();
        let [message] = <[Message; 1]>::try_from(messages).expect("one message");
        message
    }

    pub async fn delete(&self, message: &Message) {
        let delete = self.sqs.delete_message_batch().queue_url(&self.url).entries(deletion("0", handle(message)));
        let deleted = delete.send().await.expect("answered");
        assert!(deleted.failed().is_empty(), "{deleted:?}");
    }

    pub async fn hide(&self, message: &Message, seconds: i32) -> Result<(), String> {
        let entry = visibility("0", handle(message), seconds);
        let change = self.sqs.change_message_visibility_batch().queue_url(&self.url).entries(entry);
        let changed = change.send().await.expect("answered");
        changed.failed().first().map_or(Ok(()), |failed| Err(failed.code().to_owned()))
    }

    /// Counts visible, in-flight and delayed messages.
    pub async fn counts(&self) -> [String; 3] {
        counts(&self.sqs, &self.url).await
    }
}

pub async fn receive(sqs: &Client, url: &str, seconds: i32) -> Vec<Message> {
    let receive = sqs.receive_message().queue_url(url).max_number_of_messages(10).wait_time_seconds(seconds);
    let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
    receive.send().await.expect("received").messages.unwrap_or_default()
}

pub async fn counts(sqs: &Client, url: &str) -> [String; 3] {
    let get = sqs.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All);
    let mut attributes = get.send().await.expect("answered").attributes.expect("attributes");
    [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        QueueAttributeName::ApproximateNumberOfMessagesDelayed,
    ]
    .map(|name| attributes.remove(&name).expect("a count"))
}

pub fn deletion(id: &str, handle: &str) -> DeleteMessageBatchRequestEntry {
    DeleteMessageBatchRequestEntry::builder().id(id).receipt_handle(handle).build().expect("both are set")
}

pub fn visibility(id: &str, handle: &str, seconds: i32) -> ChangeMessageVisibilityBatchRequestEntry {
    let change = ChangeMessageVisibilityBatchRequestEntry::builder().id(id).receipt_handle(handle);
    change.visibility_timeout(seconds).build().expect("both are set")
}

pub fn handle(message: &Message) -> &str {
    message.receipt_handle().expect("a receipt handle")
}

/// Returns a refusal's code. SDKs show it in the form of the older query protocol.
pub fn code(error: impl ProvideErrorMetadata + std::fmt::Debug) -> String {
    error.code().map_or_else(|| format!("no code: {error:?}"), ToOwned::to_owned)
}

/// Returns the bodies, sorted, because a standard queue promises no order.
pub fn bodies(messages: &[Message]) -> Vec<&str> {
    let mut bodies: Vec<_> = messages.iter().filter_map(|message| message.body()).collect();
    bodies.sort_unstable();
    bodies
}

pub fn system(message: &Message, name: MessageSystemAttributeName) -> &str {
    let attributes = message.attributes().expect("system attributes");
    attributes.get(&name).unwrap_or_else(|| panic!("{name:?} in {attributes:?}"))
}

pub fn manual_clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::starting_at(Duration::from_secs(1_800_000_000)))
}

/// Serves the queues for as long as the test runs.
pub async fn serve_forever(queues: Queues) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(serve(listener, Arc::new(queues), std::future::pending()));
    address
}

/// Returns a client without retries, so that each test sees the first answer.
pub fn client(endpoint: &str) -> Client {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(Account::local("", "").http_client())
        .credentials_provider(Credentials::from_keys("key", "secret", None))
        .region(Region::new("us-east-1"))
        .retry_config(RetryConfig::disabled())
        .endpoint_url(endpoint);
    Client::from_conf(config.build())
}
