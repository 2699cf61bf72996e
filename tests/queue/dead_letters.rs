//! Moves of messages to a dead-letter queue.

use aws_sdk_sqs::types::MessageSystemAttributeName;

use crate::fixture::{QueueFixture, bodies, counts, receive, system};

#[tokio::test]
async fn message_received_too_often_moves_to_dead_letters() {
    let queue = QueueFixture::with(0, 2).await;
    queue.send("poison").await;
    let alive = queue.receive_one().await;
    queue.receive_one().await;
    assert!(receive(&queue.sqs, &queue.dead_letters, 0).await.is_empty());
    queue.pass(1);
    assert!(queue.receive().await.is_empty());
    let dead = receive(&queue.sqs, &queue.dead_letters, 0).await.remove(0);
    assert_eq!((dead.body(), dead.message_id()), (Some("poison"), alive.message_id()));
    assert_eq!(system(&dead, MessageSystemAttributeName::ApproximateReceiveCount), "3");
    let sent = MessageSystemAttributeName::SentTimestamp;
    assert_eq!(system(&dead, sent.clone()), system(&alive, sent));
    assert_eq!(queue.counts().await, ["0", "0", "0"]);
}

#[tokio::test]
async fn deleted_message_does_not_move_to_dead_letters() {
    let queue = QueueFixture::with(0, 1).await;
    queue.send("fine").await;
    let message = queue.receive_one().await;
    queue.delete(&message).await;
    assert!(queue.receive().await.is_empty());
    assert!(receive(&queue.sqs, &queue.dead_letters, 0).await.is_empty());
}

#[tokio::test]
async fn receive_skips_messages_moved_to_dead_letters() {
    let queue = QueueFixture::with(0, 1).await;
    queue.send("poison").await;
    queue.receive_one().await;
    queue.send("fresh").await;
    assert_eq!(bodies(&queue.receive().await), ["fresh"]);
    assert_eq!(bodies(&receive(&queue.sqs, &queue.dead_letters, 0).await), ["poison"]);
}

#[tokio::test]
async fn long_poll_gets_message_moved_to_dead_letters() {
    let queue = QueueFixture::with(0, 1).await;
    queue.send("poison").await;
    queue.receive_one().await;
    let (dead, ()) = tokio::join!(receive(&queue.sqs, &queue.dead_letters, 20), async {
        queue.until_a_receive_waits().await;
        assert!(queue.receive().await.is_empty());
    });
    assert_eq!(bodies(&dead), ["poison"]);
}

#[tokio::test]
async fn receipt_handle_is_invalid_after_dead_letter_move() {
    let queue = QueueFixture::with(0, 1).await;
    queue.send("poison").await;
    let alive = queue.receive_one().await;
    assert!(queue.receive().await.is_empty());
    queue.delete(&alive).await;
    assert_eq!(counts(&queue.sqs, &queue.dead_letters).await, ["1", "0", "0"]);
}
