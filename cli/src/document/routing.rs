//! What each source of a document would do with an event, without a look at its signature.

use anyhow::{Context, Result};
use webhook_serializer::{
    functions::ingest::HttpRequest,
    providers::Request,
    sources::{IgnoredBy, Source, Sources},
    time::Timestamp,
};

/// What a source would do with an event, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub source: String,
    pub topic: String,
    pub does: &'static str,
    /// The order's key, or why the source does not handle the event.
    pub why: String,
}

/// Returns what the source that the Function URL event `event` is for would do with it. If the document lacks that
/// source, returns what each of its sources would do.
pub fn routes(event: &str, sources: &Sources, now: Timestamp) -> Result<Vec<Route>> {
    let request: HttpRequest = serde_json::from_str(event).context("it is not a Function URL event, as in events/")?;
    let name = request.source().context("its path is not /webhooks/{source}")?;
    let body = request.bytes().context("`isBase64Encoded` is true, but the body is not base64")?;
    let headers = request.headers();
    let webhook = Request { headers: &headers, body: &body };
    Ok(match sources.get(name) {
        Some(source) => vec![route(source, webhook, now)],
        None => sources.iter().map(|source| route(source, webhook, now)).collect(),
    })
}

fn route(source: &Source, webhook: Request<'_>, now: Timestamp) -> Route {
    let received = source.receive(webhook, now);
    let topic = received.incoming.topic;
    let (does, why) = match (received.ignored, received.unrouted) {
        (Some(IgnoredBy::Topics), _) => ("ignores it", format!("its `topics` do not take `{topic}`")),
        (Some(IgnoredBy::Filter(place)), _) => {
            ("ignores it", format!("its `filter` does not take the value at `{place}`"))
        }
        (None, Some(reason)) => ("parks it", reason),
        (None, None) => ("takes it", format!("as {}", received.incoming.entity)),
    };
    Route { source: source.name.to_string(), topic, does, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::samples;

    fn routes(fields: &str) -> Vec<(&'static str, String)> {
        let document = format!("[sources.shopify]\nprovider = 'shopify'\nhandler = 'log'\n{fields}");
        let (_, event) =
            samples::of_provider("shopify").into_iter().find(|(name, _)| name.contains("orders-paid")).unwrap();
        let routes = super::routes(event, &Sources::parse(&document).unwrap(), Timestamp::from_millis(0)).unwrap();
        routes.into_iter().map(|route| (route.does, route.why)).collect()
    }

    #[test]
    fn route_names_field_that_excludes_event() {
        let one = |does, why: &str| vec![(does, why.to_owned())];
        assert_eq!(routes(""), one("takes it", "as shopify/order/450789469"));
        assert_eq!(
            routes("topics = { ignore = 'orders/*' }"),
            one("ignores it", "its `topics` do not take `orders/paid`")
        );
        let place = "its `filter` does not take the value at `/financial_status`";
        assert_eq!(routes("filter = { '/financial_status' = 'refunded' }"), one("ignores it", place));
        assert_eq!(routes("filter = { '/financial_status' = 'paid' }"), routes(""));
        assert_eq!(
            routes("entity = 'order/{/no}'"),
            one("parks it", "the source's rules find no order in the webhook")
        );
    }

    #[test]
    fn event_for_unknown_source_is_routed_by_every_source() {
        let sources = Sources::parse(samples::SOURCES).unwrap();
        let event = samples::readdressed(samples::of_provider("shopify")[0].1, "elsewhere").unwrap();
        assert_eq!(super::routes(&event, &sources, Timestamp::from_millis(0)).unwrap().len(), sources.iter().count());
    }
}
