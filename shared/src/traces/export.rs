//! Sending spans to a collector: after an invocation was answered, all that it made,
//! once, for a short time.
//!
//! The SDK's own processors send from a thread, which Lambda would freeze between two
//! invocations, halfway. Here nothing runs beside the work: [`flush`] is called when the
//! answer has been posted, before another event is asked for. So a collector costs the
//! sender of a webhook nothing; one that does not answer costs the function up to
//! its patience, and is then left alone for a while.

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
    client::Client,
    outbox::Outbox,
    settings::{Settings, Variables},
};
use crate::time::{Env, Timestamp};

static TRACING: OnceLock<Tracing> = OnceLock::new();

/// Where the process's spans go.
struct Tracing {
    tracer: SdkTracer,
    outbox: Outbox<SpanExporter>,
}

/// Begins to trace, if `variables` name a collector; once in a process. What is wrong with
/// them is logged, and nothing is traced: no delivery is to wait for that.
pub fn begin(variables: Variables<'_>, env: &Env) {
    match Tracing::configured(variables, env) {
        Ok(Some(tracing)) => drop(TRACING.set(tracing)),
        Ok(None) => {}
        Err(reason) => tracing::error!(reason, "nothing is traced"),
    }
}

pub(super) fn tracer() -> Option<&'static SdkTracer> {
    TRACING.get().map(|tracing| &tracing.tracer)
}

/// An invocation begins, which is to have ended at `deadline`, in milliseconds since the
/// epoch.
pub fn invoked(deadline: u64) {
    if let Some(tracing) = TRACING.get() {
        tracing.outbox.invoked(Timestamp::from_millis(deadline));
    }
}

/// Sends what has ended. Never fails; what could not be sent is dropped.
pub async fn flush() {
    if let Some(tracing) = TRACING.get() {
        tracing.outbox.send().await;
    }
}

impl Tracing {
    /// As the standard's variables say; `None`: they name no collector.
    fn configured(variables: Variables<'_>, env: &Env) -> Result<Option<Self>, String> {
        let Some(settings) = Settings::read(variables)? else { return Ok(None) };
        let Settings { endpoint, host, patience, resource, roots } = settings;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new(roots, patience))
            .with_endpoint(endpoint)
            // The one that is built in.
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(patience)
            // A retry would wait by blocking the thread.
            .with_retry_policy(RetryPolicy::disabled())
            .build();
        let mut exporter = exporter.map_err(|error| error.to_string())?;
        exporter.set_resource(&resource);
        let outbox = Outbox::new(exporter, host, patience, env.clone());
        // The sampler, and limits, are read by the SDK.
        let provider = SdkTracerProvider::builder()
            .with_span_processor(outbox.ended.clone())
            .with_id_generator(Ids { random: RandomIdGenerator::default(), env: env.clone() })
            .with_resource(resource)
            .build();
        // So that a handler's own spans go the same way.
        global::set_tracer_provider(provider.clone());
        let tracer = provider.tracer("webhook-serializer");
        Ok(Some(Self { tracer, outbox }))
    }
}

/// Traces are named as X-Ray wants them named, by the second in which they begin and at
/// random behind that: it drops others, depending on who sends them there. Nobody else
/// minds.
#[derive(Debug)]
struct Ids {
    random: RandomIdGenerator,
    env: Env,
}

impl IdGenerator for Ids {
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
    fn a_trace_is_named_by_its_second_and_at_random() {
        let env = Env::system();
        let ids = Ids { random: RandomIdGenerator::default(), env: env.clone() };
        let second = |id: &TraceId| u32::from_be_bytes(id.to_bytes()[..4].try_into().unwrap());
        let before = (env.now().as_millis() / 1000) as u32;
        let [one, other] = [ids.new_trace_id(), ids.new_trace_id()];
        assert!((before..before + 60).contains(&second(&one)));
        assert_ne!(one.to_bytes()[4..], other.to_bytes()[4..]);
    }
}
