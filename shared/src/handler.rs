//! What a user implements: the handler of deliveries.
//!
//! A handler is started for one delivery of an entity at a time, in the order
//! in which they arrived; or, where its source says so, for several that wait in
//! a row. It is started again when its answer was lost, so what it does elsewhere
//! it does at least once; what it returns in [`Outcome::Commit`] lands exactly
//! once, with the settling.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::{
    protocol::{delivery::Delivery, entity::FencingToken, table::Write},
    time::Surroundings,
};

/// Any error a handler fails with. Its text is kept on the entity's row, cut to
/// 64 bytes: no secrets in it.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

/// How a handler answers. An `Err` is a [`Outcome::Retry`] with that error's
/// text.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It is applied; settle it.
    Done,
    /// Apply these writes and settle it, all together or not at all. At most 99
    /// writes, of different items, in any table that the function may write to
    /// but the serializer's own. If one's condition does not hold, or the store
    /// can never take them, nothing is written, and the attempt has failed.
    /// [`Outcome::commit`] makes one.
    Commit(Vec<Write>),
    /// Try again: after this wait, or as the source's retry policy says.
    Retry {
        /// How long to wait; `None`: as the policy says.
        after: Option<Duration>,
        /// Why, for people.
        error: String,
    },
    /// Try again: what the handler called may have begun, and gave no answer. A
    /// start whose time is up counts as this. The delivery is given up after the
    /// source's `unanswered_for`, whatever `attempts` says.
    Unanswered {
        /// How long to wait at the least; `None`: as the policy says.
        after: Option<Duration>,
        /// What gave no answer, for people.
        error: String,
    },
    /// Try again: what the handler needs is out of reach, and any other delivery
    /// would have failed in the same way. Nothing was begun, so no attempt is
    /// counted; the delivery is given up after the source's `unavailable_for`.
    /// After three orders in a row that end so, or without an answer, their source
    /// is held back for a while.
    Unavailable {
        /// How long to wait at the least; `None`: as the policy says.
        after: Option<Duration>,
        /// What is out of reach, for people.
        error: String,
    },
    /// Not now: what the handler needs has no room at the moment. As
    /// [`Outcome::Unavailable`], with a shorter wait.
    NotNow {
        /// How long to wait; `None`: about five seconds.
        after: Option<Duration>,
        /// What there is no room in, for people.
        error: String,
    },
    /// It will never succeed: set it aside at once, whatever attempts are left.
    Reject(String),
}

impl Outcome {
    /// Apply these writes and settle the delivery, all together or not at all.
    ///
    /// ```
    /// use webhook_serializer::{Change, Condition, Key, Outcome, Row, Write};
    ///
    /// let order = Key::named("orders", "order", "shopify/order/450789469");
    /// let item = Key::named("stock", "shop", "north").and("item", "SKU-1");
    /// let mail = Key::named("mails", "id", "15e8d2f1");
    /// Outcome::commit([
    ///     Write::update(order, [Change::set("state", "paid"), Change::add("payments", 1)]),
    ///     Write::update(item, [Change::remove("reserved")]).when(Condition::exists("reserved")),
    ///     Write::put(mail, Row::new().with("to", "customer")).when(Condition::absent("to")),
    /// ]);
    /// ```
    pub fn commit(writes: impl IntoIterator<Item = Write>) -> Self {
        Self::Commit(writes.into_iter().collect())
    }

    /// Try again as the source's retry policy says.
    pub fn retry(error: impl Into<String>) -> Self {
        Self::Retry { after: None, error: error.into() }
    }

    /// Try again after `wait`.
    pub fn retry_after(wait: Duration, error: impl Into<String>) -> Self {
        Self::Retry { after: Some(wait), error: error.into() }
    }

    /// Try again as the source's retry policy says; what the handler called gave no
    /// answer.
    pub fn unanswered(error: impl Into<String>) -> Self {
        Self::Unanswered { after: None, error: error.into() }
    }

    /// Try again as the source's retry policy says; what the handler needs is
    /// out of reach.
    pub fn unavailable(error: impl Into<String>) -> Self {
        Self::Unavailable { after: None, error: error.into() }
    }

    /// Try again in about five seconds; what the handler needs has no room.
    pub fn not_now(error: impl Into<String>) -> Self {
        Self::NotNow { after: None, error: error.into() }
    }
}

/// What a handler is told about its start, besides the delivery.
#[derive(Debug, Clone)]
pub struct Context {
    handler: Arc<str>,
    token: FencingToken,
    /// By the process's own clock.
    deadline: Duration,
    cancelled: watch::Receiver<bool>,
    surroundings: Surroundings,
}

impl Context {
    /// A context that nothing cancels, for calling a handler directly in its
    /// own tests.
    pub fn detached(token: FencingToken, time: Duration, surroundings: Surroundings) -> Self {
        let deadline = surroundings.monotonic() + time;
        let (_, cancelled) = watch::channel(false);
        Self { handler: "detached".into(), token, deadline, cancelled, surroundings }
    }

    /// What the delivery's source calls its handler.
    pub fn handler(&self) -> &str {
        &self.handler
    }

    /// The fencing token of this start: greater than that of any start before
    /// it for this entity. Send it along with every effect; a receiver that
    /// remembers the greatest it has seen can refuse an effect that comes late.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// How long until this start counts as failed.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_sub(self.surroundings.monotonic())
    }

    /// Whether the lease was lost or the time is up.
    pub fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Waits until the lease is lost or the time is up. A handler that awaits
    /// anything is dropped then in any case; one that blocks its thread can ask
    /// [`Context::is_cancelled`].
    pub async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        // An error: whoever could cancel it is gone.
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending().await
        }
    }

    /// The clock and the source of randomness to use.
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }
}

/// Deliveries of one entity that are handled in one start: all of one source, the
/// oldest first, without a hole. What their handler answers goes for all.
#[derive(Debug, Clone)]
pub struct Deliveries(pub(crate) Vec<Arc<Delivery>>);

impl Deliveries {
    /// These, at least one, for calling a handler directly in its own tests.
    /// Without any, [`first`](Self::first) and [`last`](Self::last) panic.
    pub fn detached(deliveries: impl IntoIterator<Item = Delivery>) -> Self {
        Self(deliveries.into_iter().map(Arc::new).collect())
    }

    /// One after the other.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Delivery> + ExactSizeIterator {
        self.0.iter().map(|delivery| &**delivery)
    }

    /// How many; at least one.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The one that arrived first, until they are sorted otherwise.
    pub fn first(&self) -> &Delivery {
        self.0.first().expect("there is one at least")
    }

    /// The one that arrived last, until they are sorted otherwise.
    pub fn last(&self) -> &Delivery {
        self.0.last().expect("there is one at least")
    }

    /// Sorts them by when the events happened, by their sender's clock. Those of
    /// the same time stay in the order in which they arrived, and those without
    /// a time where they are.
    pub fn sort_by_event_time(&mut self) {
        let timed = |delivery: &&Arc<Delivery>| delivery.event_time().is_some();
        let mut sorted: Vec<_> = self.0.iter().filter(timed).cloned().collect();
        sorted.sort_by_key(|delivery| delivery.event_time());
        let mut sorted = sorted.into_iter();
        for place in self.0.iter_mut().filter(|place| place.event_time().is_some()) {
            *place = sorted.next().expect("as many as there are places");
        }
    }
}

/// Code that is run for every delivery, in order.
///
/// ```
/// use webhook_serializer::{Context, Delivery, Handler, HandlerError, Outcome};
///
/// struct Greeter;
///
/// impl Handler for Greeter {
///     async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
///         let order: serde_json::Value = delivery.json()?;
///         println!("{} {} under token {}", delivery.topic(), order["id"], context.token());
///         Ok(Outcome::Done)
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Applies one delivery.
    fn handle(
        &self,
        delivery: &Delivery,
        context: &Context,
    ) -> impl Future<Output = Result<Outcome, HandlerError>> + Send;

    /// Applies several, two at least: for sources with `deliver = { up_to = … }`.
    /// What it answers goes for all of them; if it fails, [`Handler::handle`] gets
    /// each by itself. The default fails, and does not call `handle` in turn: a
    /// handler that reads a row, changes it and commits it would lose all changes
    /// but the last.
    ///
    /// ```
    /// use webhook_serializer::{Context, Deliveries, Delivery, Handler, HandlerError, Outcome};
    ///
    /// struct Stock;
    ///
    /// impl Handler for Stock {
    ///     async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
    ///         println!("{} under token {}", delivery.topic(), context.token());
    ///         Ok(Outcome::Done)
    ///     }
    ///
    ///     async fn handle_all(&self, mut deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
    ///         deliveries.sort_by_event_time();
    ///         let topics: Vec<_> = deliveries.iter().map(Delivery::topic).collect();
    ///         println!("{} under token {}", topics.join(", "), context.token());
    ///         Ok(Outcome::Done)
    ///     }
    ///
    ///     fn handles_all(&self, _name: &str) -> bool {
    ///         true
    ///     }
    /// }
    /// ```
    fn handle_all(
        &self,
        deliveries: Deliveries,
        context: &Context,
    ) -> impl Future<Output = Result<Outcome, HandlerError>> + Send {
        let (_, _) = (deliveries, context);
        async { Err("this handler takes one delivery at a time".into()) }
    }

    /// Whether a source may name this handler `name`. Asked at start, so that a
    /// misspelt name stops the function rather than a delivery.
    fn answers_to(&self, name: &str) -> bool {
        let _ = name;
        true
    }

    /// Whether the handler of that name has a [`Handler::handle_all`] of its own.
    /// Asked at start, of those whose sources deliver several at once.
    fn handles_all(&self, name: &str) -> bool {
        let _ = name;
        false
    }
}

impl<H: Handler> Handler for Arc<H> {
    fn handle(
        &self,
        delivery: &Delivery,
        context: &Context,
    ) -> impl Future<Output = Result<Outcome, HandlerError>> + Send {
        Handler::handle(&**self, delivery, context)
    }

    fn handle_all(
        &self,
        deliveries: Deliveries,
        context: &Context,
    ) -> impl Future<Output = Result<Outcome, HandlerError>> + Send {
        Handler::handle_all(&**self, deliveries, context)
    }

    fn answers_to(&self, name: &str) -> bool {
        Handler::answers_to(&**self, name)
    }

    fn handles_all(&self, name: &str) -> bool {
        Handler::handles_all(&**self, name)
    }
}

/// A handler behind a pointer.
pub(crate) trait AnyHandler: Send + Sync + 'static {
    fn handle<'a>(
        &'a self,
        delivery: &'a Delivery,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, HandlerError>>;

    fn handle_all<'a>(
        &'a self,
        deliveries: Deliveries,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, HandlerError>>;

    fn handles_all(&self, name: &str) -> bool;
}

impl<H: Handler> AnyHandler for H {
    fn handle<'a>(
        &'a self,
        delivery: &'a Delivery,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, HandlerError>> {
        Box::pin(Handler::handle(self, delivery, context))
    }

    fn handle_all<'a>(
        &'a self,
        deliveries: Deliveries,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, HandlerError>> {
        Box::pin(Handler::handle_all(self, deliveries, context))
    }

    fn handles_all(&self, name: &str) -> bool {
        Handler::handles_all(self, name)
    }
}

/// Where a handler runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// On a thread of its own, so that one that blocks its thread stops neither
    /// its lease's renewal nor another entity. Its awaits go through the
    /// caller's runtime all the same.
    #[default]
    Thread,
    /// Where it is awaited: for simulations, in which one thread decides all.
    Inline,
}

/// Cancels one handler start; dropping it cancels too.
pub(crate) struct Canceller(watch::Sender<bool>);

impl Canceller {
    pub(crate) fn start(
        handler: &str,
        token: FencingToken,
        deadline: Duration,
        surroundings: Surroundings,
    ) -> (Self, Context) {
        let (sender, cancelled) = watch::channel(false);
        (Self(sender), Context { handler: handler.into(), token, deadline, cancelled, surroundings })
    }
}

impl Drop for Canceller {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        protocol::{
            delivery::Incoming,
            entity::{DeliveryId, EntityKey, Identity, Sequence, SourceName},
        },
        time::Timestamp,
    };

    #[test]
    fn deliveries_are_sorted_by_their_events_and_those_without_a_time_stay() {
        let delivery = |place: u64, time: Option<u64>| {
            let identity = Identity {
                source: SourceName::parse("shop").unwrap(),
                delivery_id: DeliveryId::new(place.to_string()),
                redrive: 0,
            };
            let incoming = Incoming {
                entity: EntityKey::parse("shop/order/1").unwrap(),
                identity,
                provider: None,
                topic: "orders/updated".into(),
                family: "orders".into(),
                event_time: time.map(Timestamp::from_secs),
                received_at: Timestamp::from_secs(1),
                content_type: None,
                body: "{}".into(),
            };
            Delivery::detached(incoming, Sequence(place))
        };
        let times = [Some(5), None, Some(3), Some(5), Some(1), None, Some(4)];
        let mut deliveries = Deliveries::detached((1..).zip(times).map(|(place, time)| delivery(place, time)));
        assert_eq!((deliveries.first().sequence().0, deliveries.last().sequence().0), (1, 7));
        deliveries.sort_by_event_time();
        let places: Vec<u64> = deliveries.iter().map(|delivery| delivery.sequence().0).collect();
        assert_eq!(places, [5, 2, 3, 7, 1, 6, 4]);
    }
}
