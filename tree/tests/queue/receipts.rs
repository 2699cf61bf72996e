//! Checks of what a receipt handle does: `DeleteMessage`, `ChangeMessageVisibility`, and both in batches.

use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message, QueueAttributeName,
};

use crate::bench::{bodies, code};
use crate::check_list;

fn deletion(id: &str, handle: &str) -> DeleteMessageBatchRequestEntry {
    DeleteMessageBatchRequestEntry::builder().id(id).receipt_handle(handle).build().expect("both are set")
}

fn change(id: &str, handle: &str, seconds: i32) -> ChangeMessageVisibilityBatchRequestEntry {
    let change = ChangeMessageVisibilityBatchRequestEntry::builder().id(id).receipt_handle(handle);
    change.visibility_timeout(seconds).build().expect("both are set")
}

fn handle(message: &Message) -> &str {
    message.receipt_handle().expect("a received message has one")
}

check_list! {
    async fn a_deleted_message_does_not_come_back(bench) {
        let queue = bench.queue(&[(QueueAttributeName::VisibilityTimeout, "1")]).await;
        bench.send(&queue, "done").await;
        let message = bench.receive_one(&queue).await;
        bench.delete(&queue, &message).await;
        bench.pass(1).await;
        assert!(bench.receive(&queue).await.is_empty());
        assert_eq!(bench.counts(&queue).await, ["0", "0", "0"]);
    }

    async fn deleting_again_succeeds(bench) {
        let queue = bench.queue(&[]).await;
        bench.send(&queue, "done").await;
        let message = bench.receive_one(&queue).await;
        bench.delete(&queue, &message).await;
        bench.delete(&queue, &message).await;
    }

    async fn the_latest_handle_deletes_even_after_the_visibility_timeout(bench) {
        let queue = bench.queue(&[(QueueAttributeName::VisibilityTimeout, "1")]).await;
        bench.send(&queue, "done late").await;
        let message = bench.receive_one(&queue).await;
        bench.pass(1).await;
        bench.delete(&queue, &message).await;
        assert!(bench.receive(&queue).await.is_empty());
    }

    async fn an_older_handle_succeeds_without_deleting(bench) {
        let queue = bench.queue(&[]).await;
        bench.send(&queue, "received twice").await;
        let first = bench.receive_for(&queue, 0).await;
        let second = bench.receive_for(&queue, 0).await;
        bench.delete(&queue, &first).await;
        assert_eq!(bench.counts(&queue).await, ["1", "0", "0"]);
        bench.delete(&queue, &second).await;
        assert_eq!(bench.counts(&queue).await, ["0", "0", "0"]);
    }

    async fn what_is_no_receipt_handle_is_refused(bench) {
        let queue = bench.queue(&[]).await;
        let refused = bench.sqs.delete_message().queue_url(&queue).receipt_handle("garbage").send().await;
        let refused = refused.expect_err("no handle").into_service_error();
        assert!(refused.is_receipt_handle_is_invalid(), "{refused:?}");
        let change = bench.sqs.change_message_visibility().queue_url(&queue).receipt_handle("garbage");
        let refused = change.visibility_timeout(1).send().await.expect_err("no handle").into_service_error();
        assert!(refused.is_receipt_handle_is_invalid(), "{refused:?}");
    }

    async fn another_queues_receipt_handle_is_refused(bench) {
        let queue = bench.queue(&[]).await;
        let other = bench.queue(&[]).await;
        bench.send(&queue, "here").await;
        let message = bench.receive_one(&queue).await;
        let delete = bench.sqs.delete_message().queue_url(&other).receipt_handle(handle(&message));
        let refused = delete.send().await.expect_err("not its handle").into_service_error();
        assert!(refused.is_receipt_handle_is_invalid(), "{refused:?}");
    }

    async fn a_message_is_hidden_anew_from_the_time_of_the_change(bench) {
        let queue = bench.queue(&[(QueueAttributeName::VisibilityTimeout, "2")]).await;
        bench.send(&queue, "slow").await;
        let message = bench.receive_one(&queue).await;
        bench.pass(1).await;
        bench.hide(&queue, &message, 3).await.expect("it is in flight");
        bench.pass(2).await;
        assert!(bench.receive(&queue).await.is_empty());
        bench.pass(1).await;
        bench.receive_one(&queue).await;
    }

    async fn a_message_hidden_for_no_time_is_visible_at_once(bench) {
        let queue = bench.queue(&[]).await;
        bench.send(&queue, "given back").await;
        let message = bench.receive_one(&queue).await;
        bench.hide(&queue, &message, 0).await.expect("it is in flight");
        bench.receive_one(&queue).await;
    }

    async fn a_change_lasts_for_one_receive(bench) {
        let queue = bench.queue(&[(QueueAttributeName::VisibilityTimeout, "1")]).await;
        bench.send(&queue, "given back").await;
        let message = bench.receive_one(&queue).await;
        bench.hide(&queue, &message, 0).await.expect("it is in flight");
        bench.receive_one(&queue).await;
        assert!(bench.receive(&queue).await.is_empty());
        bench.pass(1).await;
        bench.receive_one(&queue).await;
    }

    async fn a_message_that_is_visible_again_stays_visible(bench) {
        let queue = bench.queue(&[(QueueAttributeName::VisibilityTimeout, "1")]).await;
        bench.send(&queue, "too late").await;
        let message = bench.receive_one(&queue).await;
        bench.pass(1).await;
        bench.hide(&queue, &message, 30).await.expect("SQS answers that all is well");
        bench.receive_one(&queue).await;
    }

    async fn an_older_handle_changes_the_visibility_under_the_newer_one(bench) {
        let queue = bench.queue(&[]).await;
        bench.send(&queue, "received twice").await;
        let first = bench.receive_for(&queue, 0).await;
        bench.receive_for(&queue, 30).await;
        bench.hide(&queue, &first, 0).await.expect("the message is in flight");
        bench.receive_one(&queue).await;
    }

    async fn the_visibility_of_a_deleted_message_cannot_be_changed(bench) {
        let queue = bench.queue(&[]).await;
        bench.send(&queue, "done").await;
        let message = bench.receive_one(&queue).await;
        bench.delete(&queue, &message).await;
        assert_eq!(bench.hide(&queue, &message, 30).await, Err("InvalidParameterValue".to_owned()));
    }

    async fn a_message_is_not_hidden_for_more_than_twelve_hours(bench) {
        let queue = bench.queue(&[]).await;
        bench.send(&queue, "slow").await;
        let message = bench.receive_one(&queue).await;
        assert_eq!(bench.hide(&queue, &message, 43_201).await, Err("InvalidParameterValue".to_owned()));
        assert_eq!(bench.hide(&queue, &message, -1).await, Err("InvalidParameterValue".to_owned()));
    }

    async fn a_batch_deletes_what_it_can(bench) {
        let queue = bench.queue(&[]).await;
        for body in ["a", "b", "c"] {
            bench.send(&queue, body).await;
        }
        let messages = bench.receive(&queue).await;
        let delete = bench.sqs.delete_message_batch().queue_url(&queue).entries(deletion("a", handle(&messages[0])));
        let delete = delete.entries(deletion("bad", "garbage")).entries(deletion("c", handle(&messages[2])));
        let deleted = delete.send().await.expect("deleted in part");
        let good: Vec<_> = deleted.successful().iter().map(|it| it.id()).collect();
        assert_eq!(good, ["a", "c"]);
        let bad: Vec<_> = deleted.failed().iter().map(|it| (it.id(), it.code(), it.sender_fault())).collect();
        assert_eq!(bad, [("bad", "ReceiptHandleIsInvalid", true)]);
        bench.hide(&queue, &messages[1], 0).await.expect("it is in flight");
        assert_eq!(bodies(&bench.receive(&queue).await), bodies(&messages[1..2]));
    }

    async fn a_batch_changes_what_it_can(bench) {
        let queue = bench.queue(&[]).await;
        for body in ["a", "b"] {
            bench.send(&queue, body).await;
        }
        let messages = bench.receive(&queue).await;
        let change_all = bench.sqs.change_message_visibility_batch().queue_url(&queue);
        let change_all = change_all.entries(change("a", handle(&messages[0]), 0)).entries(change("bad", "garbage", 0));
        let changed = change_all.entries(change("b", handle(&messages[1]), 30)).send().await.expect("changed in part");
        let good: Vec<_> = changed.successful().iter().map(|it| it.id()).collect();
        assert_eq!(good, ["a", "b"]);
        let bad: Vec<_> = changed.failed().iter().map(|it| (it.id(), it.code())).collect();
        assert_eq!(bad, [("bad", "ReceiptHandleIsInvalid")]);
        assert_eq!(bodies(&bench.receive(&queue).await), bodies(&messages[..1]));
    }

    async fn a_malformed_batch_of_receipts_is_refused_as_a_whole(bench) {
        let queue = bench.queue(&[]).await;
        let eleven = (0..11).map(|it| deletion(&it.to_string(), "any")).collect();
        let twice = vec![deletion("same", "any"), deletion("same", "any")];
        for (entries, refusal) in [
            (vec![], "AWS.SimpleQueueService.EmptyBatchRequest"),
            (eleven, "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"),
            (twice, "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"),
            (vec![deletion("in:valid", "any")], "AWS.SimpleQueueService.InvalidBatchEntryId"),
        ] {
            let delete = bench.sqs.delete_message_batch().queue_url(&queue).set_entries(Some(entries));
            assert_eq!(delete.send().await.map_err(code).expect_err(refusal), refusal);
        }
        let eleven = (0..11).map(|it| change(&it.to_string(), "any", 0)).collect();
        let change_all = bench.sqs.change_message_visibility_batch().queue_url(&queue).set_entries(Some(eleven));
        let refusal = "AWS.SimpleQueueService.TooManyEntriesInBatchRequest";
        assert_eq!(change_all.send().await.map_err(code).expect_err(refusal), refusal);
    }
}
