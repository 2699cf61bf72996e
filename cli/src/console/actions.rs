//! Decides which operations, such as redrive or skip, a page offers.

use webhook_serializer::protocol::{
    entity::{EntityKey, Sequence},
    state::{BlockReason, EntityState},
};

use crate::operations::Verb;

#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) entity: &'a EntityKey,
    pub(super) sequence: Option<Sequence>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Situation<'a> {
    pub(super) state: Option<&'a EntityState>,
    pub(super) parked: usize,
    pub(super) is_rewinding: bool,
}

/// Returns the sequence that an operation's form contains. The form of a skip names the order's next delivery at the
/// time when the page is shown. Another delivery may be next when the user submits the form.
pub(super) fn sequence_of(verb: Verb, about: About<'_>, situation: Situation<'_>) -> Option<Sequence> {
    let in_front = || situation.state.filter(|_| verb == Verb::Skip).map(EntityState::next);
    about.sequence.or_else(in_front)
}

pub(super) fn is_offered(verb: Verb, about: About<'_>, situation: Situation<'_>) -> bool {
    let is_order = about.sequence.is_none();
    let is_state = |wanted: &dyn Fn(&EntityState) -> bool| situation.state.is_some_and(wanted);
    let is_front = |wanted: &dyn Fn(&EntityState) -> bool| {
        is_state(&|state| about.sequence.is_none_or(|sequence| sequence == state.next()) && wanted(state))
    };
    match verb {
        Verb::Resume(_) => is_front(&|state| state.blocked.is_some() || is_order && state.hold.since().is_some()),
        Verb::Retry => is_front(&|state| state.retry_at.is_some() && state.last_error.is_some() && !state.is_stopped()),
        Verb::Skip => is_front(&|state| !state.is_empty() && state.blocked != Some(BlockReason::Expired)),
        Verb::Hold => is_order && is_state(&|state| state.hold.since().is_none()) && !about.entity.is_kept_forever(),
        Verb::EndRewind => is_order && situation.is_rewinding,
        // A console's form has no field for the order of an unrouted delivery.
        Verb::Redrive => situation.parked > 0 && !about.entity.is_unrouted(),
        Verb::Discard => situation.parked > 0 && !is_order,
        Verb::Rewind => {
            situation.parked == 0 && about.sequence.is_some_and(|sequence| is_state(&|state| sequence <= state.head))
        }
    }
}
