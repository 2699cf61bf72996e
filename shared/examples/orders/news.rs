//! What one event can say about an order, whoever says it.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use super::{
    amount::Money,
    state::{Dispute, Payment, Progress, words},
};

/// What a source calls a payment, a refund or a parcel. A long id, and an empty
/// one, which no map of DynamoDB can have for a name, is kept as the start of
/// its SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FactId(String);

impl FactId {
    /// The longest id kept as it came, in bytes; Stripe's have 27.
    const MAX_BYTES: usize = 32;

    pub(super) fn new(id: &str) -> Self {
        if (1..=Self::MAX_BYTES).contains(&id.len()) {
            return Self(id.to_owned());
        }
        Self(format!("sha256:{}", URL_SAFE_NO_PAD.encode(&Sha256::digest(id)[..16])))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The order as a shop saw it at one moment. In ascending order of how far
/// along it is, the first field counting most.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Snapshot {
    pub(super) is_cancelled: bool,
    pub(super) refund: Progress,
    pub(super) fulfilment: Progress,
    pub(super) payment: Payment,
    /// What the order costs.
    pub(super) total: Money,
    /// What went back, where the snapshot says how much.
    pub(super) refunded: Option<Money>,
}

/// What became of one payment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PaymentFact {
    /// It failed or was called off; so far.
    Failed,
    /// It came through.
    Succeeded(Money),
}

words! {
    /// What became of one parcel. At the same time, the later one counts.
    Parcel {
        /// It is on its way out of the door.
        Pending = "pending",
        /// It was sent.
        Sent = "sent",
        /// It was called off, or could not be sent.
        Cancelled = "cancelled",
    }
}

/// One event's news of an order.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct News {
    pub(super) snapshot: Option<Snapshot>,
    /// What the event shows to have been paid until then, without the
    /// payments' ids.
    pub(super) paid: Vec<Money>,
    pub(super) payments: Vec<(FactId, PaymentFact)>,
    /// By transaction or charge; of one that grows, all of it so far.
    pub(super) refunds: Vec<(FactId, Money)>,
    pub(super) parcels: Vec<(FactId, Parcel)>,
    pub(super) disputes: Vec<(FactId, Dispute)>,
    pub(super) existence: Option<Existence>,
}

/// Whether the shop still has the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existence {
    /// It was thrown away. That often comes without a time, so that it stands
    /// from its arrival until the order is restored.
    Deleted,
    /// It was taken back from the bin.
    Restored,
}

impl News {
    /// The part that takes the place of what the last event told.
    pub(super) fn without_facts(&self) -> Self {
        let (snapshot, paid) = (self.snapshot.clone(), self.paid.clone());
        Self { snapshot, paid, existence: self.existence, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_kept_short_and_distinct_and_is_never_empty() {
        let ids = ["".to_owned(), "x".repeat(32), "x".repeat(33), "x".repeat(200)].map(|id| FactId::new(&id));
        assert!(ids.iter().all(|id| (1..=FactId::MAX_BYTES).contains(&id.as_str().len())));
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
        assert!(ids.iter().all(|id| FactId::new(id.as_str()) == *id), "as it is read from a row");
    }
}
