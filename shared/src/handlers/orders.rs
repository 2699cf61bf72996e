//! placeholder
use crate::{delivery::Delivery, handler::*, table::Table};
use std::sync::Arc;
/// Orders.
pub struct Orders;
impl Orders {
    /// New.
    pub fn new(_: Arc<dyn Table>, _: impl Into<Arc<str>>) -> Self {
        Self
    }
}
impl Handler for Orders {
    async fn handle(&self, _: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
        Ok(Outcome::Done)
    }
}
