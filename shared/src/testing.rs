//! A kit to test handlers with: one order's deliveries, and what goes wrong with
//! them elsewhere. It runs a handler on the real engine, with a table in memory
//! and a clock that no test waits for, first as if nothing went wrong, then once
//! for each mishap that is asked for, and tells in words where its effects differ.
//!
//! A handler's effects are what it commits, and what it does to [`Outside`], which
//! stands for whatever it talks to: implement your own port on it, or let the
//! handler be generic over where it writes.
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

/// One event of an order, as a sender tells of it.
#[derive(Debug, Clone)]
pub struct Event {
    topic: String,
    body: Bytes,
    at: Option<Timestamp>,
    provider: Option<String>,
}

impl Event {
    /// An event of this topic. Those of one lane happened a minute after one
    /// another, in the order in which they are given, unless [`Event::at`] says
    /// otherwise; topics up to the first `/` are a family, whose times are compared.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { topic: topic.into(), body: body.into(), at: None, provider: None }
    }

    /// It happened then, by its sender's clock.
    #[must_use]
    pub fn at(self, time: Timestamp) -> Self {
        Self { at: Some(time), ..self }
    }

    /// This provider sends it, as [`Delivery::provider`](crate::Delivery::provider)
    /// says; otherwise nobody is named.
    #[must_use]
    pub fn provider(self, name: impl Into<String>) -> Self {
        Self { provider: Some(name.into()), ..self }
    }
}

/// One order's deliveries, and what goes wrong with them.
#[derive(Debug, Clone)]
pub struct Lane {
    entity: EntityKey,
    events: Vec<Event>,
    mishaps: Vec<Mishap>,
    up_to: usize,
    seed: u64,
}

impl Lane {
    /// Of the entity with this key.
    ///
    /// # Panics
    ///
    /// It is no key.
    pub fn of(entity: &str) -> Self {
        let entity = EntityKey::parse(entity).unwrap_or_else(|error| panic!("{entity:?}: {error}"));
        Self { entity, events: Vec::new(), mishaps: Vec::new(), up_to: 1, seed: 0 }
    }

    /// These arrive, behind those that were given before.
    #[must_use]
    pub fn deliver(mut self, events: impl IntoIterator<Item = Event>) -> Self {
        self.events.extend(events);
        self
    }

    /// The delivery at this place, from 0, comes again behind all others.
    #[must_use]
    pub fn twice(self, place: usize) -> Self {
        self.with(Mishap::Twice(place))
    }

    /// The worker dies when the handler is done with the delivery at this place, from
    /// 0, and before that is settled: it is started again.
    #[must_use]
    pub fn crash_after(self, place: usize) -> Self {
        self.with(Mishap::CrashAfter(place))
    }

    /// The worker freezes in the handler of the delivery at this place, from 0, right
    /// before it changes anything outside; another one takes over and does it all;
    /// then the first one goes on, under a token that is not the newest any more.
    #[must_use]
    pub fn stale_token(self, place: usize) -> Self {
        self.with(Mishap::StaleToken(place))
    }

    /// They arrive in another order than they happened in, which
    /// [`seed`](Self::seed) chooses.
    #[must_use]
    pub fn out_of_order(self) -> Self {
        self.with(Mishap::OutOfOrder)
    }

    /// The handler gets up to so many at once, where they wait: as
    /// `deliver = { up_to = … }` of a source does.
    #[must_use]
    pub fn up_to(self, most: usize) -> Self {
        Self { up_to: most.max(1), ..self }
    }

    /// What chance decides is decided by this; the same again, the same again.
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

    /// Runs the handler that `handler` makes, once without any mishap and once with
    /// each. Each run has an outside of its own.
    pub fn run<H: Handler>(&self, handler: impl Fn(&Outside) -> H) -> Verdict {
        let as_ever: Vec<usize> = (0..self.events.len()).collect();
        let first = play(self, &as_ever, None, &handler);
        let mut findings = first.alone(self);
        // What fails by itself says nothing about what disturbs it.
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

    /// Another order, where there is one.
    fn shuffled(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.events.len()).collect();
        fastrand::Rng::with_seed(self.seed).shuffle(&mut order);
        if order.is_sorted() {
            order.reverse();
        }
        order
    }
}
