//! A test kit for handlers. It runs a handler on the real engine with an in-memory
//! table and a paused clock: first without faults, then once for each requested
//! fault, and reports how the handler's effects differ.
//!
//! A handler's effects are its commits and its changes to [`Outside`], which stands
//! for the systems that it calls. Implement your own port on it, or make the
//! handler generic over its client.
//!
//! ```
//! use webhook_serializer::{
//!     Context, Delivery, Handler, HandlerError, Outcome,
//!     testing::{Event, Lane, Outside},
//! };
//!
//! /// Keeps each order's state in a system that remembers the greatest token.
//! struct States(Outside);
//!
//! impl Handler for States {
//!     async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
//!         self.0.set_fenced(delivery.entity().as_str(), context.token(), delivery.topic()).await?;
//!         Ok(Outcome::Done)
//!     }
//! }
//!
//! let [created, paid] = ["orders/create", "orders/paid"].map(|topic| Event::new(topic, "{}"));
//! Lane::of("shopify/order/1")
//!     .deliver([created, paid])
//!     .twice(1)
//!     .crash_after(0)
//!     .stale_token(1)
//!     .run(|outside| States(outside.clone()))
//!     .assert_right();
//! ```

#[doc(hidden)]
pub mod clock;
mod guest;
mod mortal;
mod outside;
mod play;
mod verdict;

use bytes::Bytes;

pub use outside::{Outside, Refused};
use play::{Mishap, play};
pub use verdict::{Finding, Verdict};

use crate::{handler::Handler, protocol::entity::EntityKey, time::Timestamp};

/// An event of an order, as a sender reports it.
#[derive(Debug, Clone)]
pub struct Event {
    topic: String,
    body: Bytes,
    at: Option<Timestamp>,
    provider: Option<String>,
}

impl Event {
    /// Creates an event with this topic. Unless [`Event::at`] is called, the events
    /// of a lane happened a minute apart, in the order in which they are given.
    /// The topic up to its first `/` is the family within which times are compared.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { topic: topic.into(), body: body.into(), at: None, provider: None }
    }

    /// Sets the time of the event by its sender's clock.
    #[must_use]
    pub fn at(self, time: Timestamp) -> Self {
        Self { at: Some(time), ..self }
    }

    /// Sets the provider that [`Delivery::provider`](crate::Delivery::provider)
    /// returns; by default there is none.
    #[must_use]
    pub fn provider(self, name: impl Into<String>) -> Self {
        Self { provider: Some(name.into()), ..self }
    }
}

/// The deliveries of one order, and the faults to inject.
#[derive(Debug, Clone)]
pub struct Lane {
    entity: EntityKey,
    events: Vec<Event>,
    mishaps: Vec<Mishap>,
    up_to: usize,
    seed: u64,
}

impl Lane {
    /// Creates a lane for the entity with this key.
    ///
    /// # Panics
    ///
    /// The key is invalid.
    pub fn of(entity: &str) -> Self {
        let entity = EntityKey::parse(entity).unwrap_or_else(|error| panic!("{entity:?}: {error}"));
        Self { entity, events: Vec::new(), mishaps: Vec::new(), up_to: 1, seed: 0 }
    }

    /// Appends events to the lane.
    #[must_use]
    pub fn deliver(mut self, events: impl IntoIterator<Item = Event>) -> Self {
        self.events.extend(events);
        self
    }

    /// Repeats the delivery at this index after all others.
    #[must_use]
    pub fn twice(self, place: usize) -> Self {
        self.with(Mishap::Twice(place))
    }

    /// Kills the worker after the handler has finished the delivery at this index
    /// and before it is settled, so that the handler is started again.
    #[must_use]
    pub fn crash_after(self, place: usize) -> Self {
        self.with(Mishap::CrashAfter(place))
    }

    /// Freezes the worker in the handler of the delivery at this index, right
    /// before its first change outside. Another worker takes over and handles the
    /// delivery; then the first one continues under a token that is no longer the
    /// newest.
    #[must_use]
    pub fn stale_token(self, place: usize) -> Self {
        self.with(Mishap::StaleToken(place))
    }

    /// Delivers the events in another order than they happened, chosen by
    /// [`seed`](Self::seed).
    #[must_use]
    pub fn out_of_order(self) -> Self {
        self.with(Mishap::OutOfOrder)
    }

    /// Hands the handler up to `most` waiting deliveries at once, as `deliver = {
    /// up_to = … }` of a source does.
    #[must_use]
    pub fn up_to(self, most: usize) -> Self {
        Self { up_to: most.max(1), ..self }
    }

    /// Seeds the random choices. Equal seeds repeat a run.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    fn with(mut self, mishap: Mishap) -> Self {
        if let Some(place) = mishap.place() {
            assert!(place < self.events.len(), "there is no delivery {place}: say what is delivered first");
        }
        self.mishaps.push(mishap);
        self
    }

    /// Runs the handler that `handler` creates, once without faults and once with
    /// each fault. Each run has its own [`Outside`].
    pub fn run<H: Handler>(&self, handler: impl Fn(&Outside) -> H) -> Verdict {
        let as_ever: Vec<usize> = (0..self.events.len()).collect();
        let first = play(self, &as_ever, None, &handler);
        let mut findings = first.alone(self);
        // If the handler fails without faults, runs with faults say nothing more.
        if findings.is_empty() {
            for mishap in &self.mishaps {
                let order = match mishap {
                    Mishap::OutOfOrder => self.shuffled(),
                    _ => as_ever.clone(),
                };
                let played = play(self, &order, Some(*mishap), &handler);
                findings.extend(played.beside(&first, self, *mishap));
            }
        }
        Verdict { findings, seed: self.seed }
    }

    /// Returns a shuffled order that differs from the original if possible.
    fn shuffled(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.events.len()).collect();
        fastrand::Rng::with_seed(self.seed).shuffle(&mut order);
        if order.is_sorted() {
            order.reverse();
        }
        order
    }
}
