//! `ReceiveMessage`: visibility, counts and waiting.

use aws_sdk_sqs::types::MessageSystemAttributeName;

use crate::fixture::{QueueFixture, bodies, code, system};

#[tokio::test]
async fn received_message_is_hidden_until_visibility_timeout() {
    let queue = QueueFixture::with(2, 100).await;
    queue.send("again").await;
    queue.receive_one().await;
    queue.pass(1);
    assert!(queue.receive().await.is_empty());
    queue.pass(1);
    queue.receive_one().await;
}

#[tokio::test]
async fn receive_can_set_a_visibility_timeout() {
    let queue = QueueFixture::start().await;
    queue.send("again").await;
    queue.receive_for(1).await;
    assert!(queue.receive().await.is_empty());
    queue.pass(1);
    queue.receive_for(0).await;
    queue.receive_one().await;
}

#[tokio::test]
async fn receive_with_parameter_out_of_range_is_refused() {
    let queue = QueueFixture::start().await;
    let receive = || queue.sqs.receive_message().queue_url(&queue.url);
    receive().visibility_timeout(43_200).send().await.expect("in range");
    for refused in [
        receive().visibility_timeout(43_201),
        receive().wait_time_seconds(21),
        receive().wait_time_seconds(-1),
        receive().max_number_of_messages(0),
        receive().max_number_of_messages(11),
    ] {
        assert_eq!(refused.send().await.map_err(code).expect_err("out of range"), "InvalidParameterValue");
    }
}

#[tokio::test]
async fn receive_returns_at_most_the_requested_number() {
    let queue = QueueFixture::start().await;
    for body in ["a", "b", "c"] {
        queue.send(body).await;
    }
    let receive = || queue.sqs.receive_message().queue_url(&queue.url);
    assert_eq!(receive().send().await.expect("received").messages().len(), 1);
    assert_eq!(receive().max_number_of_messages(2).send().await.expect("received").messages().len(), 2);
}

#[tokio::test]
async fn concurrent_receives_share_no_message() {
    let queue = QueueFixture::start().await;
    let all: Vec<_> = (10..40).map(|number| number.to_string()).collect();
    for body in &all {
        queue.send(body).await;
    }
    let (a, b, c) = tokio::join!(queue.receive(), queue.receive(), queue.receive());
    assert_eq!(bodies(&[a, b, c].concat()), all);
}

#[tokio::test]
async fn received_message_shows_receive_count_and_sent_time() {
    let queue = QueueFixture::with(0, 100).await;
    queue.send("again").await;
    let first = queue.receive_one().await;
    queue.pass(1);
    let second = queue.receive_one().await;
    assert_eq!(system(&first, MessageSystemAttributeName::ApproximateReceiveCount), "1");
    assert_eq!(system(&second, MessageSystemAttributeName::ApproximateReceiveCount), "2");
    assert_eq!(system(&second, MessageSystemAttributeName::SentTimestamp), "1800000000000");
    assert_eq!(first.message_id(), second.message_id());
    assert_ne!(first.receipt_handle(), second.receipt_handle());
}

#[tokio::test]
async fn only_requested_system_attributes_are_returned() {
    let queue = QueueFixture::start().await;
    queue.send("plain").await;
    assert_eq!(queue.receive_for(0).await.attributes().map_or(0, |attributes| attributes.len()), 0);
    let receive = queue.sqs.receive_message().queue_url(&queue.url);
    let receive = receive.message_system_attribute_names(MessageSystemAttributeName::SentTimestamp);
    let messages = receive.send().await.expect("received").messages.expect("one message");
    assert_eq!(messages[0].attributes().map_or(0, |attributes| attributes.len()), 1);
}

#[tokio::test]
async fn long_poll_gets_sent_message() {
    let queue = QueueFixture::start().await;
    let (messages, ()) = tokio::join!(queue.receive_within(20), async {
        queue.until_a_receive_waits().await;
        queue.send("at last").await;
    });
    assert_eq!(bodies(&messages), ["at last"]);
}

#[tokio::test]
async fn long_poll_gets_message_after_delay_or_timeout() {
    let queue = QueueFixture::start().await;
    queue.send_delayed("delayed", 1).await.expect("sent");
    let after_a_second = async || {
        let (messages, ()) = tokio::join!(queue.receive_within(20), async {
            queue.until_a_receive_waits().await;
            queue.pass(1);
        });
        assert_eq!(bodies(&messages), ["delayed"]);
        messages
    };
    let received = after_a_second().await;
    queue.hide(&received[0], 1).await.expect("in flight");
    after_a_second().await;
}

#[tokio::test]
async fn long_poll_gets_message_made_visible() {
    let queue = QueueFixture::start().await;
    queue.send("returned").await;
    let held = queue.receive_one().await;
    let (messages, ()) = tokio::join!(queue.receive_within(20), async {
        queue.until_a_receive_waits().await;
        queue.hide(&held, 0).await.expect("in flight");
    });
    assert_eq!(bodies(&messages), ["returned"]);
}

#[tokio::test]
async fn one_of_two_long_polls_gets_the_message() {
    let queue = QueueFixture::start().await;
    let (a, b, ()) = tokio::join!(queue.receive_within(1), queue.receive_within(1), async {
        queue.clock.until_waited_for_by(2).await;
        queue.send("for one").await;
        queue.pass(1);
    });
    assert_eq!(a.len() + b.len(), 1);
}

#[tokio::test]
async fn long_poll_without_message_returns_empty() {
    let queue = QueueFixture::start().await;
    let (messages, ()) = tokio::join!(queue.receive_within(1), async {
        queue.until_a_receive_waits().await;
        queue.pass(1);
    });
    assert!(messages.is_empty());
}
