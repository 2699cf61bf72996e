//! Message groups, which make a standard queue a fair queue.

use std::time::Duration;

use serializer::local::queue::{NewMessage, QueueSettings, QueuedMessage, Queues, Receive};

use crate::fixture::QUEUE;

struct GroupedQueue(Queues);

impl GroupedQueue {
    fn new() -> Self {
        Self(Queues::memory([QueueSettings::named(QUEUE)]).expect("memory"))
    }

    /// Sends messages whose body is their group.
    fn send(&self, group: Option<&str>, count: usize) {
        let body = group.unwrap_or("without a group");
        let message = NewMessage { group: group.map(str::to_owned), ..NewMessage::with_body(body) };
        (0..count).for_each(|_| drop(self.0.send(QUEUE, &message).expect("sent")));
    }

    async fn receive(&self, max_messages: usize) -> Vec<QueuedMessage> {
        let receive = Receive { max_messages, visibility_timeout: None, wait: Duration::ZERO };
        self.0.receive(QUEUE, receive).await.expect("received")
    }

    async fn bodies(&self) -> Vec<String> {
        self.receive(10).await.into_iter().map(|message| message.body).collect()
    }
}

/// The limits are those of SQS: more than a tenth of the messages in flight, and at least 30.
#[tokio::test]
async fn messages_of_noisy_group_come_last() {
    for (of_group, of_others, is_noisy) in [(29, 0, false), (30, 0, true), (30, 269, true), (30, 270, false)] {
        let queue = GroupedQueue::new();
        queue.send(None, of_others);
        queue.send(Some("flood"), of_group + 2);
        assert_eq!(queue.receive(of_others + of_group).await.len(), of_others + of_group);
        queue.send(Some("quiet"), 1);
        queue.send(None, 1);
        let expected = match is_noisy {
            true => ["quiet", "without a group", "flood", "flood"],
            false => ["flood", "flood", "quiet", "without a group"],
        };
        assert_eq!(queue.bodies().await, expected, "{of_group} in flight, and {of_others} of others");
    }
}

#[tokio::test]
async fn messages_without_a_group_are_never_noisy() {
    let queue = GroupedQueue::new();
    queue.send(None, 41);
    queue.receive(40).await;
    queue.send(Some("quiet"), 1);
    assert_eq!(queue.bodies().await, ["without a group", "quiet"]);
}

#[tokio::test]
async fn group_stays_noisy_until_its_backlog_is_received() {
    let queue = GroupedQueue::new();
    queue.send(Some("flood"), 33);
    let mut in_flight = queue.receive(30).await;
    in_flight.extend(queue.receive(1).await);
    for message in in_flight {
        queue.0.delete(QUEUE, &message.receipt_handle).expect("deleted");
    }
    queue.send(Some("quiet"), 1);
    assert_eq!(queue.bodies().await, ["quiet", "flood", "flood"]);
    assert!(queue.bodies().await.is_empty());
    queue.send(Some("flood"), 1);
    queue.send(Some("quiet"), 1);
    assert_eq!(queue.bodies().await, ["flood", "quiet"]);
}
