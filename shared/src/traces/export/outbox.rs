//! Collects spans that have ended, and sends them to the collector.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use opentelemetry::Context;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Span, SpanData, SpanExporter as Exporter, SpanProcessor},
};

use crate::time::{Env, Timestamp};

/// A send is tried only if at least this much of the invocation's time is left besides [`MARGIN`]. Otherwise the spans
/// wait for the next invocation.
const LEAST: Duration = Duration::from_millis(100);

/// The pause in sending after the collector did not answer within the timeout, or refused twice in a row. A single
/// refusal causes no pause, because it may come from a closed connection. Spans that are due in the pause are dropped.
const PAUSE: Duration = Duration::from_secs(30);

/// The maximum number of spans that are kept between two sends. Further spans are dropped.
const MOST: usize = 4096;

/// The part of an invocation's time that a send must leave unused.
const MARGIN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Default)]
pub(super) struct EndedSpans(Arc<Mutex<Vec<SpanData>>>);

impl EndedSpans {
    fn lock(&self) -> MutexGuard<'_, Vec<SpanData>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpanProcessor for EndedSpans {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        let mut ended = self.lock();
        if span.span_context.is_sampled() && ended.len() < MOST {
            ended.push(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

pub(super) struct Outbox<E> {
    pub(super) ended: EndedSpans,
    exporter: E,
    host: String,
    patience: Duration,
    env: Env,
    deadline: AtomicU64,
    health: Mutex<Health>,
}

#[derive(Debug, Default)]
struct Health {
    has_refused: bool,
    /// The monotonic time until which nothing is sent.
    paused: Duration,
}

impl<E: Exporter> Outbox<E> {
    pub(super) fn new(exporter: E, host: String, patience: Duration, env: Env) -> Self {
        let ended = EndedSpans::default();
        let deadline = AtomicU64::new(u64::MAX);
        let health = Mutex::default();
        Self { ended, exporter, host, patience, env, deadline, health }
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the invocation's deadline. A deadline in the past is ignored, because `cargo
    /// lambda watch` gives one in 1970.
    pub(super) fn invoked(&self, deadline: Timestamp) {
        let told = if deadline > self.env.machine_now() { deadline.as_millis() } else { u64::MAX };
        self.deadline.store(told, Relaxed);
    }

    pub(super) async fn send(&self) {
        let deadline = Timestamp::from_millis(self.deadline.load(Relaxed));
        let left = deadline.since(self.env.machine_now()).saturating_sub(MARGIN);
        if left < LEAST {
            return;
        }
        let spans = std::mem::take(&mut *self.ended.lock());
        let now = self.env.monotonic();
        if spans.is_empty() || now < self.health().paused {
            return;
        }
        let count = spans.len();
        let sent = self.env.within(self.patience.min(left), self.exporter.export(spans)).await;
        let is_paused = match &sent {
            Some(answer) => {
                let had_refused = std::mem::replace(&mut self.health().has_refused, answer.is_err());
                had_refused && answer.is_err()
            }
            // A collector that had less than its whole timeout may be well.
            None => self.patience <= left,
        };
        if is_paused {
            self.health().paused = self.env.monotonic() + PAUSE;
        }
        let reason = match sent {
            Some(Ok(())) => return,
            Some(Err(error)) => error.to_string(),
            None => "no answer in time".to_owned(),
        };
        tracing::warn!(host = self.host, reason, spans = count, "traces not sent; dropped");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use opentelemetry::trace::{SpanBuilder, Tracer, TracerProvider};
    use opentelemetry_sdk::{
        error::OTelSdkError,
        trace::{Sampler, SdkTracer, SdkTracerProvider},
    };

    use super::{super::settings::PATIENCE, *};

    #[derive(Debug, Default)]
    struct TestExporter {
        asked: AtomicUsize,
        spans: AtomicUsize,
        reaction: Mutex<CollectorReaction>,
    }

    #[derive(Debug, Default, Clone, Copy)]
    enum CollectorReaction {
        #[default]
        Takes,
        Refuses,
        Hangs,
    }

    impl Exporter for &'static TestExporter {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.asked.fetch_add(1, Relaxed);
            let reaction = *self.reaction.lock().unwrap();
            match reaction {
                CollectorReaction::Takes => {
                    self.spans.fetch_add(batch.len(), Relaxed);
                    Ok(())
                }
                CollectorReaction::Refuses => Err(OTelSdkError::InternalFailure("no".into())),
                CollectorReaction::Hangs => std::future::pending().await,
            }
        }
    }

    struct OutboxCase {
        outbox: Outbox<&'static TestExporter>,
        exporter: &'static TestExporter,
        tracer: SdkTracer,
        env: Env,
    }

    impl OutboxCase {
        fn new(sampler: Sampler) -> Self {
            let exporter: &'static TestExporter = Box::leak(Box::default());
            let env = Env::system();
            let outbox = Outbox::new(exporter, "collector".into(), PATIENCE, env.clone());
            let provider = SdkTracerProvider::builder().with_span_processor(outbox.ended.clone()).with_sampler(sampler);
            Self { outbox, exporter, tracer: provider.build().tracer("test"), env }
        }

        async fn sends(&self, left: Duration) -> (usize, usize) {
            drop(self.tracer.build(SpanBuilder::from_name("one")));
            self.outbox.invoked(self.env.machine_now() + left);
            self.outbox.send().await;
            (self.exporter.asked.load(Relaxed), self.exporter.spans.load(Relaxed))
        }

        fn now(&self, reaction: CollectorReaction) {
            *self.exporter.reaction.lock().unwrap() = reaction;
        }

        fn later(&self) {
            self.outbox.health().paused = Duration::ZERO;
        }
    }

    const AMPLE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn collector_gets_no_spans_during_pause_after_failure() {
        let case = OutboxCase::new(Sampler::AlwaysOn);
        case.now(CollectorReaction::Refuses);
        assert_eq!(case.sends(AMPLE).await, (1, 0));
        for _ in 0..3 {
            assert_eq!(case.sends(AMPLE).await, (2, 0), "once it may have been a connection");
        }
        assert!(case.outbox.health().paused > case.env.monotonic() + PAUSE / 2);
        case.later();
        case.now(CollectorReaction::Takes);
        assert_eq!(case.sends(AMPLE).await, (3, 1), "what ended meanwhile is dropped");
        case.now(CollectorReaction::Refuses);
        assert_eq!(case.sends(AMPLE).await, (4, 1));
        case.now(CollectorReaction::Takes);
        assert_eq!(case.sends(AMPLE).await, (5, 2), "it had taken some since");
    }

    #[tokio::test]
    async fn export_to_silent_collector_ends_before_invocation_deadline() {
        let case = OutboxCase::new(Sampler::AlwaysOn);
        case.now(CollectorReaction::Hangs);
        // Without the limit this would never return.
        assert_eq!(case.sends(MARGIN + LEAST * 2).await, (1, 0));
        case.now(CollectorReaction::Takes);
        assert_eq!(case.sends(MARGIN + LEAST / 2).await, (1, 0), "no time is left");
        assert_eq!(case.sends(AMPLE).await, (2, 2), "not paused, with those of the invocation before");
        case.now(CollectorReaction::Hangs);
        assert_eq!(case.sends(AMPLE).await, (3, 2));
        assert_eq!(case.sends(AMPLE).await, (3, 2), "it had all its time");
    }

    #[tokio::test]
    async fn spans_are_exported_despite_past_invocation_deadline() {
        let case = OutboxCase::new(Sampler::AlwaysOn);
        drop(case.tracer.build(SpanBuilder::from_name("one")));
        case.outbox.invoked(Timestamp::from_millis(600_000));
        case.outbox.send().await;
        assert_eq!(case.exporter.spans.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn unsampled_and_excess_spans_are_dropped() {
        let case = OutboxCase::new(Sampler::AlwaysOff);
        assert_eq!(case.sends(AMPLE).await, (0, 0));
        let case = OutboxCase::new(Sampler::AlwaysOn);
        for _ in 0..MOST + 10 {
            drop(case.tracer.build(SpanBuilder::from_name("one")));
        }
        assert_eq!(case.sends(AMPLE).await, (1, MOST));
    }
}
