//! Deliveries for tests.

use bytes::Bytes;

use crate::{
    protocol::{
        delivery::{Age, Delivery, Incoming},
        entity::{DeliveryId, EntityKey, Identity, Sequence, SourceName},
    },
    time::Timestamp,
};

/// Creates a webhook of the order `shop/order/1`.
pub(crate) fn incoming(id: &str) -> Incoming {
    Incoming {
        entity: EntityKey::parse("shop/order/1").unwrap(),
        identity: Identity { source: SourceName::parse("shop").unwrap(), delivery_id: DeliveryId::new(id), redrive: 0 },
        provider: None,
        topic: "orders/create".into(),
        family: "orders".into(),
        event_time: None,
        received_at: Timestamp::from_secs(1),
        content_type: None,
        body: "{}".into(),
    }
}

/// Creates a delivery that was redriven twice and is at its third attempt.
pub(super) fn delivery(id: &str, entity: &str, body: impl Into<Bytes>) -> Delivery {
    let incoming = Incoming {
        entity: EntityKey::parse(entity).unwrap(),
        identity: Identity { source: SourceName::parse("shop").unwrap(), delivery_id: DeliveryId::new(id), redrive: 2 },
        provider: Some("shopify".into()),
        topic: "orders/paid".into(),
        family: "orders".into(),
        event_time: Some(Timestamp::from_secs(1_795_248_000)),
        received_at: Timestamp::from_millis(1_795_248_001_234),
        content_type: Some("application/json; charset=utf-8".into()),
        body: body.into(),
    };
    let mut delivery = Delivery::detached(incoming, Sequence(41));
    delivery.attempt = 3;
    delivery.age = Age::SameTime;
    delivery
}
