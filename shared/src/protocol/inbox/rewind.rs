//! What was settled is to be run once more, in its order, in front of what waits.

use crate::{
    protocol::{
        entity::Sequence,
        format::{CorruptRow, attribute as a},
        lease::Lease,
        operation::{Operation, state_of, updated_state},
        state::EntityState,
        table::{Change, Condition, Write, Written},
    },
    time::Timestamp,
};

/// Sets an entity back to just in front of a place, under an exclusive lease. What
/// its row remembers from there on has rows of its own by then: a receipt that
/// speaks of the very place at which its delivery waits says how that ended
/// before, and what was applied is run again. Nothing is blocked any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewind<'a> {
    /// The lease.
    pub lease: &'a Lease,
    /// The row as it was seen under the lease.
    pub seen: &'a EntityState,
    /// The first place that is to be run again, at most `head`. There is something
    /// at each from here on, so that nothing is taken for a place that was never
    /// filled.
    pub from: Sequence,
    /// When what stands there was claimed, at the latest.
    pub since: Timestamp,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewound {
    /// It stands in front of that place, and the lease goes on. The row as it is.
    Rewound(EntityState),
    /// The lease was not this holder's any more; nothing was changed by it, or
    /// somebody has gone on from there already.
    Lost,
}

impl Operation for Rewind<'_> {
    type Outcome = Rewound;

    fn write(&self) -> Write {
        let before = self.from.previous();
        let since = self.seen.pending_since.map_or(self.since, |since| since.min(self.since));
        let of_the_front =
            [a::ATTEMPTS, a::RETRIES, a::SUSPECT, a::STARTED, a::RETRY_AT, a::LAST_ERROR, a::ONE_BY_ONE, a::BLOCKED];
        let mut changes = of_the_front.map(Change::remove).to_vec();
        changes.extend([
            Change::set(a::HEAD, before.0),
            Change::set(a::SPILLED, 1_u32),
            Change::set(a::PENDING_SINCE, since.as_millis()),
            match self.seen.recent.up_to(before).to_stored() {
                Some(recent) => Change::set(a::RECENT, recent),
                None => Change::remove(a::RECENT),
            },
        ]);
        let as_seen = Condition::equal(a::HEAD, self.seen.head.0);
        self.lease.update(Condition::All(vec![self.lease.mine(), as_seen]), changes)
    }

    /// A first try that landed left this holder there, in front of that place.
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
