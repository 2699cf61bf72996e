//! What a user implements: the handler of deliveries.
//!
//! A handler is started for one delivery of an entity at a time, in the order
//! in which they arrived. It is started again when its answer was lost, so what
//! it does elsewhere it does at least once; what it returns in
//! [`Outcome::Commit`] lands exactly once, with the settling.

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
    /// Try again, as [`Outcome::Retry`]; and it is not this delivery that is
    /// wrong: what the handler needs is out of reach, and any other delivery
    /// would have failed in the same way. Three orders in a row of which it says
    /// so, or that it does not answer in time, and their source is held back for
    /// a while.
    Unavailable {
        /// How long to wait; `None`: as the policy says.
        after: Option<Duration>,
        /// What is out of reach, for people.
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

    /// Try again as the source's retry policy says; what the handler needs is
    /// out of reach.
    pub fn unavailable(error: impl Into<String>) -> Self {
        Self::Unavailable { after: None, error: error.into() }
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

    /// Whether a source may name this handler `name`. Asked at start, so that a
    /// misspelt name stops the function rather than a delivery.
    fn answers_to(&self, name: &str) -> bool {
        let _ = name;
        true
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

    fn answers_to(&self, name: &str) -> bool {
        Handler::answers_to(&**self, name)
    }
}

/// A handler behind a pointer.
pub(crate) trait AnyHandler: Send + Sync + 'static {
    fn handle<'a>(
        &'a self,
        delivery: &'a Delivery,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, HandlerError>>;
}

impl<H: Handler> AnyHandler for H {
    fn handle<'a>(
        &'a self,
        delivery: &'a Delivery,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, HandlerError>> {
        Box::pin(Handler::handle(self, delivery, context))
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
