//! The samples of `events/`, signed again for a source at a given time.

mod keys;
pub mod queued;

use anyhow::{Context, Result};
use webhook_serializer::{
    functions::ingest::HttpRequest,
    protocol::delivery::Incoming,
    providers::{self, Verified},
    sources::{ORIGIN_HEADER, Source, Sources},
    time::Timestamp,
};

pub use keys::DevelopmentKeys;

pub const SOURCES: &str = include_str!("../../events/sources.toml");

#[derive(Debug, Clone, Copy)]
pub struct Sample {
    event: &'static str,
    /// The text in the event that names the order.
    order: &'static str,
    source: Option<&'static str>,
}

macro_rules! sample {
    ($name:literal, $order:literal) => {
        Sample { event: include_str!(concat!("../../events/", $name, ".json")), order: $order, source: None }
    };
}

/// The name and text of each webhook in `events/`.
pub const ALL: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/webhooks.rs"));

pub const SHOPIFY: [Sample; 5] = [
    sample!("shopify-orders-create", "450789469"),
    sample!("shopify-orders-paid", "450789469"),
    sample!("shopify-fulfillments-create", "450789469"),
    sample!("shopify-refunds-create", "450789469"),
    sample!("shopify-orders-cancelled", "450789469"),
];

pub const STRIPE: [Sample; 2] =
    [sample!("stripe-payment-intent-succeeded", "450789469"), sample!("stripe-charge-refunded", "450789469")];

pub const WOOCOMMERCE: [Sample; 2] =
    [sample!("woocommerce-order-created", "727"), sample!("woocommerce-order-updated", "727")];

#[derive(Debug, Clone)]
pub struct SignedWebhook {
    pub source: String,
    pub query: Option<String>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub incoming: Incoming,
}

impl Sample {
    #[must_use]
    pub fn to(self, source: &'static str) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Returns this sample for another order, signed at `now` with the source's first secret. Panics if the sample's
    /// source is not configured.
    pub fn of_order(&self, order: &str, sources: &Sources, now: Timestamp) -> SignedWebhook {
        // Each order has its own payment and event ids.
        let event = self.event.replace(self.order, order).replace("ExampleDev0", &format!("ExampleDev{order}"));
        let mut request: HttpRequest = serde_json::from_str(&event).expect("a sample is an event");
        if let Some(source) = self.source {
            request.raw_path = format!("/webhooks/{source}");
        }
        // Ids in headers belong to the delivery, not the order.
        if let Some(id) = request.headers.get_mut("x-shopify-webhook-id") {
            id.push_str(&format!("-{order}"));
        }
        sign(&request, sources, now).expect("a sample's source is configured")
    }
}

pub fn of_provider(provider: &str) -> Vec<(&'static str, &'static str)> {
    let sources = Sources::parse(SOURCES).expect("the samples' own");
    let is_its = |event: &str| {
        let request: Option<HttpRequest> = serde_json::from_str(event).ok();
        let source = request.and_then(|request| sources.get(request.source()?).cloned());
        source.is_some_and(|source| source.provider_name == provider)
    };
    ALL.iter().filter(|(_, event)| is_its(event)).copied().collect()
}

/// Returns the source of `sources` to which samples of `provider` can be sent: one that can verify them, if there is
/// any.
pub fn source_of<'a>(provider: &str, sources: &'a Sources) -> Option<&'a Source> {
    let of_provider = || sources.doors().filter(|source| source.provider_name == provider);
    of_provider().find(|source| source.has_secret()).or_else(|| of_provider().next()).map(AsRef::as_ref)
}

/// Returns whether [`webhook`] can sign a sample for `source`. With a published key, only the development keys sign.
pub fn is_signable(source: &Source, development_keys: bool) -> bool {
    let blank = || source.sign(&providers::Headers::default(), b"{}", Timestamp::from_millis(0));
    let in_body = of_provider(&source.provider_name)
        .first()
        .and_then(|(_, event)| source.signed_body(&serde_json::from_str::<HttpRequest>(event).ok()?.bytes()?));
    let can_sign = match source.has_published_key() {
        true => development_keys,
        false => source.query().is_some() || in_body.is_some() || !blank().is_empty(),
    };
    source.has_secret() && can_sign
}

/// Returns the Function URL event with another source in its path.
pub fn readdressed(event: &str, source: &str) -> Result<String> {
    let request: HttpRequest = serde_json::from_str(event)?;
    Ok(serde_json::to_string(&HttpRequest { raw_path: format!("/webhooks/{source}"), ..request })?)
}

pub fn is_webhook(event: &str) -> bool {
    serde_json::from_str(event).is_ok_and(|request: HttpRequest| request.source().is_some())
}

/// Returns the webhook of a Function URL event. The webhook is signed again at `now`, unless it is an unsigned ping, or
/// its sender signs with a private key.
pub fn webhook(event: &str, sources: &Sources, now: Timestamp) -> Result<SignedWebhook> {
    sign(&serde_json::from_str(event)?, sources, now)
}

fn sign(request: &HttpRequest, sources: &Sources, now: Timestamp) -> Result<SignedWebhook> {
    let name = request.source().context("its path is not /webhooks/{source}")?.to_owned();
    let source = sources.door(&name).with_context(|| {
        format!("source `{name}` is not in the sources document; name another document with --sources")
    })?;
    let mut body = request.bytes().context("`isBase64Encoded` is true, but the body is not base64")?.into_owned();
    // Headers that the Function URL adds or the HTTP client sets are left out.
    let kept = |name: &str| {
        let own = matches!(name, "content-length" | "host" | "accept-encoding");
        !own && !name.starts_with("x-amzn-") && !name.starts_with("x-forwarded-")
    };
    let sent = request.headers.iter().filter(|(name, _)| kept(name));
    let mut headers: Vec<(String, String)> = sent.map(|(name, value)| (name.clone(), value.clone())).collect();
    keys::sign(source, &mut headers, &mut body, now);
    body = source.signed_body(&body).unwrap_or(body);
    // A proxy in front of ingest would add this.
    headers.extend(sources.origin_secret().map(|secret| (ORIGIN_HEADER.to_owned(), secret.to_owned())));
    let query = query(&request.raw_query_string, source.query());
    let in_url = || query.clone().unwrap_or_default();
    let unsigned = headers.iter().cloned().collect::<providers::Headers>().with_query(in_url());
    let as_it_is = source.verify(providers::Request { headers: &unsigned, body: &body }, now);
    // A ping has no signature; a signed ping would be a delivery.
    let signed = if as_it_is == Ok(Verified::Ping) { Vec::new() } else { source.sign(&unsigned, &body, now) };
    headers.retain(|(name, _)| !signed.iter().any(|(other, _)| other == name));
    headers.extend(signed);
    let collected = headers.iter().cloned().collect::<providers::Headers>().with_query(in_url());
    let incoming = source.delivery(providers::Request { headers: &collected, body: &body }, now);
    Ok(SignedWebhook { source: name, query, headers, body, incoming })
}

/// Returns the parameters of a URL, with the source's own token instead of that of the sample.
fn query(sent: &str, token: Option<String>) -> Option<String> {
    let name = |field: &str| field.split('=').next().unwrap_or_default().to_owned();
    let own = token.as_deref().map_or("token".to_owned(), name);
    let kept = sent.split('&').filter(|field| !field.is_empty() && name(field) != own).map(str::to_owned);
    let all: Vec<String> = token.into_iter().chain(kept).collect();
    Some(all.join("&")).filter(|query| !query.is_empty())
}

impl SignedWebhook {
    pub fn curl(&self, url: &str) -> Result<String> {
        let body = std::str::from_utf8(&self.body).context("its body is not text")?;
        Ok(curl_line(url, &self.path(), &self.headers, body))
    }

    pub fn path(&self) -> String {
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("/webhooks/{}{query}", self.source)
    }
}

pub const CURL_ENTITY: &str = "shopify/order/1001";

const CURL_BODY: &str = r##"{"id":1001,"name":"#1001","currency":"USD","total_price":"48.20","financial_status":"paid","fulfillment_status":null,"cancelled_at":null,"updated_at":"2026-01-05T09:00:00Z"}"##;

/// Returns a curl command that posts the webhook of a created order to `url`. The signature does not expire, because
/// Shopify signs only the body and no time.
pub fn curl(url: &str) -> String {
    let sources = Sources::parse(SOURCES).expect("the samples' own");
    let source = sources.get("shopify").expect("the samples' own");
    let sent = [
        ("x-shopify-topic", "orders/create"),
        ("x-shopify-webhook-id", "curl-1"),
        ("content-type", "application/json"),
    ];
    let mut headers: Vec<(String, String)> = sent.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let signed = source.sign(&headers.iter().cloned().collect(), CURL_BODY.as_bytes(), Timestamp::from_millis(0));
    headers.extend(signed);
    curl_line(url, "/webhooks/shopify", &headers, CURL_BODY)
}

fn curl_line(url: &str, path: &str, headers: &[(String, String)], body: &str) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let headers: String =
        headers.iter().map(|(name, value)| format!(" \\\n  -H {}", quoted(&format!("{name}: {value}")))).collect();
    let address = format!("{url}{path}");
    let address = if path.contains('?') { quoted(&address) } else { address };
    format!("curl {address}{headers} \\\n  --data-binary {}", quoted(body))
}

#[cfg(test)]
mod tests {
    use webhook_serializer::providers::webhook_senders;

    use super::*;

    #[test]
    fn every_provider_has_a_sample() {
        let of_all: usize = webhook_senders().map(|name| of_provider(name).len()).sum();
        assert_eq!(of_all, ALL.len());
        for name in webhook_senders() {
            assert!(!of_provider(name).is_empty(), "{name} has no sample in events/");
        }
    }

    #[test]
    fn sample_keeps_its_query_under_sources_own_token() {
        let document = "[sources.pay]\nprovider = 'klarna'\nsecrets = 'q7mZ4kT1'\nhandler = 'log'";
        let sources = Sources::parse(document).unwrap();
        let (_, event) = of_provider("klarna")[0];
        let sent = webhook(&readdressed(event, "pay").unwrap(), &sources, Timestamp::from_millis(0)).unwrap();
        let order = "7849fd85-47dc-4919-a7ce-47b9f461562f";
        assert_eq!(sent.path(), format!("/webhooks/pay?token=q7mZ4kT1&klarna_order_id={order}"));
        assert_eq!(sent.incoming.entity.as_str(), format!("pay/order/{order}"));
    }

    #[test]
    fn sample_of_every_provider_can_be_signed() {
        let own = Sources::parse(SOURCES).unwrap();
        for name in webhook_senders() {
            let source = source_of(name, &own).expect("each provider has a source");
            assert!(is_signable(source, true), "{name}");
        }
    }
}
