//! The trace spans of a drain and of the deliveries in it.

use opentelemetry::{
    Context, KeyValue,
    context::FutureExt,
    trace::{Link, SpanBuilder, SpanKind, TraceContextExt},
};

use super::{
    WriteOutcome,
    span::{attributes_of, number, remote_context, set_outcome, start_span, trace_of},
};
use crate::{
    engine::drain::plan::StepOutcome,
    handler::Outcome,
    protocol::{
        delivery::Delivery,
        entity::{EntityKey, FencingToken, Sequence},
        receipt::Settlement,
    },
};

#[derive(Debug)]
pub struct DrainSpans {
    drain: Context,
    open: Vec<DeliverySpans>,
    run: Context,
    has_failed: bool,
}

#[derive(Debug)]
struct DeliverySpans {
    sequence: Sequence,
    process: Context,
    run: Context,
    settle: Option<SettleSpan>,
}

/// The span of a decision that is being written. The outcome is set after the write.
#[derive(Debug)]
struct SettleSpan {
    span: Context,
    outcome: &'static str,
    is_error: bool,
    stands: bool,
}

impl DrainSpans {
    pub fn granted(entity: &EntityKey, token: FencingToken) -> Self {
        let attributes =
            [KeyValue::new("serializer.entity_key", entity.to_string()), number("serializer.fencing_token", token.0)];
        let drain = start_span(SpanBuilder::from_name("drain").with_attributes(attributes), &Context::new());
        Self { drain, open: Vec::new(), run: Context::new(), has_failed: false }
    }

    /// Starts the spans of a handler start with at least one delivery. Also stores each run span in its
    /// delivery, so that the handler passes the trace on.
    pub fn starts(&mut self, handler: &str, token: FencingToken, deliveries: &mut [Delivery]) {
        self.ends();
        let run = || SpanBuilder::from_name(format!("run {handler}"));
        for delivery in deliveries.iter_mut() {
            let process = self.process(delivery);
            process.span().set_attribute(number("serializer.attempt", delivery.attempt().into()));
            process.span().set_attribute(number("serializer.fencing_token", token.0));
            let run = start_span(run(), &process);
            delivery.trace = trace_of(&run);
            self.open.push(DeliverySpans { sequence: delivery.sequence(), process, run, settle: None });
        }
        self.run = match &self.open[..] {
            [one] => one.run.clone(),
            // A start for several deliveries belongs to none of them alone.
            several => {
                let links = several.iter().map(|one| Link::with_context(one.run.span().span_context().clone()));
                let together = start_span(run().with_links(links.collect()), &self.drain);
                together.span().set_attribute(number("serializer.deliveries", several.len() as u64));
                together
            }
        };
    }

    pub fn within<F: Future>(&self, run: F) -> impl Future<Output = F::Output> + use<F> {
        run.with_context(self.run.clone())
    }

    pub fn ran(&mut self, outcome: Option<&Outcome>) {
        let (outcome, is_error) = match outcome {
            Some(Outcome::Done) => ("done", false),
            Some(Outcome::Commit(_)) => ("commit", false),
            Some(Outcome::Retry { .. }) => ("retry", true),
            Some(Outcome::Unanswered { .. }) => ("unanswered", true),
            Some(Outcome::Unavailable { .. }) => ("unavailable", true),
            Some(Outcome::NotNow { .. }) => ("not now", false),
            Some(Outcome::Reject(_)) => ("reject", true),
            None => ("no thread", true),
        };
        // If there is only one delivery, `self.run` is its own run.
        let together = (self.open.len() > 1).then_some(&self.run);
        for run in self.open.iter().map(|one| &one.run).chain(together) {
            set_outcome(run, outcome, is_error);
            run.span().end();
        }
        self.run = Context::new();
        self.has_failed = is_error;
    }

    pub fn decides(&mut self, decided: StepOutcome) {
        let outcome = decided.as_str();
        let is_error = match decided {
            StepOutcome::Settled(settlement) => settlement == Settlement::Parked,
            StepOutcome::Blocked => true,
            // Requeueing without counting an attempt is not a failure.
            StepOutcome::Retry => self.has_failed,
        };
        for one in &mut self.open {
            let span = start_span(SpanBuilder::from_name("settle"), &one.process);
            one.settle = Some(SettleSpan { span, outcome, is_error, stands: false });
        }
    }

    pub fn decided(&mut self, written: WriteOutcome) {
        for one in &mut self.open {
            let Some(SettleSpan { span, outcome, is_error, stands }) = one.settle.take() else { continue };
            match written {
                WriteOutcome::Stands => one.set_outcome(&span, outcome, is_error),
                _ if stands => one.set_outcome(&span, outcome, is_error),
                WriteOutcome::Refused => set_outcome(&span, "refused", true),
                WriteOutcome::Lost => set_outcome(&span, "lost", true),
                WriteOutcome::InDoubt => set_outcome(&span, "in doubt", true),
            }
            span.span().end();
        }
    }

    pub fn settled(&mut self, delivery: &Delivery, settlement: Settlement) {
        let ran = self.open.iter_mut().find(|one| one.sequence == delivery.sequence());
        if let Some(settle) = ran.map(|one| &mut one.settle) {
            settle.iter_mut().for_each(|settle| settle.stands = true);
        } else {
            let process = self.process(delivery);
            set_outcome(&process, settlement.as_str(), settlement == Settlement::Parked);
            process.span().end();
        }
    }

    pub fn ends(&mut self) {
        // A write that is still open here ran out of time.
        self.decided(WriteOutcome::InDoubt);
        for DeliverySpans { process, run, .. } in self.open.drain(..) {
            run.span().end();
            process.span().end();
        }
        self.run.span().end();
    }

    fn process(&self, delivery: &Delivery) -> Context {
        let source = delivery.source();
        let mut attributes = attributes_of(source, delivery.topic(), delivery.entity(), delivery.delivery_id());
        attributes.push(number("serializer.sequence", delivery.sequence().0));
        let span = SpanBuilder::from_name(format!("process {source}"))
            .with_kind(SpanKind::Consumer)
            .with_attributes(attributes)
            .with_links(vec![Link::with_context(self.drain.span().span_context().clone())]);
        let process = start_span(span, &remote_context(delivery.trace));
        self.drain.span().add_link(process.span().span_context().clone(), Vec::new());
        process
    }
}

impl DeliverySpans {
    fn set_outcome(&self, settle: &Context, outcome: &'static str, is_error: bool) {
        set_outcome(settle, outcome, false);
        set_outcome(&self.process, outcome, is_error);
    }
}

impl Drop for DrainSpans {
    fn drop(&mut self) {
        self.ends();
        self.drain.span().end();
    }
}
