//! A test kit for handlers. It runs a handler on the real engine with an in-memory table and a
//! paused clock: first without faults, then once for each requested fault, and reports how the
//! faults change the handler's effects.
//!
//! A handler's effects are its commits and its writes to [`ExternalSystem`], a substitute for the
//! systems that it calls. Let the handler be generic over its client, and implement the client's
//! trait for `ExternalSystem` too.
//!
//! ```
//! use webhook_serializer::{
//!     Context, Delivery, Handler, HandlerError, Outcome,
//!     testing::{Event, ExternalSystem, Scenario},
//! };
//!
//! /// Keeps each order's state in a system that remembers the greatest token.
//! struct States(ExternalSystem);
//!
//! impl Handler for States {
//!     async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
//!         self.0.set_fenced(delivery.entity().as_str(), context.token(), delivery.topic()).await?;
//!         Ok(Outcome::Done)
//!     }
//! }
//!
//! let [created, paid] = ["orders/create", "orders/paid"].map(|topic| Event::new(topic, "{}"));
//! Scenario::new("shopify/order/1")
//!     .deliver([created, paid])
//!     .twice(1)
//!     .crash_after(0)
//!     .stale_token(1)
//!     .run(|external| States(external.clone()))
//!     .assert_right();
//! ```

#[doc(hidden)]
pub mod clock;
mod external;
mod run;
mod under_test;
mod verdict;
mod worker_table;

use bytes::Bytes;

pub use external::{ExternalSystem, StaleToken};
use run::{ScenarioFault, run};
pub use verdict::{Finding, Verdict};

use crate::{handler::Handler, protocol::entity::EntityKey, time::Timestamp};

/// An event of an order, as a sender would report it.
#[derive(Debug, Clone)]
pub struct Event {
    topic: String,
    body: Bytes,
    at: Option<Timestamp>,
    provider: Option<String>,
}

impl Event {
    /// Creates an event with this topic and body. The part of the topic before its first `/` is the topic
    /// family, within which event times are compared. Without a call of [`Event::at`], the events of a
    /// scenario happened one minute apart, in the order in which they were added.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { topic: topic.into(), body: body.into(), at: None, provider: None }
    }

    /// Sets the time at which the event happened, by the sender's clock.
    #[must_use]
    pub fn at(self, time: Timestamp) -> Self {
        Self { at: Some(time), ..self }
    }

    /// Sets the provider that [`Delivery::provider`](crate::Delivery::provider) returns. Without this call,
    /// that function returns `None`.
    #[must_use]
    pub fn provider(self, name: impl Into<String>) -> Self {
        Self { provider: Some(name.into()), ..self }
    }
}

/// The deliveries of one order, and the faults to inject.
#[derive(Debug, Clone)]
pub struct Scenario {
    entity: EntityKey,
    events: Vec<Event>,
    faults: Vec<ScenarioFault>,
    up_to: usize,
    seed: u64,
}

impl Scenario {
    /// Creates a scenario for the entity whose key is `entity`.
    ///
    /// # Panics
    ///
    /// The key is invalid.
    pub fn new(entity: &str) -> Self {
        let entity = EntityKey::parse(entity).unwrap_or_else(|error| panic!("{entity:?}: {error}"));
        Self { entity, events: Vec::new(), faults: Vec::new(), up_to: 1, seed: 0 }
    }

    /// Appends events to the scenario.
    #[must_use]
    pub fn deliver(mut self, events: impl IntoIterator<Item = Event>) -> Self {
        self.events.extend(events);
        self
    }

    /// Adds a fault: the event at this index, counted from 0, is delivered again after all other events.
    #[must_use]
    pub fn twice(self, index: usize) -> Self {
        self.with(ScenarioFault::Twice(index))
    }

    /// Adds a fault: the worker crashes after the handler has finished a delivery and before the delivery
    /// is settled. So the handler is started again. The parameter `index` counts deliveries from 0.
    #[must_use]
    pub fn crash_after(self, index: usize) -> Self {
        self.with(ScenarioFault::CrashAfter(index))
    }

    /// Adds a fault: the worker freezes in the handler, right before the handler's first write to an
    /// external system. Another worker takes over and handles the delivery. Then the frozen worker continues
    /// under its old token. The parameter `index` counts deliveries from 0.
    #[must_use]
    pub fn stale_token(self, index: usize) -> Self {
        self.with(ScenarioFault::StaleToken(index))
    }

    /// Adds a fault: the events are delivered in a different order than they happened. The order depends on
    /// [`seed`](Self::seed).
    #[must_use]
    pub fn out_of_order(self) -> Self {
        self.with(ScenarioFault::OutOfOrder)
    }

    /// Hands the handler up to `most` waiting deliveries at once, like a source with `deliver
    /// = { up_to = … }`.
    #[must_use]
    pub fn up_to(self, most: usize) -> Self {
        Self { up_to: most.max(1), ..self }
    }

    /// Sets the seed of all random choices. The same seed repeats a run exactly.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    fn with(mut self, fault: ScenarioFault) -> Self {
        if let Some(index) = fault.index() {
            assert!(index < self.events.len(), "there is no delivery {index}: call `deliver` before the faults");
        }
        self.faults.push(fault);
        self
    }

    /// Runs the scenario once without faults, and then once with each fault, unless the run without faults
    /// already finds a mistake. Each run calls `handler` to create a handler, with an [`ExternalSystem`] of
    /// its own.
    pub fn run<H: Handler>(&self, handler: impl Fn(&ExternalSystem) -> H) -> Verdict {
        let in_order: Vec<usize> = (0..self.events.len()).collect();
        let first = run(self, &in_order, None, &handler);
        let mut findings = first.findings(self);
        // If the handler fails without faults, runs with faults say nothing more.
        if findings.is_empty() {
            for fault in &self.faults {
                let order = match fault {
                    ScenarioFault::OutOfOrder => self.shuffled(),
                    _ => in_order.clone(),
                };
                let result = run(self, &order, Some(*fault), &handler);
                findings.extend(result.compare(&first, self, *fault));
            }
        }
        Verdict { findings, seed: self.seed }
    }

    /// Returns a random order of the events, which differs from the original order if possible.
    fn shuffled(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.events.len()).collect();
        fastrand::Rng::with_seed(self.seed).shuffle(&mut order);
        if order.is_sorted() {
            order.reverse();
        }
        order
    }
}
