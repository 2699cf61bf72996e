//! Checks of what a queue tells about itself, and of what makes and empties it.

use std::collections::BTreeMap;

use aws_sdk_sqs::types::QueueAttributeName;

use crate::bench::code;
use crate::check_list;

check_list! {
    async fn messages_are_counted_by_their_state(bench) {
        let queue = bench.queue(&[(QueueAttributeName::VisibilityTimeout, "2")]).await;
        for body in ["a", "b", "c"] {
            bench.send(&queue, body).await;
        }
        let send = bench.sqs.send_message().queue_url(&queue).message_body("d").delay_seconds(1);
        send.send().await.expect("sent");
        bench.receive_for(&queue, 2).await;
        assert_eq!(bench.counts(&queue).await, ["2", "1", "1"]);
        bench.pass(1).await;
        assert_eq!(bench.counts(&queue).await, ["3", "1", "0"]);
        bench.pass(1).await;
        assert_eq!(bench.counts(&queue).await, ["4", "0", "0"]);
    }

    async fn a_queue_starts_with_the_defaults(bench) {
        let queue = bench.queue(&[]).await;
        let get = bench.sqs.get_queue_attributes().queue_url(&queue).attribute_names(QueueAttributeName::All);
        let all = get.send().await.expect("the attributes").attributes.expect("some");
        let all: BTreeMap<_, _> = all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        for (name, value) in [
            ("VisibilityTimeout", "30"),
            ("DelaySeconds", "0"),
            ("ReceiveMessageWaitTimeSeconds", "0"),
            ("MessageRetentionPeriod", "345600"),
            ("MaximumMessageSize", "1048576"),
            ("ApproximateNumberOfMessages", "0"),
        ] {
            assert_eq!(all.get(name), Some(&value), "{name} of {all:?}");
        }
        assert!(all["QueueArn"].starts_with("arn:aws:sqs:us-east-1:"), "{all:?}");
        assert!(all["QueueArn"].ends_with(queue.rsplit('/').next().expect("a name")), "{all:?}");
        assert!(all["CreatedTimestamp"].len() == 10, "{all:?} is in seconds");
        assert!(!all.contains_key("RedrivePolicy"), "{all:?}");
    }

    async fn only_the_attributes_of_a_queue_that_are_asked_for_come_back(bench) {
        let queue = bench.queue(&[]).await;
        let get = bench.sqs.get_queue_attributes().queue_url(&queue);
        let none = get.clone().send().await.expect("the attributes").attributes.unwrap_or_default();
        assert!(none.is_empty(), "{none:?}");
        let one = get.clone().attribute_names(QueueAttributeName::DelaySeconds).send().await;
        assert_eq!(one.expect("the attributes").attributes.map(|it| it.len()), Some(1));
        let refused = get.attribute_names("NoSuchAttribute".into()).send().await;
        assert_eq!(refused.map_err(code).expect_err("unknown"), "InvalidAttributeName");
    }

    async fn attributes_can_be_changed(bench) {
        let queue = bench.queue(&[(QueueAttributeName::DelaySeconds, "5")]).await;
        let set = bench.sqs.set_queue_attributes().queue_url(&queue);
        set.attributes(QueueAttributeName::VisibilityTimeout, "77").send().await.expect("set");
        assert_eq!(bench.attribute(&queue, QueueAttributeName::VisibilityTimeout).await, "77");
        assert_eq!(bench.attribute(&queue, QueueAttributeName::DelaySeconds).await, "5");
    }

    async fn attributes_out_of_range_are_refused(bench) {
        let queue = bench.queue(&[]).await;
        for (name, value, refusal) in [
            (QueueAttributeName::VisibilityTimeout, "43201", "InvalidAttributeValue"),
            (QueueAttributeName::DelaySeconds, "901", "InvalidAttributeValue"),
            (QueueAttributeName::ReceiveMessageWaitTimeSeconds, "21", "InvalidAttributeValue"),
            (QueueAttributeName::MessageRetentionPeriod, "59", "InvalidAttributeValue"),
            (QueueAttributeName::MaximumMessageSize, "1023", "InvalidAttributeValue"),
            (QueueAttributeName::VisibilityTimeout, "soon", "InvalidAttributeValue"),
            ("NoSuchAttribute".into(), "1", "InvalidAttributeName"),
        ] {
            let set = bench.sqs.set_queue_attributes().queue_url(&queue).attributes(name.clone(), value);
            let refused = set.send().await.map_err(code);
            assert_eq!(refused.expect_err(value), refusal, "{name:?} = {value}");
        }
    }

    async fn a_smaller_maximum_size_holds(bench) {
        let queue = bench.queue(&[(QueueAttributeName::MaximumMessageSize, "1024")]).await;
        let send = |length: usize| bench.sqs.send_message().queue_url(&queue).message_body("x".repeat(length)).send();
        send(1024).await.expect("just fits");
        assert_eq!(send(1025).await.map_err(code).expect_err("too long"), "InvalidParameterValue");
    }

    async fn a_queue_is_found_by_its_name(bench) {
        let queue = bench.queue(&[]).await;
        let name = queue.rsplit('/').next().expect("a name");
        let found = bench.sqs.get_queue_url().queue_name(name).send().await.expect("found");
        assert_eq!(found.queue_url(), Some(queue.as_str()));
        let listed = bench.sqs.list_queues().queue_name_prefix(name).send().await.expect("listed");
        assert!(listed.queue_urls().contains(&queue), "{listed:?}");
        let missing = bench.sqs.get_queue_url().queue_name(format!("{name}-not")).send().await;
        assert!(missing.expect_err("no such queue").into_service_error().is_queue_does_not_exist());
    }

    async fn a_queue_is_created_once(bench) {
        let queue = bench.queue(&[(QueueAttributeName::DelaySeconds, "5")]).await;
        let name = queue.rsplit('/').next().expect("a name");
        let create = |delay: &str| {
            bench.sqs.create_queue().queue_name(name).attributes(QueueAttributeName::DelaySeconds, delay).send()
        };
        assert_eq!(create("5").await.expect("it is the same").queue_url(), Some(queue.as_str()));
        assert_eq!(create("6").await.map_err(code).expect_err("it differs"), "QueueAlreadyExists");
        let refused = bench.sqs.create_queue().queue_name("no spaces").send().await;
        assert_eq!(refused.map_err(code).expect_err("no name"), "InvalidParameterValue");
    }

    async fn a_purge_deletes_all_messages(bench) {
        let queue = bench.queue(&[]).await;
        bench.send(&queue, "in flight").await;
        bench.receive_one(&queue).await;
        bench.send(&queue, "visible").await;
        let send = bench.sqs.send_message().queue_url(&queue).message_body("delayed").delay_seconds(5);
        send.send().await.expect("sent");
        assert_eq!(bench.counts(&queue).await, ["1", "1", "1"]);
        bench.sqs.purge_queue().queue_url(&queue).send().await.expect("purged");
        assert_eq!(bench.counts(&queue).await, ["0", "0", "0"]);
    }
}
