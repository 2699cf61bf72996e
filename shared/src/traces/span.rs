//! Creates trace spans, and passes the trace context on.

use std::collections::BTreeMap;

use opentelemetry::{
    Context, KeyValue,
    context::FutureExt,
    trace::{
        SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer,
    },
};

use super::export::tracer;
use crate::{
    protocol::{
        delivery::{Incoming, TOPIC_BYTES},
        entity::{DeliveryId, EntityKey, SourceName},
        format::shortened,
        trace::{Trace, TraceParent},
    },
    time::{Env, Timestamp},
};

pub fn current() -> Trace {
    trace_of(&Context::current())
}

pub fn in_current_context<F: Future>(future: F) -> impl Future<Output = F::Output> {
    future.with_current_context()
}

pub(super) fn trace_of(context: &Context) -> Trace {
    let span = context.span();
    let at = span.span_context();
    if !at.is_valid() {
        return Trace::default();
    }
    let trace = at.trace_id().to_bytes();
    let span = at.span_id().to_bytes();
    let flags = at.trace_flags().to_u8();
    TraceParent { trace: u128::from_be_bytes(trace), span: u64::from_be_bytes(span), flags }.into()
}

pub(super) fn remote_context(trace: Trace) -> Context {
    let Some(parent) = trace.parent() else { return Context::new() };
    let trace = TraceId::from(parent.trace);
    let span = SpanId::from(parent.span);
    // Trace Context version 00 defines only this flag.
    let flags = TraceFlags::default().with_sampled(parent.flags & 1 == 1);
    Context::new().with_remote_span_context(SpanContext::new(trace, span, flags, true, TraceState::NONE))
}

/// Starts a child span of `parent`, and returns its context. Returns an empty context if no collector is
/// configured.
pub(super) fn start_span(span: SpanBuilder, parent: &Context) -> Context {
    match tracer() {
        Some(tracer) => parent.with_span(tracer.build_with_context(span, parent)),
        None => Context::new(),
    }
}

pub(super) fn attributes_of(source: &SourceName, topic: &str, entity: &EntityKey, id: &DeliveryId) -> Vec<KeyValue> {
    vec![
        KeyValue::new("serializer.source", source.to_string()),
        KeyValue::new("serializer.topic", shortened(topic, TOPIC_BYTES)),
        KeyValue::new("serializer.entity_key", entity.to_string()),
        KeyValue::new("serializer.delivery_id", id.to_string()),
    ]
}

pub(super) fn number(name: &'static str, number: u64) -> KeyValue {
    KeyValue::new(name, i64::try_from(number).unwrap_or(i64::MAX))
}

/// Sets a span's outcome to a constant text, because an error's text may quote a webhook's body.
pub(super) fn set_outcome(context: &Context, outcome: &'static str, is_error: bool) {
    context.span().set_attribute(KeyValue::new("serializer.outcome", outcome));
    context.span().set_status(if is_error { Status::error("") } else { Status::Unset });
}

/// A request that is not verified yet, and so has no span.
#[derive(Debug)]
pub struct ReceivedRequest {
    parent: Trace,
    began: Timestamp,
}

impl ReceivedRequest {
    pub fn new(headers: &BTreeMap<String, String>, env: &Env) -> Self {
        Self { parent: Trace::parse(headers.get("traceparent").map(String::as_str)), began: env.now() }
    }

    /// Starts the span of a verified request, dated back to the request's arrival.
    pub fn begin_span(self, incoming: &Incoming) -> RequestSpan {
        let Incoming { entity, identity, topic, .. } = incoming;
        let mut attributes = attributes_of(&identity.source, topic, entity, &identity.delivery_id);
        attributes.push(KeyValue::new("http.request.method", "POST"));
        attributes.push(KeyValue::new("http.route", "/webhooks/{source}"));
        let span = SpanBuilder::from_name(format!("POST /webhooks/{}", identity.source))
            .with_kind(SpanKind::Server)
            .with_start_time(self.began)
            .with_attributes(attributes);
        let span = start_span(span, &remote_context(self.parent));
        start_span(SpanBuilder::from_name("verify").with_start_time(self.began), &span).span().end();
        RequestSpan(span)
    }
}

#[derive(Debug)]
pub struct RequestSpan(Context);

impl RequestSpan {
    /// Runs `append` in a child span. The ids of the request's span are stored with the delivery.
    pub async fn within<F: Future>(&self, append: F) -> F::Output {
        let span = start_span(SpanBuilder::from_name("append"), &self.0);
        let output = append.with_context(self.0.clone()).await;
        span.span().end();
        output
    }

    pub fn end(self, outcome: &'static str, status: u16) {
        set_outcome(&self.0, outcome, status >= 500);
        self.0.span().set_attribute(number("http.response.status_code", status.into()));
        self.0.span().end();
    }
}

pub async fn append_deferred<T, E>(
    incoming: &Incoming,
    trace: Trace,
    append: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    append_in_span("append deferred", incoming, trace, append).await
}

/// Appends a message of a source's queue, with a span for the append.
pub async fn append_message<T, E>(
    incoming: &Incoming,
    trace: Trace,
    append: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    append_in_span("append message", incoming, trace, append).await
}

async fn append_in_span<T, E>(
    name: &'static str,
    incoming: &Incoming,
    trace: Trace,
    append: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let Incoming { entity, identity, topic, .. } = incoming;
    let attributes = attributes_of(&identity.source, topic, entity, &identity.delivery_id);
    let span = start_span(SpanBuilder::from_name(name).with_attributes(attributes), &remote_context(trace));
    let taken = append.with_context(span.clone()).await;
    set_outcome(&span, if taken.is_ok() { "appended" } else { "not stored" }, taken.is_err());
    span.span().end();
    taken
}
