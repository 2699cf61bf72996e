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

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{error::Category, value::RawValue};

use super::{
    amount::{Amount, Currency, Money},
    history::{short_delivery_id, short_topic},
    news::{FactId, News},
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

/// A body is not what its topic promises. Its text quotes nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is not JSON.
    #[error("the body is not JSON: line {line}, column {column}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// It is JSON of another form.
    #[error("the body is not what its topic promises: line {line}, column {column}")]
    Form {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// One of its fields is absent or holds something else.
    #[error("the body is not what its topic promises: `{0}` cannot be read")]
    Field(&'static str),
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

/// The body as a `T`.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Malformed> {
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        match error.classify() {
            Category::Data => Malformed::Form { line, column },
            Category::Syntax | Category::Eof | Category::Io => Malformed::Syntax { line, column },
        }
    })
}

/// A text, or a number exactly as it is written: ids beyond 2^53 and amounts
/// never pass through a float.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match raw.get().as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw.get()).map(Self).map_err(D::Error::custom),
            Some(b'-' | b'0'..=b'9') => Ok(Self(raw.get().to_owned())),
            _ => Err(D::Error::custom("neither a text nor a number")),
        }
    }
}

impl Scalar {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// As the id of a fact.
    pub(super) fn id(&self) -> FactId {
        FactId::new(&self.0)
    }

    /// As an amount of `currency`; `field` is what it is called in the body.
    pub(super) fn money(&self, currency: &Currency, field: &'static str) -> Result<Money, Malformed> {
        let amount = Amount::parse(&self.0).ok_or(Malformed::Field(field))?;
        Ok(Money { currency: currency.clone(), amount })
    }
}

/// The currency that a body names.
pub(super) fn currency(text: &str) -> Result<Currency, Malformed> {
    Currency::parse(text).ok_or(Malformed::Field("currency"))
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

    #[test]
    fn numbers_are_taken_as_they_are_written() {
        let scalar = |text: &str| read::<Scalar>(text.as_bytes()).map(|scalar| scalar.0);
        assert_eq!(scalar("820982911946154508123"), Ok("820982911946154508123".into()));
        assert_eq!(scalar(r#""a\u00e9""#), Ok("aé".into()));
        assert_eq!(scalar("20.0"), Ok("20.0".into()));
        assert!(scalar("true").is_err() && scalar("null").is_err() && scalar("[1]").is_err());
    }
}
