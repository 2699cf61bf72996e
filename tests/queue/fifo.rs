//! FIFO queues: the order of a group, and repeats.

use std::{sync::Arc, time::Duration};

use aws_sdk_sqs::types::{Message, MessageAttributeValue, SendMessageBatchRequestEntry};
use serializer::local::queue::{QueueSettings, Queues, clock::ManualClock, queue_url};

use crate::fixture::{bodies, client, code, deletion, handle, manual_clock, receive, serve_forever};

struct FifoQueue {
    sqs: aws_sdk_sqs::Client,
    url: String,
    clock: Arc<ManualClock>,
}

impl FifoQueue {
    async fn start() -> Self {
        let clock = manual_clock();
        let name = "eu-central-1/123456789012/orders.fifo";
        let address = serve_forever(Queues::memory([QueueSettings::named(name)]).unwrap().with_clock(clock.clone()));
        let address = address.await;
        Self { sqs: client(&format!("http://{address}")), url: queue_url(address, name), clock }
    }

    async fn send(&self, id: &str, group: &str) -> Result<String, String> {
        let send = self.sqs.send_message().queue_url(&self.url).message_body(id).message_group_id(group);
        let sent = send.message_deduplication_id(id).send().await.map_err(code)?;
        Ok(sent.message_id.expect("an id"))
    }

    async fn receive(&self) -> Vec<Message> {
        receive(&self.sqs, &self.url, 0).await
    }

    async fn delete(&self, message: &Message) {
        let delete = self.sqs.delete_message_batch().queue_url(&self.url).entries(deletion("0", handle(message)));
        delete.send().await.expect("deleted");
    }
}

fn in_order(messages: &[Message]) -> Vec<&str> {
    messages.iter().filter_map(|message| message.body()).collect()
}

#[tokio::test]
async fn group_waits_until_its_earlier_messages_are_deleted() {
    let queue = FifoQueue::start().await;
    for (id, group) in [("a1", "a"), ("b1", "b"), ("a2", "a")] {
        queue.send(id, group).await.expect("sent");
    }
    let first = queue.receive().await;
    assert_eq!(in_order(&first), ["a1", "b1", "a2"]);
    for (id, group) in [("a3", "a"), ("c1", "c")] {
        queue.send(id, group).await.expect("sent");
    }
    assert_eq!(in_order(&queue.receive().await), ["c1"]);
    queue.delete(&first[0]).await;
    assert!(queue.receive().await.is_empty());
    // The message of `a` that was not deleted is received again, in front of the later one.
    queue.clock.advance(Duration::from_secs(30));
    assert_eq!(in_order(&queue.receive().await), ["b1", "a2", "a3", "c1"]);
}

#[tokio::test]
async fn delete_wakes_receive_that_waits_for_the_group() {
    let queue = FifoQueue::start().await;
    queue.send("a1", "a").await.expect("sent");
    let first = queue.receive().await;
    queue.send("a2", "a").await.expect("sent");
    let (second, ()) = tokio::join!(receive(&queue.sqs, &queue.url, 20), async {
        queue.clock.until_waited_for_by(1).await;
        queue.delete(&first[0]).await;
    });
    assert_eq!(bodies(&second), ["a2"]);
}

#[tokio::test]
async fn repeat_within_five_minutes_is_dropped() {
    let queue = FifoQueue::start().await;
    let first = queue.send("a1", "a").await.expect("sent");
    let received = queue.receive().await;
    queue.delete(&received[0]).await;
    queue.clock.advance(Duration::from_secs(299));
    assert_eq!(queue.send("a1", "a").await, Ok(first.clone()));
    assert!(queue.receive().await.is_empty());
    queue.clock.advance(Duration::from_secs(1));
    assert_ne!(queue.send("a1", "a").await, Ok(first));
    assert_eq!(in_order(&queue.receive().await), ["a1"]);
}

#[tokio::test]
async fn message_that_does_not_fit_the_queue_type_is_refused() {
    let queue = FifoQueue::start().await;
    let send = || queue.sqs.send_message().queue_url(&queue.url).message_body("a");
    for (refused, expected) in [
        (send().message_deduplication_id("a"), "MissingParameter"),
        (send().message_group_id("a"), "InvalidParameterValue"),
        (send().message_group_id("a").message_deduplication_id("a").delay_seconds(1), "InvalidParameterValue"),
        (send().message_group_id("a").message_deduplication_id("a b"), "InvalidParameterValue"),
    ] {
        assert_eq!(refused.send().await.map_err(code).expect_err("unfit"), expected);
    }
    let standard = crate::fixture::QueueFixture::start().await;
    let unfit = standard.sqs.send_message().queue_url(&standard.url).message_body("a").message_deduplication_id("a");
    assert_eq!(unfit.send().await.map_err(code).expect_err("unfit"), "InvalidParameterValue");
}

#[tokio::test]
async fn batch_is_sent_in_its_order() {
    let queue = FifoQueue::start().await;
    let entry = |id: &str| {
        let entry = SendMessageBatchRequestEntry::builder().id(id).message_body(id).message_group_id("a");
        entry.message_deduplication_id(id).build().expect("it is complete")
    };
    let unfit = SendMessageBatchRequestEntry::builder().id("c").message_body("c").build().expect("it is complete");
    let batch = queue.sqs.send_message_batch().queue_url(&queue.url).entries(entry("b")).entries(unfit);
    let sent = batch.entries(entry("a")).send().await.expect("answered");
    let failed: Vec<&str> = sent.failed().iter().map(|failed| failed.id()).collect();
    assert_eq!((sent.successful().len(), failed), (2, vec!["c"]));
    assert_eq!(in_order(&queue.receive().await), ["b", "a"]);
}

/// Python's `hashlib` calculated the digest by AWS's rules.
#[tokio::test]
async fn attributes_have_a_digest_and_need_a_value() {
    let queue = crate::fixture::QueueFixture::start().await;
    let send = |value: MessageAttributeValue| {
        queue.sqs.send_message().queue_url(&queue.url).message_body("a").message_attributes("name", value).send()
    };
    let text = MessageAttributeValue::builder().data_type("String");
    let sent = send(text.clone().string_value("value").build().expect("it is complete")).await.expect("sent");
    assert_eq!(sent.md5_of_message_attributes(), Some("25ada41cad9d6e55ad5a2b3d2da508a2"));
    for unfit in
        [text.clone(), text.string_value(""), MessageAttributeValue::builder().data_type("Text").string_value("a")]
    {
        let refused = send(unfit.build().expect("it is complete")).await;
        assert_eq!(refused.map_err(code).expect_err("unfit"), "InvalidParameterValue");
    }
}
