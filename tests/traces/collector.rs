//! A collector of spans and a receiver of deliveries, both in one server on loopback.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value as Any},
    trace::v1::{Span, span::SpanKind},
};
use prost::Message;
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch};

/// A received span.
#[derive(Debug, Clone)]
pub struct ReceivedSpan {
    pub service: String,
    pub name: String,
    pub kind: SpanKind,
    pub trace: String,
    pub span: String,
    /// The id of the parent span; empty if there is none.
    pub parent: String,
    /// The trace id and span id of each link.
    pub links: Vec<(String, String)>,
    pub attributes: BTreeMap<String, String>,
    pub is_error: bool,
    pub from: u64,
    pub to: u64,
}

impl ReceivedSpan {
    fn of(service: &str, span: &Span) -> Self {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let status = span.status.as_ref();
        assert_eq!(status.map_or("", |status| &status.message), "", "an error's text may quote a body");
        Self {
            service: service.to_owned(),
            name: span.name.clone(),
            kind: span.kind(),
            trace: hex(&span.trace_id),
            span: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
            attributes: {
                let all: Vec<_> = span.attributes.iter().filter_map(text).collect();
                let by_name: BTreeMap<_, _> = all.iter().cloned().collect();
                assert_eq!(by_name.len(), all.len(), "each attribute once: {all:?}");
                by_name
            },
            is_error: status.is_some_and(|status| status.code == 2),
            from: span.start_time_unix_nano,
            to: span.end_time_unix_nano,
        }
    }

    pub fn place(&self) -> (String, String) {
        (self.trace.clone(), self.span.clone())
    }

    /// Returns the `traceparent` that this span's children get.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.span)
    }

    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(&format!("serializer.{name}")).map_or("", String::as_str)
    }
}

fn text(attribute: &KeyValue) -> Option<(String, String)> {
    let text = match attribute.value.as_ref()?.value.as_ref()? {
        Any::StringValue(text) => text.clone(),
        Any::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    Some((attribute.key.clone(), text))
}

/// A received delivery.
#[derive(Debug, Clone)]
pub struct CollectedDelivery {
    pub traceparent: Option<String>,
    pub body: Value,
}

#[derive(Debug, Clone, Default)]
pub struct TraceCollector {
    pub url: String,
    spans: watch::Sender<Vec<ReceivedSpan>>,
    received: watch::Sender<Vec<CollectedDelivery>>,
    /// While this is set, requests with spans get no answer.
    pub shut: watch::Sender<bool>,
    /// All received spans, as protobuf.
    raw: Arc<Mutex<Vec<u8>>>,
}

async fn take(State(collector): State<TraceCollector>, headers: HeaderMap, body: Bytes) -> Vec<u8> {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    collector.shut.subscribe().wait_for(|shut| !shut).await.unwrap();
    collector.raw.lock().unwrap().extend_from_slice(&body);
    let request = ExportTraceServiceRequest::decode(body).expect("it is OTLP");
    let mut seen = Vec::new();
    for of_one in &request.resource_spans {
        let resource = of_one.resource.as_ref().expect("it says whose");
        let named = resource.attributes.iter().filter_map(text).find(|(name, _)| name == "service.name");
        let (_, service) = named.expect("it has a name");
        seen.extend(
            of_one.scope_spans.iter().flat_map(|scope| &scope.spans).map(|span| ReceivedSpan::of(&service, span)),
        );
    }
    collector.spans.send_modify(|spans| spans.extend(seen));
    Vec::new()
}

async fn receive(
    State(collector): State<TraceCollector>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    let traceparent: Vec<_> = headers.get_all("traceparent").iter().collect();
    assert!(traceparent.len() <= 1, "{traceparent:?}");
    let traceparent = traceparent.first().map(|value| value.to_str().unwrap().to_owned());
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let first = collector.received.borrow().is_empty();
    let said = body.to_string();
    collector.received.send_modify(|received| received.push(CollectedDelivery { traceparent, body }));
    match first {
        true if said.contains("fails once") => (StatusCode::INTERNAL_SERVER_ERROR, "not the first time"),
        true if said.contains("is gone once") => (StatusCode::GONE, "not the first time"),
        _ => (StatusCode::OK, r#"{"outcome":"done"}"#),
    }
}

impl TraceCollector {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let collector = Self { url: format!("http://{}", listener.local_addr().unwrap()), ..Self::default() };
        let routes = Router::new()
            .route("/v1/traces", post(take))
            .route("/hook", post(receive))
            .route("/2015-03-31/functions/{name}/invocations", post(receive))
            .with_state(collector.clone());
        tokio::spawn(async { axum::serve(listener, routes).await });
        collector
    }

    /// Waits until `so` returns true for all spans, and returns them.
    pub async fn until(&self, so: impl Fn(&[ReceivedSpan]) -> bool) -> Vec<ReceivedSpan> {
        let mut spans = self.spans.subscribe();
        // `self` owns the sender, so the channel is open.
        spans.wait_for(|spans| so(spans)).await.unwrap().clone()
    }

    /// Waits until this many drains have ended, and returns all spans. A drain's span ends last.
    pub async fn drained(&self, drains: usize) -> Vec<ReceivedSpan> {
        self.until(|spans| spans.iter().filter(|span| span.name == "drain").count() >= drains).await
    }

    /// Waits for this many deliveries, and returns them.
    pub async fn received(&self, count: usize) -> Vec<CollectedDelivery> {
        let mut received = self.received.subscribe();
        received.wait_for(|received| received.len() >= count).await.unwrap().clone()
    }

    /// Returns whether any received span holds `text`.
    pub fn holds(&self, text: &str) -> bool {
        self.raw.lock().unwrap().windows(text.len()).any(|some| some == text.as_bytes())
    }
}

/// Returns the only span of this name; in `trace`, if one is given.
pub fn one<'a>(spans: &'a [ReceivedSpan], name: &str, trace: &str) -> &'a ReceivedSpan {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name && span.trace.starts_with(trace)).collect();
    match found[..] {
        [one] => one,
        _ => panic!("{} spans `{name}` of `{trace}` in {spans:#?}", found.len()),
    }
}
