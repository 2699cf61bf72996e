//! The orders of a shop, one row for each: what its webhooks come to.
//!
//! A table of its own, with the key attribute `order`: state, money, what was
//! sent, a revision and the last deliveries, of whichever of Shopify, Stripe
//! and WooCommerce send them to one entity. No names, no addresses: nothing is
//! kept of who bought.
//!
//! The row is read, a pure function ([`apply`]) makes the next one, and that is
//! committed: one transaction with the settling of the delivery. Reading,
//! computing and putting without a condition on the row is safe here, because
//! the row is written in no other way: the read is strongly consistent and done
//! under the entity's lease, and the put lands only if the entity's fencing
//! token is still the one of this start. Whoever put a newer row in between
//! took a newer token first.
//!
//! Deliveries are applied in the order in which they arrived, which is not
//! always the order in which things happened. So facts are merged by their
//! ids, and of snapshots the newest counts, by the times that the source gives
//! and the row keeps (`view.rs` has the rules). [`Delivery::age`] is not asked:
//! it compares all events of a topic family whichever source they come from,
//! and it says older of a snapshot also when no newer snapshot is in the row,
//! so that there is nothing to be put back. Where both know, they agree.
//!
//! A delivery that is put back by an operator is applied again, and merging
//! keeps that harmless: only the revision and the history tell of it, unless it
//! has no time and so counts as the newest word of its source.

mod amount;
mod apply;
mod body;
mod event;
mod history;
mod news;
mod order;
mod row;
mod shopify;
mod state;
mod stripe;
#[cfg(test)]
mod tests;
mod view;
mod woocommerce;

use std::{sync::Arc, time::Duration};

pub use amount::{Amount, Currency, Money, Totals};
pub use apply::apply;
pub use body::Malformed;
pub use event::OrderEvent;
pub use history::{Entry, Remark, short_delivery_id};
pub use order::Order;
pub use row::{CorruptOrder, HISTORY_ENTRIES, ROW_BYTES};
pub use state::{Dispute, Life, Payment, Progress, Standing, State};

use crate::{
    engine::store::Store,
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    protocol::{
        delivery::Delivery,
        entity::EntityKey,
        table::{Key, Table, TableError, Write},
    },
};

/// How long a row is tried to be read before the delivery is tried again.
const PATIENCE: Duration = Duration::from_secs(3);

/// The attribute that is the table's key.
pub const KEY_ATTRIBUTE: &str = "order";

/// Keeps one row for each order. Sources name it `orders`.
#[derive(Clone)]
pub struct Orders {
    table: Arc<dyn Table>,
    table_name: Arc<str>,
}

/// Why an order cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The store did not answer.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The row cannot be read by this version.
    #[error(transparent)]
    Corrupt(#[from] CorruptOrder),
}

impl Orders {
    /// Orders in the table called `table_name`, whose key is the text
    /// [`KEY_ATTRIBUTE`].
    #[doc(hidden)]
    pub fn new(table: Arc<dyn Table>, table_name: impl Into<Arc<str>>) -> Self {
        Self { table, table_name: table_name.into() }
    }

    /// The order of `entity`, as its last delivery left it; `None` if there was
    /// none. One call to the store.
    pub async fn order(&self, entity: &EntityKey) -> Result<Option<Order>, OrderError> {
        let row = self.table.get(&self.key(entity)).await?;
        Ok(row.as_ref().map(row::from_row).transpose()?)
    }

    async fn commit(
        &self,
        entity: &EntityKey,
        events: Result<Vec<OrderEvent>, Malformed>,
        context: &Context,
    ) -> Result<Outcome, HandlerError> {
        let events = match events {
            Ok(events) => events,
            Err(malformed) => return Ok(Outcome::Reject(malformed.to_string())),
        };
        let key = self.key(entity);
        let store = Store::new(self.table.clone(), context.env().clone());
        let row = store.get(&key, PATIENCE.min(context.time_left())).await?;
        let order = row.as_ref().map(row::from_row).transpose()?.unwrap_or_default();
        let order = events.iter().fold(order, |order, event| apply(&order, event));
        Ok(Outcome::Commit(vec![Write::put(key, row::to_row(&order))]))
    }

    fn key(&self, entity: &EntityKey) -> Key {
        Key::named(self.table_name.clone(), KEY_ATTRIBUTE, entity.as_str())
    }
}

impl Handler for Orders {
    /// Commits the order's next row; rejects a delivery whose body is not what
    /// its topic promises. A row that cannot be read is an error, so that the
    /// delivery is tried again: a newer version may be on its way.
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let event = OrderEvent::read(delivery).map(|event| vec![event]);
        self.commit(delivery.entity(), event, context).await
    }

    /// The same of several: one read, one write.
    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        let events = deliveries.iter().map(OrderEvent::read).collect();
        self.commit(deliveries.first().entity(), events, context).await
    }

    fn answers_to(&self, name: &str) -> bool {
        name == "orders"
    }

    fn handles_all(&self, name: &str) -> bool {
        self.answers_to(name)
    }
}

impl std::fmt::Debug for Orders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Orders").field("table", &self.table_name).finish_non_exhaustive()
    }
}
