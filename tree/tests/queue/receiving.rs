//! Checks of `ReceiveMessage`: visibility, counts and waiting.

use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};

use crate::bench::{bodies, code, system};
use crate::check_list;

check_list! {
    async fn a_received_message_is_hidden_until_its_visibility_timeout(bench) {
        let queue = bench.queue(&[(QueueAttributeName::VisibilityTimeout, "2")]).await;
        bench.send(&queue, "again").await;
        bench.receive_one(&queue).await;
        assert!(bench.receive(&queue).await.is_empty());
        bench.pass(1).await;
        assert!(bench.receive(&queue).await.is_empty());
        bench.pass(1).await;
        bench.receive_one(&queue).await;
    }

    async fn a_receive_may_bring_its_own_visibility_timeout(bench) {
        let queue = bench.queue(&[(QueueAttributeName::VisibilityTimeout, "30")]).await;
        bench.send(&queue, "again").await;
        bench.receive_for(&queue, 1).await;
        assert!(bench.receive(&queue).await.is_empty());
        bench.pass(1).await;
        bench.receive_for(&queue, 0).await;
        bench.receive_one(&queue).await;
    }

    async fn a_visibility_timeout_of_more_than_twelve_hours_is_refused(bench) {
        let queue = bench.queue(&[]).await;
        let receive = |timeout| bench.sqs.receive_message().queue_url(&queue).visibility_timeout(timeout).send();
        receive(43_200).await.expect("just fits");
        assert_eq!(receive(43_201).await.map_err(code).expect_err("too long"), "InvalidParameterValue");
    }

    async fn at_most_as_many_messages_come_as_asked_for(bench) {
        let queue = bench.queue(&[]).await;
        for body in ["a", "b", "c"] {
            bench.send(&queue, body).await;
        }
        let one = bench.sqs.receive_message().queue_url(&queue).send().await.expect("received");
        assert_eq!(one.messages().len(), 1);
        let two = bench.sqs.receive_message().queue_url(&queue).max_number_of_messages(2).send().await;
        assert_eq!(two.expect("received").messages().len(), 2);
        for count in [0, 11] {
            let refused = bench.sqs.receive_message().queue_url(&queue).max_number_of_messages(count).send().await;
            assert_eq!(refused.map_err(code).expect_err("out of range"), "InvalidParameterValue");
        }
    }

    async fn no_message_comes_twice_within_its_visibility_timeout(bench) {
        let queue = bench.queue(&[]).await;
        let all: Vec<_> = (10..40).map(|it| it.to_string()).collect();
        for body in &all {
            bench.send(&queue, body).await;
        }
        let (a, b, c) = tokio::join!(bench.receive(&queue), bench.receive(&queue), bench.receive(&queue));
        let received = [a, b, c].concat();
        assert_eq!(bodies(&received), all);
    }

    async fn each_receive_is_counted_and_dated(bench) {
        let queue = bench.queue(&[(QueueAttributeName::VisibilityTimeout, "0")]).await;
        bench.send(&queue, "again and again").await;
        bench.pass(1).await;
        let first = bench.receive_one(&queue).await;
        bench.pass(1).await;
        let second = bench.receive_one(&queue).await;
        assert_eq!(system(&first, MessageSystemAttributeName::ApproximateReceiveCount), "1");
        assert_eq!(system(&second, MessageSystemAttributeName::ApproximateReceiveCount), "2");
        for name in
            [MessageSystemAttributeName::SentTimestamp, MessageSystemAttributeName::ApproximateFirstReceiveTimestamp]
        {
            assert_eq!(system(&first, name.clone()), system(&second, name));
        }
        let millis = |name| system(&first, name).parse::<u64>().expect("milliseconds");
        let waited = millis(MessageSystemAttributeName::ApproximateFirstReceiveTimestamp)
            - millis(MessageSystemAttributeName::SentTimestamp);
        assert!((1000..5000).contains(&waited), "{waited} ms");
    }

    async fn each_receive_has_a_receipt_handle_of_its_own(bench) {
        let queue = bench.queue(&[]).await;
        bench.send(&queue, "again").await;
        let first = bench.receive_for(&queue, 0).await;
        let second = bench.receive_for(&queue, 0).await;
        assert_ne!(first.receipt_handle(), second.receipt_handle());
        assert_eq!(first.message_id(), second.message_id());
    }

    async fn only_the_system_attributes_asked_for_come_back(bench) {
        let queue = bench.queue(&[]).await;
        bench.send(&queue, "plain").await;
        let plain = bench.receive_for(&queue, 0).await;
        assert_eq!(plain.attributes().map_or(0, |it| it.len()), 0);
        let receive = bench.sqs.receive_message().queue_url(&queue);
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::SentTimestamp);
        let messages = receive.send().await.expect("received").messages.expect("one message");
        assert_eq!(messages[0].attributes().map_or(0, |it| it.len()), 1);
    }

    async fn a_waiting_receive_gets_what_is_sent(bench) {
        let queue = bench.queue(&[]).await;
        let (messages, ()) = tokio::join!(bench.receive_within(&queue, 20), async {
            bench.until_a_receive_waits().await;
            bench.send(&queue, "at last").await;
        });
        assert_eq!(bodies(&messages), ["at last"]);
    }

    async fn a_waiting_receive_gets_what_a_delay_or_a_visibility_timeout_sets_free(bench) {
        let queue = bench.queue(&[]).await;
        let send = bench.sqs.send_message().queue_url(&queue).message_body("delayed").delay_seconds(1);
        send.send().await.expect("sent");
        let set_free = || async {
            let (messages, ()) = tokio::join!(bench.receive_within(&queue, 20), async {
                bench.until_a_receive_waits().await;
                bench.pass(1).await;
            });
            assert_eq!(bodies(&messages), ["delayed"]);
            messages
        };
        let received = set_free().await;
        bench.hide(&queue, &received[0], 1).await.expect("it is in flight");
        set_free().await;
    }

    async fn a_waiting_receive_gets_what_is_made_visible(bench) {
        let queue = bench.queue(&[]).await;
        bench.send(&queue, "given back").await;
        let held = bench.receive_one(&queue).await;
        let (messages, ()) = tokio::join!(bench.receive_within(&queue, 20), async {
            bench.until_a_receive_waits().await;
            bench.hide(&queue, &held, 0).await.expect("it is in flight");
        });
        assert_eq!(bodies(&messages), ["given back"]);
    }

    async fn of_two_waiting_receives_one_gets_the_message(bench) {
        let queue = bench.queue(&[]).await;
        let (a, b, ()) = tokio::join!(bench.receive_within(&queue, 1), bench.receive_within(&queue, 1), async {
            bench.until_receives_wait(2).await;
            bench.send(&queue, "for one").await;
            bench.pass(1).await;
        });
        assert_eq!(a.len() + b.len(), 1);
    }

    async fn a_wait_without_a_message_ends_empty(bench) {
        let queue = bench.queue(&[]).await;
        let (messages, ()) = tokio::join!(bench.receive_within(&queue, 1), async {
            bench.until_a_receive_waits().await;
            bench.pass(1).await;
        });
        assert!(messages.is_empty());
    }

    async fn the_queues_wait_is_for_receives_without_their_own(bench) {
        let queue = bench.queue(&[(QueueAttributeName::ReceiveMessageWaitTimeSeconds, "1")]).await;
        let (received, ()) = tokio::join!(bench.sqs.receive_message().queue_url(&queue).send(), async {
            bench.until_a_receive_waits().await;
            bench.pass(1).await;
        });
        assert!(received.expect("received").messages().is_empty());
    }

    async fn a_wait_of_more_than_twenty_seconds_is_refused(bench) {
        let queue = bench.queue(&[]).await;
        for wait in [21, -1] {
            let refused = bench.sqs.receive_message().queue_url(&queue).wait_time_seconds(wait).send().await;
            assert_eq!(refused.map_err(code).expect_err("out of range"), "InvalidParameterValue");
        }
    }
}
