//! Rewinds an inbox: applied deliveries run again, in order and before the waiting deliveries.

use crate::{
    entity::Sequence,
    format::{CorruptRow, attribute as a},
    lease::Lease,
    operation::{Operation, state_of, updated_state},
    receipt::Spilled,
    state::EntityState,
    table::{Change, Condition, Write, Written},
    time::Timestamp,
    waits,
};

/// Moves `head` back to just before the sequence `from`, under an exclusive lease, and ends a
/// block.
///
/// The caller must first copy the receipts of the sequences from `from` to `head` that are in the
/// entity's row to rows of their own. A receipt elsewhere has the delivery's own sequence. So it shows
/// that the delivery was rewound, and does not make the delivery a repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewind<'a> {
    pub lease: &'a Lease,
    /// The entity's row, as read under the lease.
    pub seen: &'a EntityState,
    /// The first sequence to run again, at most `head`. Every sequence from `from` to `head` must
    /// have a row, because a missing row would look like a gap.
    pub from: Sequence,
    /// A lower bound for the claim times of `from` and all later sequences.
    pub since: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewound {
    Rewound(EntityState),
    /// The lease was lost. Either nothing was changed, or another holder has already continued from
    /// the rewound `head`.
    Lost,
}

impl Operation for Rewind<'_> {
    type Outcome = Rewound;

    fn write(&self) -> Write {
        let before = self.from.previous();
        let since = self.seen.pending_since.map_or(self.since, |since| since.min(self.since));
        let of_the_front = [a::ATTEMPTS, a::SUSPECT, a::STARTED, a::RETRY_AT, a::ONE_BY_ONE];
        let mut changes = of_the_front.map(Change::remove).to_vec();
        changes.extend(waits::unblocked());
        changes.extend([
            Change::set(a::HEAD, before.0),
            Change::set(a::SPILLED, self.seen.spilled.and(Spilled::ROWS).to_stored()),
            Change::set(a::PENDING_SINCE, since.as_millis()),
            match self.seen.recent.up_to(before).to_stored() {
                Some(recent) => Change::set(a::RECENT, recent),
                None => Change::remove(a::RECENT),
            },
        ]);
        let as_seen = Condition::equal(a::HEAD, self.seen.head.0);
        self.lease.update(Condition::All(vec![self.lease.mine(), as_seen]), changes)
    }

    /// Treats a refusal as success if the holder still has the lease and `head` is just before the
    /// sequence `from`, because then an earlier try of this write landed.
    fn judge(&self, reply: Written) -> Result<Rewound, CorruptRow> {
        Ok(match reply {
            Written::Landed(row) => Rewound::Rewound(updated_state(row)?),
            Written::Refused(row) => match state_of(row)? {
                Some(state) if self.lease.is_mine(&state) && state.head == self.from.previous() => {
                    Rewound::Rewound(state)
                }
                _ => Rewound::Lost,
            },
        })
    }
}
