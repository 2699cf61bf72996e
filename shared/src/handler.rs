//! The trait [`Handler`], which users implement, with its arguments and its outcome.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::{
    protocol::{delivery::Delivery, entity::FencingToken, table::Write},
    time::Env,
};

/// An error that a handler returns. The beginning of its text is stored: at most 200 bytes in the
/// entity's row, and 1,000 bytes in the row of a parked delivery. So the text must not contain
/// secrets.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

/// The outcome of a handler start. If a handler returns an `Err`, the outcome is
/// [`Outcome::Retry`] with that error's text.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The delivery is applied, so it is settled.
    Done,
    /// The delivery is settled in one transaction with these writes.
    ///
    /// There are at most 99 writes, of different items. They may be in any table that the worker function may write to,
    /// except the serializer's own. If a condition does not hold, or DynamoDB can never accept a write, nothing is
    /// written and the attempt fails. [`Outcome::commit`] creates this outcome.
    Commit(Vec<Write>),
    /// The handler failed. The delivery is tried again after a wait.
    Retry {
        /// The wait before the next attempt. `None` stands for the wait of the source's retry policy.
        after: Option<Duration>,
        /// A description of the failure, for the operator.
        error: String,
    },
    /// The destination may have begun work, but did not answer. The delivery is tried again after a
    /// wait.
    ///
    /// A start that exceeds its time limit has this outcome. When the waits after such starts add up
    /// to the source's setting `unanswered_for`, the delivery is parked or its entity blocked. The
    /// setting `attempts` does not limit these starts.
    Unanswered {
        /// The shortest wait before the next attempt. `None` stands for the wait of the source's retry policy.
        after: Option<Duration>,
        /// A description of the failure, for the operator.
        error: String,
    },
    /// The destination has begun nothing, and is unavailable for other deliveries as well. The delivery is tried again
    /// after a wait, and no attempt is counted.
    ///
    /// When these waits add up to the source's setting `unavailable_for`, the delivery is parked or
    /// its entity blocked. After three consecutive entities with this outcome or
    /// [`Outcome::Unanswered`], the source's circuit breaker opens.
    Unavailable {
        /// The shortest wait before the next attempt. `None` stands for the wait of the source's retry policy.
        after: Option<Duration>,
        /// A description of the failure, for the operator.
        error: String,
    },
    /// The destination has no capacity at the moment. The delivery is tried again after a short
    /// wait. For limits and for the circuit breaker, this outcome counts as [`Outcome::Unavailable`].
    NotNow {
        /// The wait before the next attempt. `None` stands for about five seconds.
        after: Option<Duration>,
        /// A description of the failure, for the operator.
        error: String,
    },
    /// The delivery can never succeed. The delivery is parked at once, even if attempts remain. If
    /// a group was rejected, each of its deliveries is first handled alone. The text is a
    /// description of the failure, for the operator.
    Reject(String),
}

impl Outcome {
    /// Creates the outcome that applies these writes and settles the delivery in one
    /// transaction.
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

    /// Creates an [`Outcome::Retry`] with the wait of the source's retry policy.
    pub fn retry(error: impl Into<String>) -> Self {
        Self::Retry { after: None, error: error.into() }
    }

    /// Creates an [`Outcome::Retry`] that asks for `wait` before the next attempt. A wait of more
    /// than a day is shortened to a day, or to the source's `longest` wait if that is longer.
    pub fn retry_after(wait: Duration, error: impl Into<String>) -> Self {
        Self::Retry { after: Some(wait), error: error.into() }
    }

    /// Creates an [`Outcome::Unanswered`] with the wait of the source's retry policy.
    pub fn unanswered(error: impl Into<String>) -> Self {
        Self::Unanswered { after: None, error: error.into() }
    }

    /// Creates an [`Outcome::Unavailable`] with the wait of the source's retry policy.
    pub fn unavailable(error: impl Into<String>) -> Self {
        Self::Unavailable { after: None, error: error.into() }
    }

    /// Creates an [`Outcome::NotNow`] with a wait of about five seconds.
    pub fn not_now(error: impl Into<String>) -> Self {
        Self::NotNow { after: None, error: error.into() }
    }
}

/// The context of a handler start: the handler's name, the fencing token, the time limit, and
/// the environment.
#[derive(Debug, Clone)]
pub struct Context {
    handler: Arc<str>,
    token: FencingToken,
    /// The time at which the start is cancelled, on the process's monotonic clock.
    deadline: Duration,
    cancelled: watch::Receiver<bool>,
    env: Env,
}

impl Context {
    /// Creates a context that is never cancelled, for tests that call a handler directly. The
    /// parameter `time` is the time limit of the start.
    pub fn detached(token: FencingToken, time: Duration, env: Env) -> Self {
        let deadline = env.monotonic() + time;
        let (_, cancelled) = watch::channel(false);
        Self { handler: "detached".into(), token, deadline, cancelled, env }
    }

    /// Returns the name by which the delivery's source chose the handler.
    pub fn handler(&self) -> &str {
        &self.handler
    }

    /// Returns the fencing token of this start. The token is greater than the token of every earlier
    /// start for the same entity. A handler should send the token with every effect: a receiver that
    /// remembers the greatest token can refuse a late effect.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns the time that is left before this handler start times out.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_sub(self.env.monotonic())
    }

    /// Returns whether the lease was lost or the time limit has passed.
    pub fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Waits until the lease is lost or the time limit has passed. An async handler is dropped at
    /// that moment. A handler that blocks its thread can poll [`Context::is_cancelled`] instead.
    pub async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        // An error means that the sender was dropped, so nothing can cancel any more.
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending().await
        }
    }

    /// Returns the clock and the source of randomness that the handler should use. Tests replace them.
    pub fn env(&self) -> &Env {
        &self.env
    }
}

/// Several deliveries for one handler start. They are consecutive deliveries of one entity and
/// one source, oldest first. The handler's answer applies to all of them.
#[derive(Debug, Clone)]
pub struct Deliveries(pub(crate) Vec<Arc<Delivery>>);

impl Deliveries {
    /// Creates a group of at least one delivery, for tests that call a handler directly.
    /// [`first`](Self::first) and [`last`](Self::last) panic if the group is empty.
    pub fn detached(deliveries: impl IntoIterator<Item = Delivery>) -> Self {
        Self(deliveries.into_iter().map(Arc::new).collect())
    }

    /// Iterates over the deliveries, in their current order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Delivery> + ExactSizeIterator {
        self.0.iter().map(|delivery| &**delivery)
    }

    /// Returns the number of deliveries, which is at least one.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the first delivery. It arrived first, unless the deliveries were sorted.
    pub fn first(&self) -> &Delivery {
        self.0.first().expect("there is one at least")
    }

    /// Returns the last delivery. It arrived last, unless the deliveries were sorted.
    pub fn last(&self) -> &Delivery {
        self.0.last().expect("there is one at least")
    }

    /// Sorts the deliveries by the times of their events, which the sender's clock gave. Deliveries
    /// with equal times keep the order of arrival. A delivery without a time keeps its position.
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

/// Your code, which a worker runs for the deliveries of an entity, in order.
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
    /// Applies one delivery, and returns the outcome.
    fn handle(
        &self,
        delivery: &Delivery,
        context: &Context,
    ) -> impl Future<Output = Result<Outcome, HandlerError>> + Send;

    /// Applies several deliveries of one entity in one start. The worker calls this function, with at least two
    /// deliveries, for sources with `deliver = { up_to = … }`. As JSON, their bodies have at most 5 MiB. The answer applies to all of them. After a failure, a
    /// rejection or no answer, [`Handler::handle`] gets each delivery alone. After [`Outcome::Unavailable`] or
    /// [`Outcome::NotNow`], the deliveries stay together until these waits add up to the source's `unavailable_for`.
    ///
    /// The default implementation fails. It does not call `handle` for each delivery, because
    /// a handler that reads a row, changes it and commits it would lose all changes except the
    /// last.
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
        let _ = (deliveries, context);
        async {
            Err("this handler takes one delivery at a time: remove the source's `deliver`, or set it to \"latest\""
                .into())
        }
    }

    /// Returns whether a source may choose this handler by `name`. The worker calls this function when
    /// it reads the sources, so that an operator learns of a misspelt name before a delivery needs the
    /// handler.
    fn answers_to(&self, name: &str) -> bool {
        let _ = name;
        true
    }

    /// Returns the names that [`Handler::answers_to`] accepts, for error messages. An empty list means
    /// that every name is accepted.
    fn names(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns whether the handler called `name` implements [`Handler::handle_all`]. The worker calls
    /// this function when it reads a source whose deliveries may be handled several at once.
    fn handles_all(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Returns whether the handler called `name` leaves its work to another process, so that no delivery can end the
    /// worker's process. Such a handler starts some milliseconds sooner: its start does not wait until the queue
    /// has confirmed when the batch comes back if the worker dies.
    fn runs_elsewhere(&self, name: &str) -> bool {
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

    fn names(&self) -> Vec<&str> {
        Handler::names(&**self)
    }

    fn handles_all(&self, name: &str) -> bool {
        Handler::handles_all(&**self, name)
    }

    fn runs_elsewhere(&self, name: &str) -> bool {
        Handler::runs_elsewhere(&**self, name)
    }
}

/// The form of [`Handler`] that can be a trait object.
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

    fn runs_elsewhere(&self, name: &str) -> bool;
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

    fn runs_elsewhere(&self, name: &str) -> bool {
        Handler::runs_elsewhere(self, name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// The handler runs on a separate thread. A handler that blocks this thread prevents neither the
    /// renewal of its lease nor the work on other entities. The handler's futures still use the caller's
    /// runtime.
    #[default]
    Thread,
    /// The handler runs on the thread of the caller's task. Simulations use this variant, because a
    /// simulation must run on a single thread.
    Inline,
}

/// Cancels a handler start when it is dropped.
pub(crate) struct Canceller(watch::Sender<bool>);

impl Canceller {
    pub(crate) fn start(handler: &str, token: FencingToken, deadline: Duration, env: Env) -> (Self, Context) {
        let (sender, cancelled) = watch::channel(false);
        (Self(sender), Context { handler: handler.into(), token, deadline, cancelled, env })
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
        handlers::sample,
        protocol::{delivery::Incoming, entity::Sequence},
        time::Timestamp,
    };

    #[test]
    fn sorting_keeps_deliveries_without_event_time_in_place() {
        let delivery = |place: u64, time: Option<u64>| {
            let event_time = time.map(Timestamp::from_secs);
            let incoming = Incoming { event_time, ..sample::incoming(&place.to_string()) };
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
