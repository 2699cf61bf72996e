//! Amazon's Selling Partner API puts a seller's notifications into a queue of the seller's developer, or onto an
//! EventBridge bus.
//!
//! The names of the fields begin with a capital in older notifications, such as `ORDER_CHANGE`, and with a small letter
//! in newer ones.

use super::{
    Envelope, Inlet,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder},
    preset::QueuePreset,
    rule::{EntityKind, Example, Rule, RuleLine},
};

pub(super) static AMAZON_SP_API: QueuePreset = QueuePreset { reads: READS };

/// The locations of the order's id in the notifications that name an order by the published schemas. A
/// `FULFILLMENT_ORDER_STATUS` names the seller's own order, which Amazon only ships.
const LINES: &[RuleLine] = &[
    RuleLine {
        families: &[],
        places: &[
            "/Payload/OrderChangeNotification/AmazonOrderId",
            "/Payload/OrderStatusChangeNotification/AmazonOrderId",
            "/Payload/MFNOrderStatusChangeNotification/AmazonOrderId",
            "/Payload/FBAOutboundShipmentStatusNotification/AmazonOrderId",
        ],
        kind: EntityKind::Named("order"),
    },
    RuleLine {
        families: &[],
        places: &["/Payload/FulfillmentOrderStatusNotification/SellerFulfillmentOrderId"],
        kind: EntityKind::Named("fulfillment_order"),
    },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"NotificationType":"ORDER_CHANGE","Payload":{"OrderChangeNotification":{"AmazonOrderId":"903-1-2"}}}"#,
            "order/903-1-2",
        ),
        Example::new(
            r#"{"NotificationType":"ORDER_STATUS_CHANGE","Payload":{"OrderStatusChangeNotification":{"AmazonOrderId":"903-1-2","OrderStatus":"Unshipped"}}}"#,
            "order/903-1-2",
        ),
        Example::new(
            r#"{"NotificationType":"FBA_OUTBOUND_SHIPMENT_STATUS","Payload":{"FBAOutboundShipmentStatusNotification":{"AmazonOrderId":"903-1-2","AmazonShipmentId":"D1"}}}"#,
            "order/903-1-2",
        ),
        Example::new(
            r#"{"NotificationType":"FULFILLMENT_ORDER_STATUS","Payload":{"FulfillmentOrderStatusNotification":{"SellerFulfillmentOrderId":"7"}}}"#,
            "fulfillment_order/7",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

/// The locations of a notification's fields. `EventTime` is the time of publishing, so the time of the change comes first
/// where a schema has one.
const READS: Reads = Reads {
    inlet: Inlet::Queue(&[Envelope::EVENTBRIDGE]),
    delivery_id: &[IdPart::At(&["/NotificationMetadata/NotificationId", "/notificationMetadata/notificationId"])],
    topic: &["/NotificationType", "/notificationType"],
    account: &[
        "/Payload/OrderChangeNotification/SellerId",
        "/Payload/OrderStatusChangeNotification/SellerId",
        "/Payload/MFNOrderStatusChangeNotification/SellerId",
        "/Payload/FBAOutboundShipmentStatusNotification/SellerId",
        "/Payload/FulfillmentOrderStatusNotification/SellerId",
    ],
    event_time: &[
        "/Payload/OrderChangeNotification/OrderChangeTrigger/TimeOfOrderChange",
        "/Payload/FulfillmentOrderStatusNotification/StatusUpdatedDateTime",
        "/EventTime",
        "/eventTime",
    ],
    lines: LINES,
    shop_order: ShopOrder::Own,
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Milliseconds),
    care: "Use a standard queue. Let the AWS account that Amazon's guide names, 437568002678, call `sqs:SendMessage` and \
           `sqs:GetQueueAttributes` on it, and name the queue in `createDestination`. A notification summarizes the \
           order: fetch the rest. Most other types name no order, and are parked: leave them out with `topics`. A \
           fulfillment order's number is the seller's own: with several sellers, use \
           `entity = \"{source}/{account}/{entity}\"` (read on 2026-11-29).",
    sources: &[
        "https://developer-docs.amazon.com/sp-api/docs/set-up-notifications-with-amazon-sqs",
        "https://developer-docs.amazon.com/sp-api/docs/notifications-api-v1-use-case-guide",
        "https://github.com/amzn/selling-partner-api-models/tree/main/schemas/notifications",
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
        ("queues/amazon-sp-api-fba-outbound-shipment-status.json", "requestId", "FBA_OUTBOUND_SHIPMENT_STATUS", "FBA_OUTBOUND_SHIPMENT_STATUS", Some("merchantId"), Some(1_578_701_393_109), "order/113-2646096-4474645"),
        ("queues/amazon-sp-api-fulfillment-order-status.json", "d0e9e693-c3ad-4373-979f-ed4ec98dd746", "FULFILLMENT_ORDER_STATUS", "FULFILLMENT_ORDER_STATUS", Some("A3TH9S8BH6GOGM"), Some(1_594_669_324_284), "fulfillment_order/SFOID2345"),
        ("queues/amazon-sp-api-order-change.json", "d0e9e693-c3ad-4373-979f-ed4ec98dd746", "ORDER_CHANGE", "ORDER_CHANGE", Some("A3TH9S8BH6GOGM"), Some(1_669_750_924_284), "order/903-8868176-2219830"),
    ];

    /// The notification is the start of the example in `FeedProcessingFinishedNotification.json`, read on 2026-11-29.
    #[test]
    fn newer_notification_has_id_topic_and_time_but_no_order() {
        let body = r#"{"notificationVersion":"2020-09-04","notificationType":"FEED_PROCESSING_FINISHED","eventTime":"2020-07-13T19:42:04.284Z","payload":{"feedProcessingFinishedNotification":{"sellerId":"A3TH9S8BH6GOGM","feedId":"53347018456"}},"notificationMetadata":{"notificationId":"d0e9e693-c3ad-4373-979f-ed4ec98dd746"}}"#;
        let described = tests::describe(&AMAZON_SP_API, &[], body);
        assert_eq!(described.delivery_id.as_str(), "d0e9e693-c3ad-4373-979f-ed4ec98dd746");
        assert_eq!((described.topic.as_str(), described.entity), ("FEED_PROCESSING_FINISHED", None));
        assert_eq!(described.event_time, Some(Timestamp::from_millis(1_594_669_324_284)));
    }
}
