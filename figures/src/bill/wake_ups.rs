//! What the wake-ups of one burst cause.

/// The requests and invocations that the wake-ups of one burst cause. Every delivery of the burst sends a wake-up,
/// because no worker has the order's lease yet.
///
/// Wake-ups that are received together lead to one drain. A batch that is received during that drain finds the lease
/// taken: a refused acquire, and a wake-up that is sent for the lease's expiry. That wake-up finds the order
/// drained: another refused acquire. `tests/end_to_end/budgets.rs` counts all three cases.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WakeUps {
    pub(super) sends: f64,
    /// The invocations of a worker, each with one batch.
    pub(super) batches: f64,
    /// The refused acquires.
    pub(super) refused: f64,
}

impl WakeUps {
    /// Returns the cost if the wake-ups of `burst` deliveries are received in `batches` batches.
    pub(super) fn new(burst: f64, batches: f64) -> Self {
        let late = batches - 1.0;
        Self { sends: burst + late, batches: 1.0 + 2.0 * late, refused: 2.0 * late }
    }

    /// Returns the requests to the queue. A batch is received and deleted in one request each. The batch that drains
    /// the order also extends the visibility timeout once.
    pub(super) fn requests(self) -> f64 {
        self.sends + 2.0 * self.batches + 1.0
    }
}
