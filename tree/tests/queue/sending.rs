//! Checks of `SendMessage` and `SendMessageBatch`.

use aws_sdk_sqs::types::{
    MessageAttributeValue, MessageSystemAttributeNameForSends, MessageSystemAttributeValue, QueueAttributeName,
    SendMessageBatchRequestEntry,
};

use crate::bench::{bodies, code};
use crate::check_list;

const MEBIBYTE: usize = 1_048_576;

fn entry(id: &str, body: &str) -> SendMessageBatchRequestEntry {
    SendMessageBatchRequestEntry::builder().id(id).message_body(body).build().expect("id and body are set")
}

fn text(data_type: &str, value: &str) -> MessageAttributeValue {
    MessageAttributeValue::builder().data_type(data_type).string_value(value).build().expect("a type is set")
}

check_list! {
    async fn a_sent_message_is_received_with_its_id_and_digest(bench) {
        let queue = bench.queue(&[]).await;
        let sent = bench.sqs.send_message().queue_url(&queue).message_body("message-1").send().await.expect("sent");
        assert_eq!(sent.md5_of_message_body(), Some("3d6b824fd8c1520e9a047d21fee6fb1f"));
        let message = bench.receive_one(&queue).await;
        assert_eq!(message.body(), Some("message-1"));
        assert_eq!(message.message_id(), sent.message_id());
        assert_eq!(message.md5_of_body(), sent.md5_of_message_body());
    }

    async fn each_message_has_an_id_of_its_own(bench) {
        let queue = bench.queue(&[]).await;
        let send = || bench.sqs.send_message().queue_url(&queue).message_body("the same").send();
        let first = send().await.expect("sent").message_id.expect("an id");
        let second = send().await.expect("sent").message_id.expect("an id");
        assert_ne!(first, second);
        assert_eq!([8, 13, 18, 23].map(|at| &first[at..=at]), ["-"; 4], "{first} has the form of a UUID");
    }

    async fn any_text_survives(bench) {
        let queue = bench.queue(&[]).await;
        let body = "tab\t, newline\n, \"quotes\", \\, <&>, \u{fc}, \u{20ac}, \u{1f980}, \u{fffd}";
        bench.send(&queue, body).await;
        assert_eq!(bench.receive_one(&queue).await.body(), Some(body));
    }

    async fn a_body_that_sqs_cannot_carry_is_refused(bench) {
        let queue = bench.queue(&[]).await;
        let send = |body: &str| bench.sqs.send_message().queue_url(&queue).message_body(body).send();
        assert_eq!(send("").await.map_err(code).expect_err("empty"), "MissingParameter");
        assert_eq!(send("bell \u{7}").await.map_err(code).expect_err("not XML"), "InvalidMessageContents");
    }

    async fn a_mebibyte_is_taken_and_a_byte_more_refused(bench) {
        let queue = bench.queue(&[]).await;
        let send = |length: usize| bench.sqs.send_message().queue_url(&queue).message_body("x".repeat(length)).send();
        assert_eq!(send(MEBIBYTE + 1).await.map_err(code).expect_err("too long"), "InvalidParameterValue");
        send(MEBIBYTE).await.expect("just fits");
        assert_eq!(bench.receive_one(&queue).await.body().map(str::len), Some(MEBIBYTE));
    }

    async fn attributes_count_towards_the_size(bench) {
        let queue = bench.queue(&[]).await;
        let send = |length: usize| {
            let send = bench.sqs.send_message().queue_url(&queue).message_body("x".repeat(length));
            send.message_attributes("k", text("String", "v")).send()
        };
        let room = MEBIBYTE - "kStringv".len();
        assert_eq!(send(room + 1).await.map_err(code).expect_err("too long"), "InvalidParameterValue");
        send(room).await.expect("just fits");
    }

    async fn a_delayed_message_comes_when_its_delay_is_over(bench) {
        let queue = bench.queue(&[]).await;
        let send = bench.sqs.send_message().queue_url(&queue).message_body("later").delay_seconds(2);
        send.send().await.expect("sent");
        assert!(bench.receive(&queue).await.is_empty());
        bench.pass(1).await;
        assert!(bench.receive(&queue).await.is_empty());
        bench.pass(1).await;
        assert_eq!(bench.receive_one(&queue).await.body(), Some("later"));
    }

    async fn a_delay_of_more_than_fifteen_minutes_is_refused(bench) {
        let queue = bench.queue(&[]).await;
        let send = |delay| bench.sqs.send_message().queue_url(&queue).message_body("late").delay_seconds(delay).send();
        send(900).await.expect("just fits");
        assert_eq!(send(901).await.map_err(code).expect_err("too late"), "InvalidParameterValue");
        assert_eq!(send(-1).await.map_err(code).expect_err("too early"), "InvalidParameterValue");
    }

    async fn the_queues_delay_is_for_messages_without_their_own(bench) {
        let queue = bench.queue(&[(QueueAttributeName::DelaySeconds, "2")]).await;
        bench.send(&queue, "delayed").await;
        let send = bench.sqs.send_message().queue_url(&queue).message_body("at once").delay_seconds(0);
        send.send().await.expect("sent");
        assert_eq!(bodies(&bench.receive(&queue).await), ["at once"]);
        bench.pass(2).await;
        assert_eq!(bodies(&bench.receive(&queue).await), ["delayed"]);
    }

    async fn attributes_come_back_with_their_digest(bench) {
        let queue = bench.queue(&[]).await;
        let send = bench.sqs.send_message().queue_url(&queue).message_body("message-1");
        let sent = send.message_attributes("MyAttribute", text("String", "foobar")).send().await.expect("sent");
        assert_eq!(sent.md5_of_message_attributes(), Some("adb59cd4678ea5a855436b949cd07ab6"));
        let message = bench.receive_one(&queue).await;
        assert_eq!(message.md5_of_message_attributes(), sent.md5_of_message_attributes());
        let attributes = message.message_attributes().expect("attributes");
        assert_eq!(attributes.get("MyAttribute").and_then(|it| it.string_value()), Some("foobar"));
    }

    async fn only_the_attributes_asked_for_come_back(bench) {
        let queue = bench.queue(&[]).await;
        let send = bench.sqs.send_message().queue_url(&queue).message_body("with attributes");
        let send = send.message_attributes("order.id", text("Number", "7"));
        let send = send.message_attributes("order.kind", text("String", "new"));
        send.message_attributes("other", text("String", "x")).send().await.expect("sent");
        for (asked, expected) in [(None, 0), (Some("other"), 1), (Some("order.*"), 2), (Some("All"), 3)] {
            let receive = bench.sqs.receive_message().queue_url(&queue).visibility_timeout(0);
            let receive = receive.set_message_attribute_names(asked.map(|name| vec![name.to_owned()]));
            let messages = receive.send().await.expect("received").messages.expect("one message");
            assert_eq!(messages[0].message_attributes().map_or(0, |it| it.len()), expected, "{asked:?}");
        }
    }

    async fn the_trace_header_goes_with_the_message(bench) {
        let queue = bench.queue(&[]).await;
        let header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
        let value = MessageSystemAttributeValue::builder().data_type("String").string_value(header).build();
        let send = bench.sqs.send_message().queue_url(&queue).message_body("traced");
        let name = MessageSystemAttributeNameForSends::AwsTraceHeader;
        send.message_system_attributes(name, value.expect("a type is set")).send().await.expect("sent");
        let message = bench.receive_one(&queue).await;
        let name = aws_sdk_sqs::types::MessageSystemAttributeName::AwsTraceHeader;
        assert_eq!(crate::bench::system(&message, name), header);
    }

    async fn a_batch_is_sent_message_by_message(bench) {
        let queue = bench.queue(&[]).await;
        let entries = (0..10).map(|it| entry(&format!("id-{it}"), &format!("body-{it}"))).collect();
        let send = bench.sqs.send_message_batch().queue_url(&queue).set_entries(Some(entries));
        let sent = send.send().await.expect("sent");
        assert_eq!(sent.successful().len(), 10);
        assert!(sent.failed().is_empty());
        assert_eq!(bodies(&bench.receive(&queue).await).len(), 10);
    }

    async fn one_bad_entry_does_not_keep_the_others_out(bench) {
        let queue = bench.queue(&[]).await;
        let send = bench.sqs.send_message_batch().queue_url(&queue);
        let send = send.entries(entry("good", "fine")).entries(entry("bad", "bell \u{7}"));
        let sent = send.entries(entry("too", "fine too")).send().await.expect("sent in part");
        let good: Vec<_> = sent.successful().iter().map(|it| it.id()).collect();
        assert_eq!(good, ["good", "too"]);
        let bad: Vec<_> = sent.failed().iter().map(|it| (it.id(), it.code(), it.sender_fault())).collect();
        assert_eq!(bad, [("bad", "InvalidMessageContents", true)]);
        assert_eq!(bodies(&bench.receive(&queue).await), ["fine", "fine too"]);
    }

    async fn a_malformed_batch_is_refused_as_a_whole(bench) {
        let queue = bench.queue(&[]).await;
        let half = "x".repeat(MEBIBYTE / 2 + 1);
        let eleven = (0..11).map(|it| entry(&format!("id-{it}"), "body")).collect();
        for (entries, refusal) in [
            (vec![], "AWS.SimpleQueueService.EmptyBatchRequest"),
            (eleven, "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"),
            (vec![entry("same", "a"), entry("same", "b")], "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"),
            (vec![entry("no spaces", "a")], "AWS.SimpleQueueService.InvalidBatchEntryId"),
            (vec![entry("a", &half), entry("b", &half)], "AWS.SimpleQueueService.BatchRequestTooLong"),
        ] {
            let send = bench.sqs.send_message_batch().queue_url(&queue).set_entries(Some(entries));
            assert_eq!(send.send().await.map_err(code).expect_err(refusal), refusal);
        }
        assert_eq!(bench.counts(&queue).await, ["0", "0", "0"]);
    }

    async fn a_queue_that_does_not_exist_is_its_own_error(bench) {
        let queue = bench.queue(&[]).await + "-not";
        let refused = bench.sqs.send_message().queue_url(&queue).message_body("to nobody").send().await;
        let refused = refused.expect_err("no such queue").into_service_error();
        assert!(refused.is_queue_does_not_exist(), "{refused:?}");
        let refused = bench.sqs.receive_message().queue_url(&queue).send().await;
        assert!(refused.expect_err("no such queue").into_service_error().is_queue_does_not_exist());
        let refused = bench.sqs.delete_message().queue_url(&queue).receipt_handle("any").send().await;
        assert!(refused.expect_err("no such queue").into_service_error().is_queue_does_not_exist());
    }
}
