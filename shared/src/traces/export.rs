//! Sends spans to a collector, once for each invocation and after its answer.
//!
//! The SDK's own processors do not fit Lambda. They send from a separate thread, which Lambda
//! freezes between invocations. Their `force_flush` blocks the function's only thread, which
//! the export needs. So [`flush`] awaits the SDK's exporter after an answer and before the
//! request for the next event.
//!
//! The sender of a webhook never waits for the collector. If the collector does not answer, the Lambda function waits
//! for it once, until the timeout, and then sends nothing for a while.

mod client;
mod outbox;
mod settings;

use std::sync::OnceLock;

use opentelemetry::{
    global,
    trace::{SpanId, TraceId, TracerProvider},
};
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::trace::{
    IdGenerator, RandomIdGenerator, SdkTracer, SdkTracerProvider, SpanExporter as Exporter,
};

use self::{
    client::ExportClient,
    outbox::Outbox,
    settings::{ExportSettings, SettingReader},
};
use crate::time::{Env, Timestamp};

static TRACING: OnceLock<Tracing> = OnceLock::new();

struct Tracing {
    tracer: SdkTracer,
    outbox: Outbox<SpanExporter>,
}

/// Starts tracing if `variables` name a collector. An invalid variable is logged as an error and leaves
/// tracing off, so that deliveries are handled all the same.
pub fn begin(variables: SettingReader<'_>, env: &Env) {
    match Tracing::configured(variables, env) {
        Ok(Some(tracing)) => drop(TRACING.set(tracing)),
        Ok(None) => {}
        Err(reason) => tracing::error!(reason, "nothing is traced"),
    }
}

pub(super) fn tracer() -> Option<&'static SdkTracer> {
    TRACING.get().map(|tracing| &tracing.tracer)
}

/// Stores the deadline of an invocation, in milliseconds since the Unix epoch.
pub fn invoked(deadline: u64) {
    if let Some(tracing) = TRACING.get() {
        tracing.outbox.invoked(Timestamp::from_millis(deadline));
    }
}

/// Sends the spans that have ended. Spans that the collector does not take are dropped.
pub async fn flush() {
    if let Some(tracing) = TRACING.get() {
        tracing.outbox.send().await;
    }
}

impl Tracing {
    fn configured(variables: SettingReader<'_>, env: &Env) -> Result<Option<Self>, String> {
        let Some(settings) = ExportSettings::read(variables)? else { return Ok(None) };
        let ExportSettings { endpoint, host, patience, resource, roots } = settings;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(ExportClient::new(roots, patience))
            .with_endpoint(endpoint)
            // The only protocol that is compiled in.
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(patience)
            // A retry would block the thread while it waits.
            .with_retry_policy(RetryPolicy::disabled())
            .build();
        let mut exporter = exporter.map_err(|error| error.to_string())?;
        exporter.set_resource(&resource);
        let outbox = Outbox::new(exporter, host, patience, env.clone());
        // The SDK itself reads the variables for sampler and limits.
        let provider = SdkTracerProvider::builder()
            .with_span_processor(outbox.ended.clone())
            .with_id_generator(TimedTraceIds { random: RandomIdGenerator::default(), env: env.clone() })
            .with_resource(resource)
            .build();
        // Spans that handlers create go to the same collector.
        global::set_tracer_provider(provider.clone());
        let tracer = provider.tracer("webhook-serializer");
        Ok(Some(Self { tracer, outbox }))
    }
}

/// A generator of trace ids that begin with the time in seconds. X-Ray requires such ids from
/// some senders.
#[derive(Debug)]
struct TimedTraceIds {
    random: RandomIdGenerator,
    env: Env,
}

impl IdGenerator for TimedTraceIds {
    fn new_trace_id(&self) -> TraceId {
        let mut id = self.random.new_trace_id().to_bytes();
        let second = (self.env.now().as_millis() / 1000) as u32;
        id[..4].copy_from_slice(&second.to_be_bytes());
        TraceId::from_bytes(id)
    }

    fn new_span_id(&self) -> SpanId {
        self.random.new_span_id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_id_begins_with_current_unix_second() {
        let env = Env::system();
        let ids = TimedTraceIds { random: RandomIdGenerator::default(), env: env.clone() };
        let second = |id: &TraceId| u32::from_be_bytes(id.to_bytes()[..4].try_into().unwrap());
        let before = (env.now().as_millis() / 1000) as u32;
        let [one, other] = [ids.new_trace_id(), ids.new_trace_id()];
        assert!((before..before + 60).contains(&second(&one)));
        assert_ne!(one.to_bytes()[4..], other.to_bytes()[4..]);
    }
}
