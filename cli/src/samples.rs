//! The sample webhooks of `events/`, for as many orders as are wanted.

use ingest::Request;
use shared::{delivery::Incoming, providers, sources::Sources, time::Timestamp};

/// The sources document that goes with the samples.
pub const SOURCES: &str = include_str!("../../events/sources.toml");

/// One sample: a Function URL event.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    event: &'static str,
    /// What in it names the order.
    order: &'static str,
}

macro_rules! sample {
    ($name:literal, $order:literal) => {
        Sample { event: include_str!(concat!("../../events/", $name, ".json")), order: $order }
    };
}

/// A Shopify order's life.
pub const SHOPIFY: [Sample; 5] = [
    sample!("shopify-orders-create", "450789469"),
    sample!("shopify-orders-paid", "450789469"),
    sample!("shopify-fulfillments-create", "450789469"),
    sample!("shopify-refunds-create", "450789469"),
    sample!("shopify-orders-cancelled", "450789469"),
];

/// A payment's life.
pub const STRIPE: [Sample; 2] =
    [sample!("stripe-payment-intent-succeeded", "450789469"), sample!("stripe-charge-refunded", "450789469")];

/// A WooCommerce order's life.
pub const WOOCOMMERCE: [Sample; 2] =
    [sample!("woocommerce-order-created", "727"), sample!("woocommerce-order-updated", "727")];

/// A webhook, ready to be posted to `/webhooks/{source}`.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// The source.
    pub source: String,
    /// The headers, the signature's among them.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// What ingest will make of it.
    pub incoming: Incoming,
}

impl Sample {
    /// This sample for another order, signed at `now` by its source's first
    /// secret.
    ///
    /// # Panics
    ///
    /// The sample's source is not configured, or the sample is none.
    pub fn of_order(&self, order: &str, sources: &Sources, now: Timestamp) -> Webhook {
        let event = self.event.replace(self.order, order);
        let request: Request = serde_json::from_str(&event).expect("a sample is an event");
        let name = request.source().expect("a sample names its source").to_owned();
        let source = sources.get(&name).expect("a sample's source is configured");
        let body = request.bytes().expect("a sample's body is readable").into_owned();
        // Ids in headers are per delivery, not per order.
        let unique = |(name, value): (&String, &String)| {
            let value = if name == "x-shopify-webhook-id" { format!("{value}-{order}") } else { value.clone() };
            (name.clone(), value)
        };
        let kept = |name: &str| {
            !matches!(name, "content-length" | "host" | "accept-encoding")
                && !name.starts_with("x-amzn-")
                && !name.starts_with("x-forwarded-")
        };
        let mut headers: Vec<(String, String)> =
            request.headers.iter().map(unique).filter(|(name, _)| kept(name)).collect();
        let signed = source.sign(&headers.iter().cloned().collect(), &body, now);
        headers.retain(|(name, _)| !signed.iter().any(|(other, _)| other == name));
        headers.extend(signed);
        let collected = headers.iter().cloned().collect();
        let incoming = source.delivery(providers::Request { headers: &collected, body: &body }, now);
        Webhook { source: name, headers, body, incoming }
    }
}
