//! `serializer skip`: parks the next delivery of an order, which continues with the delivery behind it.

use serde_json::json;
use webhook_serializer::{
    operator::{Operator, OperatorError, SkipOutcome},
    protocol::{
        entity::{EntityKey, Sequence},
        receipt::Settlement,
        state::{BlockReason, EntityState},
    },
};

use super::{
    Act, Effect, Report, Verb, VerbSubcommand,
    choice::{Chosen, DeliveryChoice},
};
use crate::{
    commands::reason::RequiredReason,
    view::{
        order_status::{Kind, NextCommand},
        position::marked,
    },
};

pub static SKIP: Verb = Verb {
    name: "skip",
    label: "Skip",
    description: "The next delivery is parked, and `redrive` can append it again. The deliveries behind it continue, in order, unless the order is on hold.",
    subcommand: Some(VerbSubcommand::new::<Chosen<RequiredReason, DeliveryChoice>>(
        "Park the next delivery of an order, and continue with the one behind it: one or many",
        "Parks the next delivery of an order. Later, `redrive` appends it again at the end, or `discard` \
         removes it. The deliveries behind it continue, in order, unless the order is on hold. A \
         running handler finishes first; if it applies the delivery, nothing is skipped.\n\n\
         Without ORDER it skips the next delivery of each blocked order, unless the order is blocked as \
         `expired`.\n\n\
         With deliver = \"latest\", the error may belong to a newer delivery, which the handler got instead \
         of all waiting ones. This command does not skip that newer delivery. Once its attempts are used up, \
         the worker tries each delivery alone, and the error belongs to the next one.",
    )),
    is_final: false,
    asks_for_one: true,
    waits_for_probe: false,
    write_units: 5,
    takes: |lane| lane.kind == Kind::Blocked && lane.state.blocked != Some(BlockReason::Expired),
    is_offered: |page| {
        page.in_front().is_some_and(|state| !state.is_empty() && state.blocked != Some(BlockReason::Expired))
    },
    act: Act::Delivery(|operator, order, sequence| Box::pin(skip(operator, order, sequence))),
};

async fn skip(operator: &Operator, order: &EntityKey, sequence: Sequence) -> Result<Report, OperatorError> {
    let skipped = match operator.skip(order, sequence).await {
        Err(error) => return Report::not_leased(order, Some(sequence), error),
        skipped => skipped?,
    };
    let shown = marked(sequence);
    let report = |effect, settled: Option<Settlement>, sentence| {
        let json = json!({
            "entity": order, "sequence": sequence, "done": settled.map(|_| "skip"),
            "settled": settled.map(Settlement::as_str),
        });
        Report::new(effect, sentence, json)
    };
    let done = |settled, sentence| report(Effect::Done, Some(settled), sentence);
    Ok(match skipped {
        SkipOutcome::As(Settlement::Parked) => {
            done(Settlement::Parked, format!("{order} {shown} is parked; unless on hold, the order continues"))
                .then_command(NextCommand::redrive(order, sequence, 1))
        }
        SkipOutcome::As(Settlement::Void) => {
            done(Settlement::Void, format!("{order} {shown} was empty, and a tombstone fills it"))
        }
        SkipOutcome::As(other) => done(other, format!("{order} {shown} is settled as {other}")),
        SkipOutcome::NotInFront(state) => not_in_front(order, sequence, &state),
        SkipOutcome::NotThereYet => {
            let sentence = format!(
                "nothing was skipped: {order} {shown} is claimed, but its delivery is not stored yet. Try again in a few seconds"
            );
            report(Effect::Refused, None, sentence).then("show", &[], "shows the next delivery")
        }
    })
}

pub fn not_in_front(order: &EntityKey, sequence: Sequence, state: &EntityState) -> Report {
    let why = match sequence {
        settled if settled <= state.head => "it is settled, or was never used".to_owned(),
        waits if waits <= state.tail => format!("{} is in front of it", marked(state.next())),
        _ => "it never arrived".to_owned(),
    };
    let shown = marked(sequence);
    let sentence = format!("{order} {shown} is not the next delivery: {why}; nothing was skipped");
    let json = json!({ "entity": order, "sequence": sequence, "done": null, "settled": null });
    let effect = if sequence <= state.head { Effect::Nothing } else { Effect::Refused };
    Report::new(effect, sentence, json).then("show", &[], "shows the next delivery")
}
