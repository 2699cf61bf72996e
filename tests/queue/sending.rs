//! `SendMessage`.

use crate::fixture::{QueueFixture, bodies, code};

const MEBIBYTE: usize = 1_048_576;

#[tokio::test]
async fn sent_message_arrives_with_id_and_digest() {
    let queue = QueueFixture::start().await;
    let send = || queue.sqs.send_message().queue_url(&queue.url).message_body("message-1").send();
    let sent = send().await.expect("sent");
    assert_eq!(sent.md5_of_message_body(), Some("3d6b824fd8c1520e9a047d21fee6fb1f"));
    let message = queue.receive_one().await;
    assert_eq!(message.body(), Some("message-1"));
    assert_eq!(message.message_id(), sent.message_id());
    assert_eq!(message.md5_of_body(), sent.md5_of_message_body());
    assert_ne!(send().await.expect("sent").message_id, sent.message_id);
}

#[tokio::test]
async fn special_xml_characters_are_received_unchanged() {
    let queue = QueueFixture::start().await;
    let body = "tab\t, newline\n, \"quotes\", \\, <&>, \u{fc}, \u{20ac}, \u{1f980}, \u{fffd}, \
                \u{d7ff}\u{e000}\u{10000}\u{1fffe}\u{10ffff}";
    queue.send(body).await;
    assert_eq!(queue.receive_one().await.body(), Some(body));
}

#[tokio::test]
async fn body_with_characters_outside_xml_is_refused() {
    let queue = QueueFixture::start().await;
    let send = |body: &str| queue.sqs.send_message().queue_url(&queue.url).message_body(body).send();
    assert_eq!(send("").await.map_err(code).expect_err("empty"), "MissingParameter");
    for body in ["bell \u{7}", "\u{b}", "\u{1f}", "\u{fffe}", "\u{ffff}"] {
        assert_eq!(send(body).await.map_err(code).expect_err("not XML"), "InvalidMessageContents", "{body:?}");
    }
}

#[tokio::test]
async fn body_over_one_mebibyte_is_refused() {
    let queue = QueueFixture::start().await;
    let send = |length: usize| queue.sqs.send_message().queue_url(&queue.url).message_body("x".repeat(length)).send();
    assert_eq!(send(MEBIBYTE + 1).await.map_err(code).expect_err("too long"), "InvalidParameterValue");
    send(MEBIBYTE).await.expect("sent");
    assert_eq!(queue.receive_one().await.body().map(str::len), Some(MEBIBYTE));
}

#[tokio::test]
async fn invalid_message_group_is_refused() {
    let queue = QueueFixture::start().await;
    let send =
        |group: &str| queue.sqs.send_message().queue_url(&queue.url).message_body("a").message_group_id(group).send();
    for group in ["", "a b", "caf\u{e9}", &"x".repeat(129)] {
        assert_eq!(send(group).await.map_err(code).expect_err("invalid"), "InvalidParameterValue", "{group:?}");
    }
    for group in ["0123456789abcdef", "a!~", &"x".repeat(128)] {
        send(group).await.expect("sent");
    }
}

#[tokio::test]
async fn delayed_message_arrives_after_the_delay() {
    let queue = QueueFixture::start().await;
    queue.send_delayed("later", 2).await.expect("sent");
    queue.pass(1);
    assert!(queue.receive().await.is_empty());
    queue.pass(1);
    assert_eq!(bodies(&queue.receive().await), ["later"]);
}

#[tokio::test]
async fn delay_over_fifteen_minutes_is_refused() {
    let queue = QueueFixture::start().await;
    queue.send_delayed("late", 900).await.expect("sent");
    for delay in [901, -1] {
        assert_eq!(queue.send_delayed("late", delay).await, Err("InvalidParameterValue".to_owned()));
    }
}

#[tokio::test]
async fn unknown_queue_returns_queue_does_not_exist() {
    let queue = QueueFixture::start().await;
    let url = format!("{}-not", queue.url);
    let refused = queue.sqs.send_message().queue_url(&url).message_body("lost").send().await;
    assert!(refused.expect_err("no such queue").into_service_error().is_queue_does_not_exist());
    let refused = queue.sqs.receive_message().queue_url(&url).send().await;
    assert!(refused.expect_err("no such queue").into_service_error().is_queue_does_not_exist());
}
