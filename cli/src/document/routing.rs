//! Routes an event to the sources of a document, without a check of its signature.

use anyhow::{Context, Result};
use serde_json::Value;
use webhook_serializer::{
    functions::ingest::{HttpRequest, QueueRecord},
    protocol::{
        delivery::{Delivery, Incoming},
        entity::{EntityKey, Sequence},
    },
    providers::Request,
    sources::{IgnoredBy, ReceivedWebhook, Source, Sources},
    time::Timestamp,
};

/// A source's decision about an event, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub source: String,
    pub topic: String,
    pub does: &'static str,
    /// The order's key, or why the source does not handle the event.
    pub why: String,
}

/// Returns what the source that the Function URL event `event` is for would do with it, and the sources that get their
/// deliveries from it. If the document lacks that source, returns what each of its sources would do. For an SQS event,
/// returns that for each message.
pub fn routes(event: &str, sources: &Sources, now: Timestamp) -> Result<Vec<Route>> {
    let request: HttpRequest =
        serde_json::from_str(event).context("it is no Function URL event, as in events/, and no SQS event")?;
    if let Some(messages) = request.messages() {
        return routes_of_messages(messages, sources, now);
    }
    let name = request.source().with_context(|| explain_no_source(event))?;
    let body = request.bytes().context("`isBase64Encoded` is true, but the body is not base64")?;
    let headers = request.headers();
    let webhook = Request { headers: &headers, body: &body };
    let doors: Vec<_> = match sources.door(name) {
        Some(source) => vec![source],
        None => sources.doors().collect(),
    };
    Ok(doors.into_iter().flat_map(|source| routes_from(source, sources, source.receive(webhook, now), now)).collect())
}

fn explain_no_source(event: &str) -> &'static str {
    match serde_json::from_str::<serde_json::Value>(event) {
        Ok(event) if event.get("Records").is_some() => {
            "an SQS event has at least one record, and each has `messageId`, `eventSourceARN` and `body`"
        }
        _ => "its path is not /webhooks/{source}",
    }
}

fn routes_of_messages(messages: &[QueueRecord], sources: &Sources, now: Timestamp) -> Result<Vec<Route>> {
    let mut routes = Vec::new();
    for message in messages {
        let arn = &message.event_source_arn;
        let source = sources.of_queue(arn).with_context(|| sources.no_such_queue(arn))?;
        routes.extend(routes_from(source, sources, message.receive(source, now), now));
    }
    Ok(routes)
}

/// Returns what a source would do with a webhook or message, and the sources that get its deliveries.
fn routes_from(source: &Source, sources: &Sources, received: ReceivedWebhook, now: Timestamp) -> Vec<Route> {
    let incoming = received.incoming;
    let outcome = RoutingOutcome::of(received.ignored, received.unrouted, &incoming);
    let is_spread = matches!(outcome, RoutingOutcome::Taken(_));
    let mut routes = vec![outcome.route(source, &incoming.topic, &incoming.body)];
    if is_spread {
        let delivery = Delivery::detached(incoming, Sequence(1));
        routes.extend(sources.subscribers(&source.name).map(|subscriber| {
            let outcome = match subscriber.copy(&delivery, now) {
                Some(copy) => RoutingOutcome::of(None, copy.unrouted, &copy.incoming),
                None => RoutingOutcome::Ignored(subscriber.ignores(delivery.topic(), delivery.body())),
            };
            outcome.route(subscriber, delivery.topic(), delivery.body())
        }));
    }
    routes
}

enum RoutingOutcome {
    Ignored(Option<IgnoredBy>),
    /// The delivery is parked, for this reason.
    Parked(String),
    Taken(EntityKey),
}

impl RoutingOutcome {
    fn of(ignored: Option<IgnoredBy>, unrouted: Option<String>, incoming: &Incoming) -> Self {
        match (ignored, unrouted) {
            (Some(field), _) => Self::Ignored(Some(field)),
            (None, Some(reason)) => Self::Parked(reason),
            (None, None) => Self::Taken(incoming.entity.clone()),
        }
    }

    fn route(self, source: &Source, topic: &str, body: &[u8]) -> Route {
        let (does, why) = match self {
            Self::Ignored(Some(IgnoredBy::Filter(place))) => ("ignores it", refusal(&place, body)),
            Self::Ignored(_) => ("ignores it", format!("its `topics` do not take `{topic}`")),
            Self::Parked(reason) => ("parks it", reason),
            Self::Taken(order) => ("takes it", format!("as {order}")),
        };
        Route { source: source.name.to_string(), topic: topic.to_owned(), does, why }
    }
}

/// Returns why a `filter` does not take `body`, by the place that it refuses.
fn refusal(place: &str, body: &[u8]) -> String {
    let has_value = serde_json::from_slice::<Value>(body).is_ok_and(|body| body.pointer(place).is_some());
    match has_value {
        true => format!("its `filter` does not take the value at `{place}`"),
        false => format!("its `filter` needs a value at `{place}`, and the event has none there"),
    }
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
        let null = "its `filter` does not take the value at `/cancelled_at`";
        assert_eq!(routes("filter = { '/cancelled_at' = 'x' }"), one("ignores it", null));
        let none = "its `filter` needs a value at `/nonexistent`, and the event has none there";
        assert_eq!(routes("filter = { '/nonexistent' = 'x' }"), one("ignores it", none));
        assert_eq!(
            routes("entity = 'order/{/no}'"),
            one("parks it", "the source's rules find no order in the webhook")
        );
    }

    #[test]
    fn each_subscriber_of_a_source_has_a_route() {
        let document = "[sources.shopify]\nprovider = 'shopify'\nhandler = 'fan-out'\n\
                        [sources.refunds]\nfrom = 'shopify'\nhandler = 'log'\ntopics = { take = 'refunds/*' }\n\
                        [sources.web]\nfrom = 'shopify'\nhandler = 'log'\nfilter = { '/test' = false }\n\
                        [sources.all]\nfrom = 'shopify'\nhandler = 'log'\n\
                        [sources.shop]\nfrom = 'shopify'\nhandler = 'log'\nentity = '{source}/{/shop_id}'\n";
        let (_, event) =
            samples::of_provider("shopify").into_iter().find(|(name, _)| name.contains("orders-paid")).unwrap();
        let routes = super::routes(event, &Sources::parse(document).unwrap(), Timestamp::from_millis(0)).unwrap();
        let routes: Vec<_> =
            routes.iter().map(|route| (route.source.as_str(), route.does, route.why.as_str())).collect();
        assert_eq!(
            routes,
            [
                ("shopify", "takes it", "as shopify/order/450789469"),
                ("all", "takes it", "as all/order/450789469"),
                ("refunds", "ignores it", "its `topics` do not take `orders/paid`"),
                ("shop", "parks it", "the source's rules find no order in the webhook"),
                ("web", "ignores it", "its `filter` does not take the value at `/test`"),
            ]
        );
    }

    #[test]
    fn each_message_of_a_queue_is_routed_by_its_source() {
        let arn = "arn:aws:sqs:eu-central-1:123456789012:orders";
        let document = format!(
            "[sources.orders]\nprovider = 'generic'\nqueue = '{arn}'\nhandler = 'fan-out'\ngeneric = {{ entity = '/id' }}\n\
             [sources.mails]\nfrom = 'orders'\nhandler = 'log'\n"
        );
        let sources = Sources::parse(&document).unwrap();
        let event = |arn: &str| {
            let message = |body: &str| serde_json::json!({ "messageId": "m", "eventSourceARN": arn, "body": body });
            serde_json::json!({ "Records": [message("{\"id\":7}"), message("{}")] }).to_string()
        };
        let routes = super::routes(&event(arn), &sources, Timestamp::from_millis(0)).unwrap();
        let routes: Vec<_> = routes.iter().map(|route| (route.source.as_str(), route.does)).collect();
        assert_eq!(routes, [("orders", "takes it"), ("mails", "takes it"), ("orders", "parks it")]);
        let unknown = super::routes(&event(&format!("{arn}s")), &sources, Timestamp::from_millis(0)).unwrap_err();
        assert_eq!(unknown.to_string(), format!("no source has queue = \"{arn}s\" (did you mean `{arn}`?)"));
    }

    #[test]
    fn event_for_unknown_source_is_routed_by_every_source() {
        let sources = Sources::parse(samples::SOURCES).unwrap();
        let event = samples::readdressed(samples::of_provider("shopify")[0].1, "elsewhere").unwrap();
        assert_eq!(super::routes(&event, &sources, Timestamp::from_millis(0)).unwrap().len(), sources.iter().count());
    }

    /// Promise: `check --event` routes an SQS event of each preset that reads a queue.
    #[test]
    fn each_message_sample_has_a_route() {
        let mut routed = std::collections::BTreeSet::new();
        for folder in ["events/queues", "templates/inlets/ebay"] {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
            let document = std::fs::read_to_string(folder.join("sources.toml")).unwrap();
            let sources = Sources::parse(&document).unwrap();
            for file in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
                if file.extension().is_some_and(|kind| kind == "json") {
                    let event = std::fs::read_to_string(&file).unwrap();
                    let routes = super::routes(&event, &sources, Timestamp::from_millis(0)).unwrap();
                    let [Route { source, does: "takes it", why, .. }] = routes.as_slice() else { panic!("{routes:?}") };
                    assert!(why.contains("order/"), "{}: {why}", file.display());
                    routed.insert(source.clone());
                }
            }
        }
        assert_eq!(routed.len(), 5, "{routed:?}");
    }

    #[test]
    fn event_without_records_of_a_queue_is_explained() {
        for records in ["[]", r#"[{"messageId": "1"}]"#, r#"[{"eventSourceARN": "arn:aws:sqs:eu-central-1:1:orders"}]"#]
        {
            let event = format!(r#"{{"Records": {records}}}"#);
            let error = super::routes(&event, &Sources::default(), Timestamp::from_secs(1)).unwrap_err();
            assert!(error.to_string().contains("each has `messageId`"), "{records}: {error}");
        }
    }
}
