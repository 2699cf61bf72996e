//! Deliveries as news of an order.
//!
//! Its provider says how a delivery is read. One that does not tell its provider
//! is read by its topic's shape: it was stored, and perhaps parked, by an
//! earlier version, or appended by an application of the user's.
//!
//! | topic | provider |
//! |---|---|
//! | with a slash, `orders/paid` | Shopify |
//! | `payment_intent.…`, `charge.…` | Stripe |
//! | `order.created`, `.updated`, `.deleted`, `.restored` | WooCommerce |
//!
//! Others say `order.updated` too, in other words: WooCommerce's body is the
//! one with an `id` of its own at the top.
//!
//! A delivery of another provider is news of nothing, and so is a topic that
//! is not understood. A body that is not what
//! an understood topic promises is refused; nothing that is said about it
//! quotes it, since bodies hold personal data.

use super::{
    body::Malformed,
    history::{short_delivery_id, short_topic},
    news::News,
    shopify, stripe, woocommerce,
};
use crate::{
    protocol::{
        delivery::Delivery,
        entity::{Sequence, SourceName},
    },
    time::Timestamp,
};

/// What one delivery says about its order.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderEvent {
    pub(super) source: SourceName,
    pub(super) topic: String,
    pub(super) delivery_id: String,
    pub(super) sequence: Sequence,
    pub(super) received_at: Timestamp,
    pub(super) event_time: Option<Timestamp>,
    /// `None`: its topic is not understood.
    pub(super) news: Option<News>,
}

impl OrderEvent {
    /// Reads a delivery.
    pub fn read(delivery: &Delivery) -> Result<Self, Malformed> {
        Ok(Self {
            source: delivery.source().clone(),
            topic: short_topic(delivery.topic()),
            delivery_id: short_delivery_id(delivery.delivery_id().as_str()),
            sequence: delivery.sequence(),
            received_at: delivery.received_at(),
            event_time: delivery.event_time(),
            news: news(delivery.provider(), delivery.topic(), delivery.body())?,
        })
    }
}

fn news(provider: Option<&str>, topic: &str, body: &[u8]) -> Result<Option<News>, Malformed> {
    match provider.or_else(|| by_shape(topic)) {
        Some("shopify") => shopify::news(topic, body),
        Some("stripe") => stripe::news(topic, body),
        Some("woocommerce") => woocommerce::news(topic, body),
        _ => Ok(None),
    }
}

/// The provider that says such topics, as far as that can be told.
fn by_shape(topic: &str) -> Option<&'static str> {
    match topic.split_once(['/', '.'])? {
        _ if topic.contains('/') => Some("shopify"),
        ("payment_intent" | "charge", _) => Some("stripe"),
        ("order", _) => Some("woocommerce"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_is_not_understood_is_no_news_whatever_its_body() {
        for topic in ["order", "unknown", "products/update", "order.shipped", "charge.succeeded", "invoice.paid", ""] {
            assert_eq!(news(None, topic, b"\xff"), Ok(None), "{topic}");
        }
    }

    #[test]
    fn a_delivery_that_tells_its_provider_is_read_by_that_whatever_its_topic_looks_like() {
        let shopify = br#"{"id":1,"currency":"USD","total_price":"5"}"#;
        assert!(news(Some("shopify"), "orders/paid", shopify).unwrap().is_some());
        assert_eq!(news(Some("generic"), "orders/paid", shopify), Ok(None));
        assert_eq!(news(Some("stripe"), "orders/paid", shopify), Ok(None));
        let woocommerce = br#"{"id":1,"status":"processing","currency":"EUR","total":"5.00"}"#;
        assert!(news(Some("woocommerce"), "order.updated", woocommerce).unwrap().is_some());
        assert_eq!(news(Some("standard-webhooks"), "order.updated", woocommerce), Ok(None));
    }

    #[test]
    fn what_is_said_of_a_body_quotes_nothing_of_it() {
        for (topic, body) in [
            ("orders/paid", r#"{"id":"ada@example.com","total_price":"ada@example.com","currency":"ada@example.com"}"#),
            ("orders/paid", r#"{"id":1,"financial_status":{"ada@example.com":1}}"#),
            ("orders/paid", r#"["ada@example.com"]"#),
            ("refunds/create", r#"{"transactions":["ada@example.com"]}"#),
            ("charge.refunded", r#"{"data":{"object":"ada@example.com"}}"#),
            ("order.updated", r#"{"id":1,"status":"ada@example.com","currency":"ada@example.com","total":1}"#),
            ("order.updated", "ada@example.com"),
        ] {
            let reason = news(None, topic, body.as_bytes()).unwrap_err().to_string();
            assert!(!reason.contains("ada"), "{reason}");
        }
    }

    #[test]
    fn the_reason_says_what_is_wrong_and_where() {
        assert_eq!(news(None, "orders/paid", b"{"), Err(Malformed::Syntax { line: 1, column: 1 }));
        assert_eq!(news(None, "orders/paid", b"{}"), Err(Malformed::Form { line: 1, column: 2 }));
        let body = br#"{"id":1,"currency":"USD","total_price":"a lot"}"#;
        assert_eq!(news(None, "orders/paid", body), Err(Malformed::Field("total_price")));
    }
}
