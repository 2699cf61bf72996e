//! A store whose replies have a `Date`.

use std::sync::Arc;

use webhook_serializer::{
    protocol::table::{Table, TableError},
    testing::clock::TokioClock,
    time::{Clock, Env, Timestamp},
};

use crate::forwarding::{Forwarding, Layer, TableReply, TableRequest};

pub type DatedTable = Forwarding<Dates>;

pub struct Dates {
    process: Env,
    clock: TokioClock,
}

impl DatedTable {
    /// Creates a table as one process reaches it. Its replies are dated by `clock`.
    pub fn new(inner: Arc<dyn Table>, process: &Env, clock: TokioClock) -> Self {
        Self::through(Dates { process: process.clone(), clock }, inner)
    }
}

impl Layer for Dates {
    async fn call(&self, inner: &Arc<dyn Table>, request: TableRequest<'_>) -> Result<TableReply, TableError> {
        let sent = self.process.monotonic();
        let reply = request.of(inner).await?;
        self.process.note_reply(Timestamp::from_secs(self.clock.now().as_millis() / 1000), sent);
        Ok(reply)
    }
}
