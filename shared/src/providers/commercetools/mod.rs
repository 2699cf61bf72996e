//! commercetools sends a Subscription's notifications to a queue or to EventBridge. They have its own format, or are
//! CloudEvents.
//!
//! A notification is a Message about one event, or a Change, which says only that a resource has a new version.

use super::{
    Envelope, Inlet,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder},
    preset::QueuePreset,
    rule::{EntityKind, Example, Rule, RuleLine},
};

pub(super) static COMMERCETOOLS: QueuePreset = QueuePreset { reads: READS };

const LINES: &[RuleLine] =
    &[RuleLine { families: &[], places: &["/resource/id"], kind: EntityKind::At("/resource/typeId") }];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"notificationType":"Message","id":"m1","type":"OrderStateChanged","resource":{"typeId":"order","id":"o7"}}"#,
            "order/o7",
        ),
        Example::new(
            r#"{"notificationType":"ResourceUpdated","resource":{"typeId":"order","id":"o7"},"version":3,"oldVersion":2}"#,
            "order/o7",
        ),
        Example::new(
            r#"{"notificationType":"Message","id":"m2","type":"PaymentCreated","resource":{"typeId":"payment","id":"p7"}}"#,
            "payment/p7",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

/// The locations of a notification's fields. A Change has no id. The version that a deletion names is the last one seen,
/// so only the topic distinguishes it from an update to that version.
const READS: Reads = Reads {
    inlet: Inlet::Queue(&[Envelope::EVENTBRIDGE, Envelope::CLOUDEVENTS]),
    delivery_id: &[IdPart::Topic, IdPart::Maybe(&["/resource/id"]), IdPart::At(&["/id", "/version"])],
    topic: &["/type", "/notificationType"],
    account: &["/projectKey"],
    event_time: &["/createdAt", "/modifiedAt"],
    lines: LINES,
    shop_order: ShopOrder::Own,
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    payload: Payload::Depends,
    resolution: Some(Resolution::Milliseconds),
    care: "The queue must be a standard one. With `authenticationMode` `IAM`, let \
           `arn:aws:iam::362576667341:user/subscriptions` call `sqs:SendMessage` on it. A Change holds no resource, and a \
           Message with `payloadNotIncluded` not all of its fields: fetch the resource. A Message's `sequenceNumber` \
           counts those of its resource, but a standard queue keeps no order. Each new Subscription sends a \
           `ResourceCreated` of itself. A payment's notifications do not name its order (read on 2026-11-29).",
    sources: &[
        "https://docs.commercetools.com/api/projects/subscriptions",
        "https://docs.commercetools.com/api/projects/messages",
        "https://github.com/commercetools/commercetools-api-reference/tree/main/api-specs/api/types/subscription",
    ],
    ..Facts::WITHOUT_WEBHOOKS
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        Vec::new()
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("queues/commercetools-cloudevents.json", "OrderCreated/7c2b1f0e-59a4-4d0c-9a55-0b6f0c5a7d11/1b9a6c52-30a8-4c2e-8f0e-8f6d1f5a2c01", "OrderCreated", "OrderCreated", Some("example-shop"), Some(1_767_621_600_146), "order/7c2b1f0e-59a4-4d0c-9a55-0b6f0c5a7d11"),
        ("queues/commercetools-eventbridge.json", "OrderStateChanged/7c2b1f0e-59a4-4d0c-9a55-0b6f0c5a7d11/1b9a6c52-30a8-4c2e-8f0e-8f6d1f5a2c02", "OrderStateChanged", "OrderStateChanged", Some("example-shop"), Some(1_767_621_700_122), "order/7c2b1f0e-59a4-4d0c-9a55-0b6f0c5a7d11"),
        ("queues/commercetools-payload-not-included.json", "OrderShipmentStateChanged/7c2b1f0e-59a4-4d0c-9a55-0b6f0c5a7d11/1b9a6c52-30a8-4c2e-8f0e-8f6d1f5a2c03", "OrderShipmentStateChanged", "OrderShipmentStateChanged", Some("example-shop"), Some(1_767_712_500_904), "order/7c2b1f0e-59a4-4d0c-9a55-0b6f0c5a7d11"),
        ("queues/commercetools-resource-updated.json", "ResourceUpdated/7c2b1f0e-59a4-4d0c-9a55-0b6f0c5a7d11/3", "ResourceUpdated", "ResourceUpdated", Some("example-shop"), Some(1_767_621_700_122), "order/7c2b1f0e-59a4-4d0c-9a55-0b6f0c5a7d11"),
    ];

    #[test]
    fn deletion_is_no_repeat_of_the_update_to_its_version() {
        let id = |topic: &str| {
            let body =
                format!(r#"{{"notificationType":"{topic}","resource":{{"typeId":"order","id":"o7"}},"version":3}}"#);
            tests::describe(&COMMERCETOOLS, &[], &body).delivery_id
        };
        assert_eq!(id("ResourceUpdated").as_str(), "ResourceUpdated/o7/3");
        assert_ne!(id("ResourceUpdated"), id("ResourceDeleted"));
    }

    /// The Message is the published example of a MessageDeliveryPayload, with ids in place of its placeholders.
    #[test]
    fn message_about_a_customer_has_the_customer_as_entity() {
        let body = r#"{"notificationType":"Message","projectKey":"p","id":"m1","version":1,"sequenceNumber":2,"resource":{"typeId":"customer","id":"c1"},"resourceVersion":2,"resourceUserProvidedIdentifiers":{},"type":"CustomerLastNameSet","lastName":"Doe","createdAt":"2022-10-25T13:30:09.760Z","lastModifiedAt":"2022-10-25T13:30:09.760Z"}"#;
        let described = tests::describe(&COMMERCETOOLS, &[], body);
        assert_eq!(
            (described.topic.as_str(), described.entity.as_deref()),
            ("CustomerLastNameSet", Some("customer/c1"))
        );
        assert_eq!(
            (described.delivery_id.as_str(), described.account.as_deref()),
            ("CustomerLastNameSet/c1/m1", Some("p"))
        );
        assert_eq!(described.event_time, Some(Timestamp::from_millis(1_666_704_609_760)));
    }
}
