//! What the checks run against: the stand-in on a manual clock, or, with `SQS_ENDPOINT` set, any other server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::error::ProvideErrorMetadata;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use serializer::local::queue::clock::ManualClock;
use serializer::local::queue::{Queues, serve};
use tokio::net::TcpListener;
use webhook_serializer::aws::Account;

/// One server and a client of it.
pub struct Bench {
    pub sqs: Client,
    clock: Option<Arc<ManualClock>>,
}

impl Bench {
    /// The server that `SQS_ENDPOINT` names, else a stand-in of its own.
    pub async fn start() -> Self {
        match std::env::var("SQS_ENDPOINT") {
            Ok(endpoint) => Self { sqs: client(&endpoint), clock: None },
            Err(_) => {
                let clock = manual_clock();
                let queues = Queues::memory([]).expect("memory").with_clock(clock.clone());
                let address = serve_forever(Arc::new(queues)).await;
                Self { sqs: client(&format!("http://{address}")), clock: Some(clock) }
            }
        }
    }

    /// A new queue with these attributes; its URL.
    pub async fn queue(&self, attributes: &[(QueueAttributeName, &str)]) -> String {
        let create = self.sqs.create_queue().queue_name(unused_name());
        let create = attributes.iter().fold(create, |create, (name, value)| create.attributes(name.clone(), *value));
        create.send().await.expect("the queue is created").queue_url.expect("it has a URL")
    }

    /// Lets so many seconds pass: at once on our own clock, in earnest on another server's.
    #[expect(clippy::disallowed_methods, reason = "another server's clock cannot be advanced")]
    pub async fn pass(&self, seconds: u64) {
        match &self.clock {
            Some(clock) => clock.advance(Duration::from_secs(seconds)),
            None => tokio::time::sleep(Duration::from_millis(seconds * 1000 + 200)).await,
        }
    }

    /// Completes when a receive waits. Another server does not tell; its checks then start before the wait does, and
    /// show less.
    pub async fn until_a_receive_waits(&self) {
        self.until_receives_wait(1).await;
    }

    /// Completes when so many receives wait.
    pub async fn until_receives_wait(&self, count: usize) {
        if let Some(clock) = &self.clock {
            clock.until_waited_for_by(count).await;
        }
    }

    /// Sends a message of this body.
    pub async fn send(&self, queue: &str, body: &str) {
        self.sqs.send_message().queue_url(queue).message_body(body).send().await.expect("the message is sent");
    }

    /// Receives without waiting, up to ten messages.
    pub async fn receive(&self, queue: &str) -> Vec<Message> {
        self.receive_within(queue, 0).await
    }

    /// Receives, waiting for so many seconds.
    pub async fn receive_within(&self, queue: &str, seconds: i32) -> Vec<Message> {
        let receive = self.sqs.receive_message().queue_url(queue).max_number_of_messages(10);
        let receive = receive.wait_time_seconds(seconds);
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
        let received = receive.message_attribute_names("All").send().await.expect("the receive succeeds");
        received.messages.unwrap_or_default()
    }

    /// Receives the one message that must be there.
    pub async fn receive_one(&self, queue: &str) -> Message {
        let mut messages = self.receive(queue).await;
        assert_eq!(messages.len(), 1, "{messages:?}");
        messages.remove(0)
    }

    /// Receives into this visibility timeout the one message that must be there.
    pub async fn receive_for(&self, queue: &str, visibility_timeout: i32) -> Message {
        let receive = self.sqs.receive_message().queue_url(queue).visibility_timeout(visibility_timeout);
        let mut messages = receive.send().await.expect("the receive succeeds").messages.unwrap_or_default();
        assert_eq!(messages.len(), 1, "{messages:?}");
        messages.remove(0)
    }

    /// Deletes by this message's receipt handle.
    pub async fn delete(&self, queue: &str, message: &Message) {
        let delete = self.sqs.delete_message().queue_url(queue).set_receipt_handle(message.receipt_handle.clone());
        delete.send().await.expect("the delete succeeds");
    }

    /// Hides this message for so many seconds more.
    pub async fn hide(&self, queue: &str, message: &Message, seconds: i32) -> Result<(), String> {
        let change = self.sqs.change_message_visibility().queue_url(queue).visibility_timeout(seconds);
        let change = change.set_receipt_handle(message.receipt_handle.clone());
        change.send().await.map(drop).map_err(code)
    }

    /// The value of one of the queue's attributes; empty if it has none.
    pub async fn attribute(&self, queue: &str, name: QueueAttributeName) -> String {
        let get = self.sqs.get_queue_attributes().queue_url(queue).attribute_names(name.clone());
        let mut attributes = get.send().await.expect("the attributes").attributes.unwrap_or_default();
        attributes.remove(&name).unwrap_or_default()
    }

    /// How many messages are visible, in flight, and delayed.
    pub async fn counts(&self, queue: &str) -> [String; 3] {
        [
            self.attribute(queue, QueueAttributeName::ApproximateNumberOfMessages).await,
            self.attribute(queue, QueueAttributeName::ApproximateNumberOfMessagesNotVisible).await,
            self.attribute(queue, QueueAttributeName::ApproximateNumberOfMessagesDelayed).await,
        ]
    }
}

/// The code of a refusal, in the words of the query protocol, which is what SDKs show.
pub fn code(error: impl ProvideErrorMetadata + std::fmt::Debug) -> String {
    error.code().map_or_else(|| format!("no code: {error:?}"), ToOwned::to_owned)
}

/// A message's bodies, sorted: a standard queue promises no order.
pub fn bodies(messages: &[Message]) -> Vec<&str> {
    let mut bodies: Vec<_> = messages.iter().filter_map(|message| message.body()).collect();
    bodies.sort_unstable();
    bodies
}

/// A system attribute that must be there.
pub fn system(message: &Message, name: MessageSystemAttributeName) -> &str {
    let attributes = message.attributes().expect("system attributes");
    attributes.get(&name).unwrap_or_else(|| panic!("{name:?} in {attributes:?}"))
}

/// A clock at no particular time.
pub fn manual_clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::starting_at(Duration::from_secs(1_800_000_000)))
}

/// Serves the queues for as long as the test runs.
pub async fn serve_forever(queues: Arc<Queues>) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(serve(listener, queues, std::future::pending()));
    address
}

/// The real client; without retries, so that each check sees the first answer.
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

fn unused_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("queue-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
