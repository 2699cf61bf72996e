//! The functions and types of traces for builds without the feature `otel`: they do nothing.

use std::collections::BTreeMap;

use super::WriteOutcome;
use crate::{
    engine::drain::plan::StepOutcome,
    handler::Outcome,
    protocol::{
        delivery::{Delivery, Incoming},
        entity::{EntityKey, FencingToken},
        receipt::Settlement,
        trace::Trace,
    },
    time::Env,
};

pub fn begin(_: &dyn Fn(&str) -> Option<String>, _: &Env) {}

pub fn invoked(_: u64) {}

pub async fn flush() {}

pub fn current() -> Trace {
    Trace::default()
}

pub fn in_current_context<F: Future>(future: F) -> F {
    future
}

pub fn append_deferred<F: Future>(_: &Incoming, _: Trace, append: F) -> F {
    append
}

pub fn append_message<F: Future>(_: &Incoming, _: Trace, append: F) -> F {
    append
}

#[derive(Debug)]
pub struct ReceivedRequest;

impl ReceivedRequest {
    pub fn new(_: &BTreeMap<String, String>, _: &Env) -> Self {
        Self
    }

    pub fn begin_span(self, _: &Incoming) -> RequestSpan {
        RequestSpan
    }
}

#[derive(Debug)]
pub struct RequestSpan;

impl RequestSpan {
    pub fn within<F: Future>(&self, append: F) -> impl Future<Output = F::Output> + use<F> {
        append
    }

    pub fn end(self, _: &'static str, _: u16) {}
}

#[derive(Debug)]
pub struct DrainSpans;

impl DrainSpans {
    pub fn granted(_: &EntityKey, _: FencingToken) -> Self {
        Self
    }

    pub fn starts(&mut self, _: &str, _: FencingToken, _: &mut [Delivery]) {}

    pub fn within<F: Future>(&self, run: F) -> F {
        run
    }

    pub fn ran(&mut self, _: Option<&Outcome>) {}

    pub fn decides(&mut self, _: StepOutcome) {}

    pub fn decided(&mut self, _: WriteOutcome) {}

    pub fn settled(&mut self, _: &Delivery, _: Settlement) {}

    pub fn ends(&mut self) {}
}
