//! `serializer resume`: lets orders continue that are blocked or on hold.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use webhook_serializer::{
    operator::{Operator, OperatorError, StateChange},
    protocol::{entity::EntityKey, inbox::Unblocked},
};

use super::{
    Act, Effect, Report, Verb, VerbArguments, VerbSubcommand,
    choice::{Chosen, OrderChoice},
    report::waiting,
};
use crate::{
    commands::reason::OptionalReason,
    view::{order_status::Kind, position::marked},
};

pub const RESUME: Verb = Verb {
    name: "resume",
    label: "Resume",
    description: "A blocked delivery is tried again, and its attempts are counted from zero. If the order is blocked as `expired`, a tombstone fills its empty sequence. The deliveries behind it follow, in order. A hold ends.",
    subcommand: Some(VerbSubcommand::new::<Resume>(
        "Let orders continue that are blocked or on hold: one or many",
        "Workers try a blocked order's delivery again, and count its attempts from zero. The deliveries \
         behind it follow, in order. If the order is blocked as `expired`, a tombstone fills the empty \
         sequence instead. Resume also ends a hold. For an order that is neither blocked nor on hold, \
         it sends a wake-up. If the destination is down, the command waits for a probe, and says what it found.\n\n\
         Without ORDER it resumes many: the blocked orders, or with --held those on hold. It lists them with \
         the cost, and asks. After Ctrl-C, the same command continues.",
    )),
    is_final: false,
    asks_for_one: false,
    waits_for_probe: true,
    write_units: 3,
    takes: |_| false,
    is_offered: |page| {
        page.in_front().is_some_and(|state| state.blocked.is_some() || page.is_order() && state.hold.since().is_some())
    },
    act: Act::Order(|operator, order| {
        Box::pin(async move {
            let state = operator.inspect(order).await?.state;
            let is_held = state.as_ref().is_some_and(|state| state.hold.since().is_some());
            let is_blocked = state.is_some_and(|state| state.blocked.is_some());
            let ended = if is_held { end_hold(operator, order).await? } else { end_block(operator, order).await? };
            if is_held && is_blocked { end_block(operator, order).await } else { Ok(ended) }
        })
    }),
};

/// Resumes many blocked orders.
static RESUME_BLOCKED: Verb = Verb {
    description: "Each blocked delivery is tried again, and its attempts are counted from zero. If an order is blocked as `expired`, a tombstone fills its empty sequence. The deliveries behind it follow, in order. Orders on hold stay on hold.",
    takes: |lane| lane.kind == Kind::Blocked,
    act: Act::Order(|operator, order| Box::pin(end_block(operator, order))),
    ..RESUME
};

/// Resumes many orders that are on hold.
static RESUME_HELD: Verb = Verb {
    description: "The holds end: waiting deliveries are handled, in order. Blocked orders stay blocked.",
    takes: |lane| lane.is_on_hold(),
    act: Act::Order(|operator, order| Box::pin(end_hold(operator, order))),
    ..RESUME
};

#[derive(Debug, Args)]
struct Resume {
    /// Resume orders that are on hold, instead of blocked ones
    #[arg(long, conflicts_with = "order")]
    held: bool,
    #[command(flatten)]
    chosen: Chosen<OptionalReason, OrderChoice>,
}

impl VerbArguments for Resume {
    async fn run(self, _: &'static Verb) -> Result<ExitCode> {
        let verb = match (&self.chosen.choice.order, self.held) {
            (Some(_), _) => &RESUME,
            (None, true) => &RESUME_HELD,
            (None, false) => &RESUME_BLOCKED,
        };
        self.chosen.run(verb).await
    }
}

async fn end_hold(operator: &Operator, order: &EntityKey) -> Result<Report, OperatorError> {
    Ok(report(order, &operator.resume(order).await?))
}

/// Ends a block. For an order that is not blocked, this only wakes a worker.
async fn end_block(operator: &Operator, order: &EntityKey) -> Result<Report, OperatorError> {
    let change = match operator.unblock(order).await? {
        Unblocked::Ended(state) => StateChange::Done(state),
        Unblocked::NotBlocked(state) => StateChange::Unchanged(state),
    };
    Ok(report(order, &change))
}

fn report(order: &EntityKey, change: &StateChange) -> Report {
    let mut report = Report::of_change(
        "resume",
        order,
        change,
        |state| match (state.blocked.is_some(), state.hold.since().is_some()) {
            (true, _) => format!("{order} is no longer on hold, but stays blocked: {}", waiting(state)),
            (_, true) => format!("{order} is no longer blocked, but stays on hold: {}", waiting(state)),
            _ if state.is_empty() => format!("{order} is no longer on hold: {}", waiting(state)),
            _ => format!("{order} continues from {}: {}", marked(state.next()), waiting(state)),
        },
        |state| match (state.blocked.is_some(), state.hold.since().is_some()) {
            (true, _) => format!("{order} stays blocked: {}", waiting(state)),
            (_, true) => format!("{order} was not blocked, and stays on hold: {}", waiting(state)),
            _ => format!("{order} was neither blocked nor on hold; a wake-up was sent: {}", waiting(state)),
        },
    );
    if matches!(change, StateChange::Done(state) if state.is_stopped()) {
        report.effect = Effect::StaysStopped;
    }
    report.then("show", &[], "shows its state")
}
