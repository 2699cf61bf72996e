//! The operations that an operator runs on orders and deliveries, such as `resume` or `skip`. The commands and the
//! console share this code.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use webhook_serializer::{
    leases::LeaseError,
    operator::{Operator, OperatorError, PutBack, RewindOutcome, Rewinding, SkipOutcome, StateChange},
    protocol::{
        entity::{EntityKey, Sequence},
        inbox::Unblocked,
        receipt::Settlement,
        state::{BlockReason, EntityState},
    },
};

use crate::{
    output::counted,
    view::{
        delivery::delivery_json,
        order_status::{Kind, NextCommand},
        overview::{OrderSummary, ParkedDelivery},
        position::marked,
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Resume(StopKind),
    Retry,
    Skip,
    EndRewind,
    Redrive,
    Discard,
    Rewind,
    Hold,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopKind {
    Any,
    Block,
    Hold,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationTarget {
    pub order: EntityKey,
    pub sequence: Option<Sequence>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Done,
    /// Nothing was left to do: the order was already in the wanted state, another operator was faster, or the delivery
    /// was settled in another way.
    Nothing,
    Refused,
}

#[derive(Debug, Clone, PartialEq)]
pub struct OperationOutcome {
    pub effect: Effect,
    pub sentence: String,
    pub next: Vec<NextCommand>,
    pub json: Value,
    pub is_unknown: bool,
    /// Set if the order is still blocked or on hold, for another reason than the one that ended.
    pub stays_stopped: bool,
    /// Set if it is still open whether the delivery was settled.
    is_undecided: bool,
}

impl OperationOutcome {
    fn new(effect: Effect, sentence: String, json: Value) -> Self {
        let next = Vec::new();
        Self { effect, sentence, next, json, is_unknown: false, stays_stopped: false, is_undecided: false }
    }

    fn then(mut self, command: &'static str, arguments: &[&str], purpose: &'static str) -> Self {
        self.next.push(NextCommand::new(command, arguments, purpose));
        self
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub done: usize,
    pub nothing: usize,
    pub refused: usize,
}

impl Tally {
    pub fn add(&mut self, effect: Effect) {
        match effect {
            Effect::Done => self.done += 1,
            Effect::Nothing => self.nothing += 1,
            Effect::Refused => self.refused += 1,
        }
    }

    pub fn total(&self) -> usize {
        self.done + self.nothing + self.refused
    }
}

impl Verb {
    /// The operations that the console offers, in the order of their buttons.
    pub const ALL: [Self; 8] = [
        Self::Resume(StopKind::Any),
        Self::Retry,
        Self::Skip,
        Self::EndRewind,
        Self::Redrive,
        Self::Discard,
        Self::Rewind,
        Self::Hold,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Resume(_) => "resume",
            Self::Retry => "retry",
            Self::Skip => "skip",
            Self::EndRewind => "end-rewind",
            Self::Redrive => "redrive",
            Self::Discard => "discard",
            Self::Rewind => "rewind",
            Self::Hold => "hold",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Resume(_) => "Resume",
            Self::Retry => "Retry now",
            Self::Skip => "Skip",
            Self::EndRewind => "End the rewind",
            Self::Redrive => "Redrive",
            Self::Discard => "Discard",
            Self::Rewind => "Rewind to here",
            Self::Hold => "Hold",
        }
    }

    pub fn description(self) -> &'static str {
        match self {
            Self::Resume(StopKind::Hold) => "The holds end: waiting deliveries are handled, in order.",
            Self::Resume(StopKind::Block) => {
                "Each blocked delivery is tried again, and its attempts are counted from zero. If an order is blocked as `expired`, a tombstone fills its empty sequence. The deliveries behind it follow, in order."
            }
            Self::Resume(StopKind::Any) => {
                "A blocked delivery is tried again, and its attempts are counted from zero. If the order is blocked as `expired`, a tombstone fills its empty sequence. The deliveries behind it follow, in order. A hold ends."
            }
            Self::Retry => {
                "An extra attempt is made now. Attempts stay counted, and the next one is no later than it was."
            }
            Self::Skip => {
                "The next delivery is parked, and `redrive` can append it again. The deliveries behind it continue, in order, unless the order is on hold."
            }
            Self::EndRewind => {
                "Deliveries that have not run again stay as they were settled; waiting deliveries continue."
            }
            Self::Redrive => {
                "Each parked delivery is appended at the end of its order, behind newer ones, and is handled again."
            }
            Self::Discard => "Each parked delivery is removed for good, with its body. No handler gets it.",
            Self::Rewind => {
                "Applied deliveries run again from here on, in order, before all waiting deliveries. Their effects happen again."
            }
            Self::Hold => {
                "The running handler finishes, and no other starts. Webhooks are accepted and wait, in order, until the order is resumed."
            }
        }
    }

    pub fn is_final(self) -> bool {
        self == Self::Discard
    }

    pub fn takes_deliveries(self) -> bool {
        matches!(self, Self::Skip | Self::Redrive | Self::Discard | Self::Rewind)
    }

    /// Returns the smallest number of DynamoDB write units that an operation for many orders costs for one target. Two
    /// units are for the operations log. The others are for the operation's own writes, with a body of at most 1 KB.
    pub fn write_units(self) -> u64 {
        match self {
            Self::Discard => 3,
            Self::Skip | Self::Redrive => 5,
            _ => 3,
        }
    }

    /// Runs this operation for one order or delivery. After an error, the operation may have taken effect.
    pub async fn act(self, operator: &Operator, target: &OperationTarget) -> Result<OperationOutcome, OperatorError> {
        let OperationTarget { order, sequence } = target;
        let outcome = match (self, sequence) {
            (Self::Resume(stop), _) => resume(operator, order, stop).await?,
            (Self::Retry, _) => retry(order, operator.retry(order).await?),
            (Self::Hold, _) => hold(order, operator.hold(order).await?),
            (Self::Skip, Some(sequence)) => match operator.skip(order, *sequence).await {
                Err(error) => not_leased(target, error)?,
                skipped => skip(order, *sequence, skipped?),
            },
            (Self::Redrive, Some(sequence)) => {
                let mut outcome = None;
                let list = [(order.clone(), *sequence)];
                let report = |_: &EntityKey, _, became: &PutBack| {
                    outcome = Some(redrive(order, *sequence, became));
                    true
                };
                operator.put_back(&list, report).await?;
                outcome.unwrap_or_else(|| redrive(order, *sequence, &PutBack::NotParked))
            }
            (Self::Discard, Some(sequence)) => discard(operator, order, *sequence).await?,
            (Self::Rewind, Some(from)) => match operator.rewind(order, *from).await {
                Err(error) => not_leased(target, error)?,
                result => rewound(self, order, &result?),
            },
            (Self::EndRewind, _) => match operator.end_rewind(order).await {
                Err(error) => not_leased(target, error)?,
                result => rewound(self, order, &result?),
            },
            (Self::Skip | Self::Redrive | Self::Discard | Self::Rewind, None) => refused(
                target,
                format!(
                    "{} needs the SEQUENCE of a delivery of {order}; `serializer show {order}` lists them",
                    self.name()
                ),
            ),
        };
        Ok(outcome)
    }
}

/// Runs an operation for the targets one after the other, until `report` returns false.
///
/// A redrive keeps the deliveries of an order in sequence. If the outcome for a delivery is undecided, no later
/// delivery of that order is appended.
///
/// If this function fails, the operation has run for the reported targets, and may have taken effect for the next
/// target. Running the operation again continues with the other targets.
pub async fn run(
    verb: Verb,
    operator: &Operator,
    targets: &[OperationTarget],
    mut report: impl FnMut(&OperationTarget, OperationOutcome) -> bool,
) -> Result<(), OperatorError> {
    let mut undecided: BTreeSet<&EntityKey> = BTreeSet::new();
    for target in targets {
        let outcome = match target.sequence {
            Some(sequence) if undecided.contains(&target.order) => redrive(&target.order, sequence, &PutBack::Behind),
            _ => verb.act(operator, target).await?,
        };
        if outcome.is_undecided {
            undecided.insert(&target.order);
        }
        if !report(target, outcome) {
            break;
        }
    }
    Ok(())
}

pub fn orders<'a>(verb: Verb, lanes: impl Iterator<Item = &'a OrderSummary>) -> Vec<OperationTarget> {
    let takes = |lane: &&OrderSummary| match verb {
        Verb::Resume(StopKind::Hold) => lane.kind == Kind::OnHold,
        Verb::Resume(_) => lane.kind == Kind::Blocked,
        Verb::Retry => matches!(lane.kind, Kind::Failing | Kind::Unavailable),
        Verb::Skip => lane.kind == Kind::Blocked && lane.state.blocked != Some(BlockReason::Expired),
        _ => false,
    };
    let target = |lane: &OrderSummary| OperationTarget {
        order: lane.state.entity.clone(),
        sequence: verb.takes_deliveries().then(|| lane.state.next()),
    };
    lanes.filter(takes).map(target).collect()
}

/// The parked deliveries that an operation would change, sorted by order and sequence.
#[derive(Debug, Clone, Default)]
pub struct ParkedSelection {
    pub deliveries: Vec<ParkedDelivery>,
    /// The number of orders in which a delivery stays parked although a later delivery is selected.
    pub overtaken: usize,
}

impl ParkedSelection {
    pub fn of(mut parked: Vec<ParkedDelivery>, takes: impl Fn(&ParkedDelivery) -> bool, limit: usize) -> Self {
        parked.sort_by(|left, right| (&left.entity, left.sequence).cmp(&(&right.entity, right.sequence)));
        let (mut deliveries, others): (Vec<ParkedDelivery>, Vec<ParkedDelivery>) = parked.into_iter().partition(takes);
        deliveries.truncate(limit);
        let last: BTreeMap<&EntityKey, Sequence> = deliveries.iter().map(|one| (&one.entity, one.sequence)).collect();
        let stay = others.iter().filter(|one| last.get(&one.entity).is_some_and(|last| one.sequence < *last));
        let overtaken = stay.map(|one| &one.entity).collect::<BTreeSet<_>>().len();
        Self { deliveries, overtaken }
    }

    pub fn targets(&self) -> Vec<OperationTarget> {
        let target = |one: &ParkedDelivery| OperationTarget { order: one.entity.clone(), sequence: Some(one.sequence) };
        self.deliveries.iter().map(target).collect()
    }

    pub fn orders(&self) -> usize {
        self.deliveries.iter().map(|one| &one.entity).collect::<BTreeSet<_>>().len()
    }
}

fn refused(target: &OperationTarget, sentence: String) -> OperationOutcome {
    let json = json!({ "entity": target.order, "sequence": target.sequence, "done": null });
    OperationOutcome::new(Effect::Refused, sentence, json)
}

fn unknown(order: &EntityKey) -> String {
    format!("there is no order {order}: no webhook has arrived for this key, or the order has expired or was erased")
}

pub fn not_leased(target: &OperationTarget, error: OperatorError) -> Result<OperationOutcome, OperatorError> {
    let order = &target.order;
    match error {
        OperatorError::Unknown => Ok(OperationOutcome { is_unknown: true, ..refused(target, unknown(order)) }),
        OperatorError::Lease(LeaseError::Contended { by, until }) => {
            let sentence =
                format!("nothing was changed: {by} holds the lease of {order} until {until}. Try again then");
            let why = &["--why", "TEXT"];
            Ok(refused(target, sentence)
                .then("hold", why, "if the order is always busy, run this first: no further handler starts")
                .then("lease release", why, "takes the lease away"))
        }
        OperatorError::Lease(LeaseError::Lost) => {
            let sentence = format!("the lease of {order} was lost during the operation, which may have taken effect");
            Ok(refused(target, sentence).then("show", &[], "shows whether it did"))
        }
        error => Err(error),
    }
}

fn of_order(verb: &str, order: &EntityKey, effect: Effect, state: Option<&EntityState>) -> Value {
    json!({
        "entity": order, "done": (effect == Effect::Done).then_some(verb),
        "on_hold": state.and_then(|state| state.hold.since()), "waiting": state.map_or(0, EntityState::waiting),
        "known": state.is_some(),
    })
}

fn turned(
    verb: &str,
    order: &EntityKey,
    turned: &StateChange,
    done: impl Fn(&EntityState) -> String,
    unchanged: impl Fn(&EntityState) -> String,
) -> OperationOutcome {
    let (effect, state, sentence) = match turned {
        StateChange::Done(state) => (Effect::Done, Some(state), done(state)),
        StateChange::Unchanged(Some(state)) => (Effect::Nothing, Some(state), unchanged(state)),
        StateChange::Unchanged(None) => (Effect::Refused, None, unknown(order)),
    };
    let is_unknown = state.is_none();
    OperationOutcome { is_unknown, ..OperationOutcome::new(effect, sentence, of_order(verb, order, effect, state)) }
}

fn waiting(state: &EntityState) -> String {
    match state.waiting() {
        0 => "nothing waits".to_owned(),
        waiting => counted(waiting, "delivery waits", "deliveries wait"),
    }
}

async fn resume(operator: &Operator, order: &EntityKey, stop: StopKind) -> Result<OperationOutcome, OperatorError> {
    let (is_held, is_blocked) = match stop {
        StopKind::Block => (false, true),
        StopKind::Hold => (true, false),
        StopKind::Any => {
            let state = operator.inspect(order).await?.state;
            state.map_or((false, false), |state| (state.hold.since().is_some(), state.blocked.is_some()))
        }
    };
    let ended_hold = if is_held { Some(operator.resume(order).await?) } else { None };
    let result = match ended_hold {
        Some(ended) if !is_blocked => ended,
        // For an order that is not stopped, `unblock` only wakes a worker.
        _ => match operator.unblock(order).await? {
            Unblocked::Unblocked(state) => StateChange::Done(state),
            Unblocked::NotBlocked(state) => StateChange::Unchanged(state),
        },
    };
    let stays_stopped = matches!(&result, StateChange::Done(state) if state.is_stopped());
    let outcome = turned(
        "resume",
        order,
        &result,
        |state| match (state.blocked.is_some(), state.hold.since().is_some()) {
            (true, _) => format!("{order} is no longer on hold, but stays blocked: {}", waiting(state)),
            (_, true) => format!("{order} is no longer blocked, but stays on hold: {}", waiting(state)),
            _ => format!("{order} continues from {}: {}", marked(state.next()), waiting(state)),
        },
        |state| match (state.blocked.is_some(), state.hold.since().is_some()) {
            (true, _) => format!("{order} stays blocked: {}", waiting(state)),
            (_, true) => format!("{order} was not blocked, and stays on hold: {}", waiting(state)),
            _ => format!("{order} was neither blocked nor on hold; a wake-up was sent: {}", waiting(state)),
        },
    );
    Ok(OperationOutcome { stays_stopped, ..outcome }.then("show", &[], "shows its state"))
}

fn retry(order: &EntityKey, result: StateChange) -> OperationOutcome {
    turned(
        "retry",
        order,
        &result,
        |state| format!("{order} {} is due now: attempt {}", marked(state.next()), state.attempts + 1),
        |state| match state.is_stopped() {
            true => format!("{order} is blocked or on hold; nothing was changed"),
            false => format!("{order} does not wait for an attempt; nothing was changed"),
        },
    )
    .then("show", &[], "shows its state")
}

fn hold(order: &EntityKey, result: StateChange) -> OperationOutcome {
    turned(
        "hold",
        order,
        &result,
        |state| format!("{order} is on hold: {}, and nothing starts until it is resumed", waiting(state)),
        |state| format!("{order} was on hold already: {}", waiting(state)),
    )
    .then("resume", &[], "lets it continue")
}

fn skip(order: &EntityKey, sequence: Sequence, skipped: SkipOutcome) -> OperationOutcome {
    let shown = marked(sequence);
    let (effect, sentence, settled) = match skipped {
        SkipOutcome::As(settlement) => {
            let sentence = match settlement {
                Settlement::Parked => format!("{order} {shown} is parked; unless on hold, the order continues"),
                Settlement::Void => format!("{order} {shown} was empty, and a tombstone fills it"),
                other => format!("{order} {shown} is settled as {other}"),
            };
            (Effect::Done, sentence, Some(settlement))
        }
        SkipOutcome::NotInFront(state) => return not_in_front(order, sequence, &state),
        SkipOutcome::NotThereYet => (
            Effect::Refused,
            format!(
                "nothing was skipped: {order} {shown} is claimed, but its delivery is not stored yet. Try again in a few seconds"
            ),
            None,
        ),
    };
    let done = settled.map(|_| "skip");
    let settled = settled.map(Settlement::as_str);
    let json = json!({ "entity": order, "sequence": sequence, "done": done, "settled": settled });
    let outcome = OperationOutcome::new(effect, sentence, json);
    match settled {
        Some("parked") => OperationOutcome { next: vec![NextCommand::redrive(order, sequence, 1)], ..outcome },
        Some(_) => outcome,
        None => outcome.then("show", &[], "shows the next delivery"),
    }
}

pub fn not_in_front(order: &EntityKey, sequence: Sequence, state: &EntityState) -> OperationOutcome {
    let why = match sequence {
        settled if settled <= state.head => "it is settled".to_owned(),
        waits if waits <= state.tail => format!("{} is in front of it", marked(state.next())),
        _ => "it never arrived".to_owned(),
    };
    let shown = marked(sequence);
    let sentence = format!("{order} {shown} is not the next delivery: {why}; nothing was skipped");
    let json = json!({ "entity": order, "sequence": sequence, "done": null, "settled": null });
    let effect = if sequence <= state.head { Effect::Nothing } else { Effect::Refused };
    OperationOutcome::new(effect, sentence, json).then("show", &[], "shows the next delivery")
}

fn redrive(order: &EntityKey, sequence: Sequence, became: &PutBack) -> OperationOutcome {
    let what = format!("{order} {}", marked(sequence));
    let is_undecided = matches!(became, PutBack::Undecided);
    let (effect, sentence, became) = match became {
        PutBack::At(at) => {
            (Effect::Done, format!("{what} was appended again, as {}", marked(*at)), json!({ "back_at": at }))
        }
        PutBack::Unannounced => (
            Effect::Done,
            format!("{what} was appended again, but no wake-up could be sent; the sweep finds it within the hour"),
            json!("back, unannounced"),
        ),
        PutBack::NotParked => (Effect::Nothing, format!("{what}: {}", OperatorError::NotParked), json!("not parked")),
        PutBack::DecidedOtherwise(settlement) => (
            Effect::Nothing,
            format!("{what}: {}", OperatorError::DecidedOtherwise(*settlement)),
            json!(settlement.as_str()),
        ),
        PutBack::Undecided => (
            Effect::Refused,
            format!("{what}: {}; try again in a minute", OperatorError::Undecided),
            json!("undecided"),
        ),
        PutBack::Behind => (
            Effect::Refused,
            format!(
                "{what} was not appended, because an earlier delivery of its order is not settled yet: try again later"
            ),
            json!("an earlier delivery is not settled"),
        ),
        PutBack::Unreadable(error) => (
            Effect::Refused,
            format!("{what} stays parked: it cannot be read: {error}"),
            json!({ "unreadable": error.to_string() }),
        ),
    };
    let done = (effect == Effect::Done).then_some("redrive");
    let json = json!({ "entity": order, "sequence": sequence, "done": done, "became": became });
    OperationOutcome { is_undecided, ..OperationOutcome::new(effect, sentence, json) }
}

async fn discard(
    operator: &Operator,
    order: &EntityKey,
    sequence: Sequence,
) -> Result<OperationOutcome, OperatorError> {
    let parked = operator.parked_at(order, sequence).await?;
    let shown = marked(sequence);
    let (effect, sentence) = match &parked {
        None => (Effect::Nothing, format!("nothing was removed: {order} {shown} is no longer parked")),
        Some(parked) => match operator.discard(parked).await {
            Ok(()) => (Effect::Done, format!("{order} {shown} is discarded")),
            Err(OperatorError::Undecided) => (
                Effect::Refused,
                format!(
                    "{order} {shown} is not settled yet: the worker that parked it still runs, or died. Nothing was removed; try again in a minute"
                ),
            ),
            Err(OperatorError::NotParked) => {
                (Effect::Nothing, format!("nothing was removed: {order} {shown} is no longer parked"))
            }
            Err(OperatorError::Redriven) => (
                Effect::Refused,
                format!(
                    "a redrive of {order} {shown} has begun, and may have appended it. Nothing was removed; `redrive` \
                     again finishes it"
                ),
            ),
            Err(OperatorError::DecidedOtherwise(settlement)) => (
                Effect::Nothing,
                format!(
                    "{order} {shown} was {settlement}, not parked. A worker that lost its lease had left a parked \
                     copy, which was removed"
                ),
            ),
            Err(error) => return Err(error),
        },
    };
    let mut json = parked
        .as_ref()
        .map_or_else(|| json!({ "entity": order, "sequence": sequence }), |parked| delivery_json(parked.delivery()));
    json["done"] = json!((effect == Effect::Done).then_some("discarded"));
    if let Some(parked) = &parked {
        json["error"] = json!(parked.error);
    }
    Ok(OperationOutcome::new(effect, sentence, json))
}

pub fn rewound(verb: Verb, order: &EntityKey, rewound: &RewindOutcome) -> OperationOutcome {
    let is_end = verb == Verb::EndRewind;
    let (effect, sentence) = match rewound {
        RewindOutcome::Done(Rewinding { from, through, .. }) if is_end => (
            Effect::Done,
            format!(
                "{order} {} to {} keep their earlier outcome; the waiting deliveries continue",
                marked(*from),
                marked(*through)
            ),
        ),
        RewindOutcome::Done(Rewinding { from, through, applied }) => {
            let run = counted(*applied as u64, "delivery runs", "deliveries run");
            (
                Effect::Done,
                format!(
                    "{run} again on {order}, from {} to {}, then the waiting deliveries",
                    marked(*from),
                    marked(*through)
                ),
            )
        }
        _ if is_end => (Effect::Refused, format!("no rewind of {order} is under way; nothing was changed")),
        RewindOutcome::NotSettled(state) => (
            Effect::Refused,
            format!(
                "nothing was changed: that delivery is not settled yet; the last settled delivery of {order} is {}",
                marked(state.head)
            ),
        ),
        RewindOutcome::Expired(Some(first)) => (
            Effect::Refused,
            format!(
                "nothing was changed: some of these deliveries have expired. Rewind to {} at the earliest",
                marked(*first)
            ),
        ),
        RewindOutcome::Expired(None) => {
            (Effect::Refused, format!("nothing was changed: all deliveries of {order} have expired"))
        }
        RewindOutcome::Nothing => {
            (Effect::Refused, "nothing was changed: from that sequence on, no delivery was applied".to_owned())
        }
    };
    let json = match rewound {
        RewindOutcome::Done(Rewinding { from, through, applied }) => {
            let done = if is_end { "rewind ended" } else { "rewind" };
            json!({ "entity": order, "done": done, "from": from, "through": through, "applied": applied })
        }
        _ => json!({ "entity": order, "done": null }),
    };
    let outcome = OperationOutcome::new(effect, sentence, json);
    match (effect, is_end) {
        (Effect::Done, false) => outcome.then("rewind", &["--end", "--why", "TEXT"], "ends it early"),
        (Effect::Done, true) => outcome,
        _ => outcome.then("show", &[], "lists its deliveries"),
    }
}
