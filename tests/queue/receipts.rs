//! Receipt handles: `DeleteMessageBatch` and `ChangeMessageVisibilityBatch`.

use crate::fixture::{QueueFixture, bodies, code, deletion, handle, visibility};

#[tokio::test]
async fn deleted_message_does_not_return() {
    let queue = QueueFixture::with(1, 100).await;
    queue.send("done").await;
    let message = queue.receive_one().await;
    queue.delete(&message).await;
    queue.pass(1);
    assert!(queue.receive().await.is_empty());
    assert_eq!(queue.counts().await, ["0", "0", "0"]);
    // Deleting a deleted message succeeds.
    queue.delete(&message).await;
}

#[tokio::test]
async fn newest_receipt_handle_deletes_message_after_visibility_timeout() {
    let queue = QueueFixture::with(1, 100).await;
    queue.send("done late").await;
    let message = queue.receive_one().await;
    queue.pass(1);
    queue.delete(&message).await;
    assert!(queue.receive().await.is_empty());
}

#[tokio::test]
async fn older_receipt_handle_does_not_delete_message() {
    let queue = QueueFixture::start().await;
    queue.send("received twice").await;
    let first = queue.receive_for(0).await;
    let second = queue.receive_for(0).await;
    queue.delete(&first).await;
    assert_eq!(queue.counts().await, ["1", "0", "0"]);
    queue.delete(&second).await;
    assert_eq!(queue.counts().await, ["0", "0", "0"]);
}

#[tokio::test]
async fn new_visibility_timeout_counts_from_the_change_not_the_receive() {
    let queue = QueueFixture::with(2, 100).await;
    queue.send("slow").await;
    let message = queue.receive_one().await;
    queue.pass(1);
    queue.hide(&message, 3).await.expect("in flight");
    queue.pass(2);
    assert!(queue.receive().await.is_empty());
    queue.pass(1);
    queue.receive_one().await;
}

#[tokio::test]
async fn visibility_change_lasts_for_one_receive() {
    let queue = QueueFixture::with(1, 100).await;
    queue.send("returned").await;
    let message = queue.receive_one().await;
    queue.hide(&message, 0).await.expect("in flight");
    queue.receive_one().await;
    assert!(queue.receive().await.is_empty());
    queue.pass(1);
    queue.receive_one().await;
}

#[tokio::test]
async fn visibility_change_does_not_hide_visible_message() {
    let queue = QueueFixture::with(1, 100).await;
    queue.send("too late").await;
    let message = queue.receive_one().await;
    queue.pass(1);
    queue.hide(&message, 30).await.expect("SQS accepts this");
    queue.receive_one().await;
}

#[tokio::test]
async fn older_receipt_handle_changes_visibility_of_newer_receive() {
    let queue = QueueFixture::start().await;
    queue.send("received twice").await;
    let first = queue.receive_for(0).await;
    queue.receive_for(30).await;
    queue.hide(&first, 0).await.expect("in flight");
    queue.receive_one().await;
}

#[tokio::test]
async fn invalid_visibility_change_is_refused() {
    let queue = QueueFixture::start().await;
    queue.send("done").await;
    let message = queue.receive_one().await;
    for seconds in [43_201, -1] {
        assert_eq!(queue.hide(&message, seconds).await, Err("InvalidParameterValue".to_owned()));
    }
    queue.delete(&message).await;
    assert_eq!(queue.hide(&message, 30).await, Err("InvalidParameterValue".to_owned()));
}

#[tokio::test]
async fn delete_batch_deletes_only_valid_entries() {
    let queue = QueueFixture::start().await;
    for body in ["a", "b", "c"] {
        queue.send(body).await;
    }
    let messages = queue.receive().await;
    // A receipt handle works only for its own queue.
    let foreign = handle(&messages[1]).replace("wake-ups", "dead-letters");
    let delete = queue.sqs.delete_message_batch().queue_url(&queue.url);
    let delete = delete.entries(deletion("a", handle(&messages[0]))).entries(deletion("bad", "garbage"));
    let delete = delete.entries(deletion("foreign", &foreign)).entries(deletion("c", handle(&messages[2])));
    let deleted = delete.send().await.expect("answered");
    assert_eq!(deleted.successful().iter().map(|entry| entry.id()).collect::<Vec<_>>(), ["a", "c"]);
    let failed: Vec<_> = deleted.failed().iter().map(|it| (it.id(), it.code(), it.sender_fault())).collect();
    assert_eq!(failed, [("bad", "ReceiptHandleIsInvalid", true), ("foreign", "ReceiptHandleIsInvalid", true)]);
    queue.hide(&messages[1], 0).await.expect("in flight");
    assert_eq!(bodies(&queue.receive().await), bodies(&messages[1..2]));
}

#[tokio::test]
async fn visibility_batch_changes_only_valid_entries() {
    let queue = QueueFixture::start().await;
    for body in ["a", "b"] {
        queue.send(body).await;
    }
    let messages = queue.receive().await;
    let change = queue.sqs.change_message_visibility_batch().queue_url(&queue.url);
    let change = change.entries(visibility("a", handle(&messages[0]), 0)).entries(visibility("bad", "garbage", 0));
    let changed = change.entries(visibility("b", handle(&messages[1]), 30)).send().await.expect("answered");
    assert_eq!(changed.successful().iter().map(|entry| entry.id()).collect::<Vec<_>>(), ["a", "b"]);
    let failed: Vec<_> = changed.failed().iter().map(|entry| (entry.id(), entry.code())).collect();
    assert_eq!(failed, [("bad", "ReceiptHandleIsInvalid")]);
    assert_eq!(bodies(&queue.receive().await), bodies(&messages[..1]));
}

#[tokio::test]
async fn malformed_batch_request_is_refused() {
    let queue = QueueFixture::start().await;
    let eleven = (0..11).map(|number| deletion(&number.to_string(), "any")).collect();
    for (entries, refusal) in [
        (vec![], "AWS.SimpleQueueService.EmptyBatchRequest"),
        (eleven, "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"),
        (vec![deletion("same", "any"), deletion("same", "any")], "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"),
    ] {
        let delete = queue.sqs.delete_message_batch().queue_url(&queue.url).set_entries(Some(entries));
        assert_eq!(delete.send().await.map_err(code).expect_err(refusal), refusal);
    }
}
