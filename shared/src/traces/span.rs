//! Spans, and what is current.

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

/// What to store with a delivery that is appended now, or to send along with a request.
pub fn current() -> Trace {
    here(&Context::current())
}

/// `future` as part of what is current now, wherever it runs.
pub fn kept<F: Future>(future: F) -> impl Future<Output = F::Output> {
    future.with_current_context()
}

/// The place of a context's span.
pub(super) fn here(context: &Context) -> Trace {
    let span = context.span();
    let at = span.span_context();
    if !at.is_valid() {
        return Trace::default();
    }
    let (trace, span) = (at.trace_id().to_bytes(), at.span_id().to_bytes());
    let flags = at.trace_flags().to_u8();
    TraceParent { trace: u128::from_be_bytes(trace), span: u64::from_be_bytes(span), flags }.into()
}

/// The context in which that place's span is current, which is another process's.
pub(super) fn there(trace: Trace) -> Context {
    let Some(parent) = trace.parent() else { return Context::new() };
    let (trace, span) = (TraceId::from(parent.trace), SpanId::from(parent.span));
    // Of the flags, this version knows one.
    let flags = TraceFlags::default().with_sampled(parent.flags & 1 == 1);
    Context::new().with_remote_span_context(SpanContext::new(trace, span, flags, true, TraceState::NONE))
}

/// A span beneath the one of `parent`, begun; it ends when it is told to. Where traces
/// are sent nowhere, none.
pub(super) fn begun(span: SpanBuilder, parent: &Context) -> Context {
    match tracer() {
        Some(tracer) => parent.with_span(tracer.build_with_context(span, parent)),
        None => Context::new(),
    }
}

/// What a span has of the delivery that it is about.
pub(super) fn about(source: &SourceName, topic: &str, entity: &EntityKey, id: &DeliveryId) -> Vec<KeyValue> {
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

/// What became of a span's work: a text of ours, since the error's own may quote a body.
pub(super) fn became(context: &Context, outcome: &'static str, is_error: bool) {
    context.span().set_attribute(KeyValue::new("serializer.outcome", outcome));
    context.span().set_status(if is_error { Status::error("") } else { Status::Unset });
}

/// A request at the door.
#[derive(Debug)]
pub struct Door {
    parent: Trace,
    began: Timestamp,
}

impl Door {
    /// It came with these headers.
    pub fn opens(headers: &BTreeMap<String, String>, env: &Env) -> Self {
        Self { parent: Trace::parse(headers.get("traceparent").map(String::as_str)), began: env.now() }
    }

    /// It is its sender's, and this is what it brought: its span has begun when it came.
    pub fn verified(self, incoming: &Incoming) -> Entered {
        let Incoming { entity, identity, topic, .. } = incoming;
        let mut attributes = about(&identity.source, topic, entity, &identity.delivery_id);
        attributes.push(KeyValue::new("http.request.method", "POST"));
        attributes.push(KeyValue::new("http.route", "/webhooks/{source}"));
        let span = SpanBuilder::from_name(format!("POST /webhooks/{}", identity.source))
            .with_kind(SpanKind::Server)
            .with_start_time(self.began)
            .with_attributes(attributes);
        let span = begun(span, &there(self.parent));
        begun(SpanBuilder::from_name("verify").with_start_time(self.began), &span).span().end();
        Entered(span)
    }
}

/// A delivery that came in.
#[derive(Debug)]
pub struct Entered(Context);

impl Entered {
    /// What puts it into its inbox: it is stored with this span as its trace.
    pub async fn within<F: Future>(&self, append: F) -> F::Output {
        let span = begun(SpanBuilder::from_name("append"), &self.0);
        let output = append.with_context(self.0.clone()).await;
        span.span().end();
        output
    }

    /// It is answered so.
    pub fn ends(self, outcome: &'static str, status: u16) {
        became(&self.0, outcome, status >= 500);
        self.0.span().set_attribute(number("http.response.status_code", status.into()));
        self.0.span().end();
    }
}

/// What puts a delivery into its inbox that waited in the queue until now. `trace` is
/// where it came in.
pub async fn taken_up<T, E>(
    incoming: &Incoming,
    trace: Trace,
    append: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let Incoming { entity, identity, topic, .. } = incoming;
    let about = about(&identity.source, topic, entity, &identity.delivery_id);
    let span = begun(SpanBuilder::from_name("take up").with_attributes(about), &there(trace));
    let taken = append.with_context(span.clone()).await;
    became(&span, if taken.is_ok() { "taken up" } else { "not stored" }, taken.is_err());
    span.span().end();
    taken
}
