//! Checks of the redrive to a dead-letter queue.

use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};

use crate::bench::{Bench, bodies, code, system};
use crate::check_list;

/// A queue whose messages are visible again at once, its dead-letter queue, and so many receives before that.
async fn queue_and_dead_letters(bench: &Bench, max_receives: u32) -> (String, String) {
    let dead_letters = bench.queue(&[]).await;
    let arn = bench.attribute(&dead_letters, QueueAttributeName::QueueArn).await;
    let policy = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"{max_receives}"}}"#);
    let attributes =
        [(QueueAttributeName::VisibilityTimeout, "0"), (QueueAttributeName::RedrivePolicy, policy.as_str())];
    (bench.queue(&attributes).await, dead_letters)
}

check_list! {
    async fn a_message_received_too_often_moves_to_the_dead_letter_queue(bench) {
        let (queue, dead_letters) = queue_and_dead_letters(bench, 2).await;
        bench.send(&queue, "poison").await;
        let first = bench.receive_one(&queue).await;
        bench.receive_one(&queue).await;
        assert!(bench.receive(&dead_letters).await.is_empty());
        assert!(bench.receive(&queue).await.is_empty());
        let dead = bench.receive_one(&dead_letters).await;
        assert_eq!(dead.body(), Some("poison"));
        assert_eq!(dead.message_id(), first.message_id());
        assert_eq!(bench.counts(&queue).await, ["0", "0", "0"]);
    }

    async fn a_dead_letter_keeps_its_dates_and_its_count(bench) {
        let (queue, dead_letters) = queue_and_dead_letters(bench, 1).await;
        bench.send(&queue, "poison").await;
        let alive = bench.receive_one(&queue).await;
        bench.pass(1).await;
        assert!(bench.receive(&queue).await.is_empty());
        let dead = bench.receive_one(&dead_letters).await;
        let sent = MessageSystemAttributeName::SentTimestamp;
        assert_eq!(system(&dead, sent.clone()), system(&alive, sent));
        assert_eq!(system(&dead, MessageSystemAttributeName::ApproximateReceiveCount), "2");
        let source = bench.attribute(&queue, QueueAttributeName::QueueArn).await;
        assert_eq!(system(&dead, MessageSystemAttributeName::DeadLetterQueueSourceArn), source);
    }

    async fn a_message_deleted_in_time_does_not_move(bench) {
        let (queue, dead_letters) = queue_and_dead_letters(bench, 1).await;
        bench.send(&queue, "fine").await;
        let message = bench.receive_one(&queue).await;
        bench.delete(&queue, &message).await;
        assert!(bench.receive(&queue).await.is_empty());
        assert!(bench.receive(&dead_letters).await.is_empty());
    }

    async fn a_receive_gives_up_the_old_and_brings_the_new(bench) {
        let (queue, dead_letters) = queue_and_dead_letters(bench, 1).await;
        bench.send(&queue, "poison").await;
        bench.receive_one(&queue).await;
        bench.send(&queue, "fresh").await;
        assert_eq!(bodies(&bench.receive(&queue).await), ["fresh"]);
        assert_eq!(bodies(&bench.receive(&dead_letters).await), ["poison"]);
    }

    async fn a_receive_that_waits_on_the_dead_letter_queue_gets_what_moves_there(bench) {
        let (queue, dead_letters) = queue_and_dead_letters(bench, 1).await;
        bench.send(&queue, "poison").await;
        bench.receive_one(&queue).await;
        let (dead, ()) = tokio::join!(bench.receive_within(&dead_letters, 20), async {
            bench.until_a_receive_waits().await;
            assert!(bench.receive(&queue).await.is_empty());
        });
        assert_eq!(bodies(&dead), ["poison"]);
    }

    async fn a_receipt_handle_does_not_follow_its_message(bench) {
        let (queue, dead_letters) = queue_and_dead_letters(bench, 1).await;
        bench.send(&queue, "poison").await;
        let alive = bench.receive_one(&queue).await;
        assert!(bench.receive(&queue).await.is_empty());
        bench.delete(&queue, &alive).await;
        assert_eq!(bench.counts(&dead_letters).await, ["1", "0", "0"]);
    }

    async fn a_dead_letter_queue_may_have_its_own(bench) {
        let last = bench.queue(&[]).await;
        let (queue, middle) = queue_and_dead_letters(bench, 1).await;
        let arn = bench.attribute(&last, QueueAttributeName::QueueArn).await;
        let policy = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":1}}"#);
        let set = bench.sqs.set_queue_attributes().queue_url(&middle);
        let set = set.attributes(QueueAttributeName::RedrivePolicy, policy);
        set.attributes(QueueAttributeName::VisibilityTimeout, "0").send().await.expect("set");
        bench.send(&queue, "poison").await;
        for expected in [&queue, &middle, &last] {
            bench.receive_one(expected).await;
            assert!(bench.receive(expected).await.is_empty());
        }
    }

    async fn a_dead_letter_queue_must_exist_and_a_policy_be_whole(bench) {
        let queue = bench.queue(&[]).await;
        let arn = bench.attribute(&queue, QueueAttributeName::QueueArn).await;
        for policy in [
            format!(r#"{{"deadLetterTargetArn":"{arn}-not","maxReceiveCount":1}}"#),
            format!(r#"{{"deadLetterTargetArn":"{arn}"}}"#),
            r#"{"maxReceiveCount":1}"#.to_owned(),
            format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"often"}}"#),
            format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":0}}"#),
            format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":1001}}"#),
        ] {
            let other = bench.queue(&[]).await;
            let set = bench.sqs.set_queue_attributes().queue_url(&other);
            let refused = set.attributes(QueueAttributeName::RedrivePolicy, &policy).send().await;
            assert_eq!(refused.map_err(code).expect_err(&policy), "InvalidParameterValue", "{policy}");
        }
    }
}
