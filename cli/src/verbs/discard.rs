//! `serializer discard`: removes parked deliveries for good.

use serde_json::json;
use webhook_serializer::{
    operator::{Operator, OperatorError},
    protocol::entity::{EntityKey, Sequence},
};

use super::{
    Act, Effect, Report, Verb, VerbSubcommand,
    choice::{Chosen, DeliveryChoice},
};
use crate::{
    commands::reason::RequiredReason,
    view::{delivery::delivery_json, position::marked},
};

pub static DISCARD: Verb = Verb {
    name: "discard",
    label: "Discard",
    description: "Each parked delivery is removed for good, with its body. No handler gets it.",
    subcommand: Some(VerbSubcommand::new::<Chosen<RequiredReason, DeliveryChoice>>(
        "Remove parked deliveries for good: one or many",
        "Discard removes parked deliveries for good, with their bodies: no handler gets them. Other \
         deliveries of their orders stay. Only parked deliveries can be discarded; `erase` removes a whole \
         order.",
    )),
    is_final: true,
    asks_for_one: true,
    waits_for_probe: false,
    write_units: 3,
    takes: |_| false,
    is_offered: |page| page.parked > 0 && !page.is_order(),
    act: Act::Parked {
        act: |operator, targets, report| {
            Box::pin(async move {
                for target in targets {
                    let Some(sequence) = target.sequence else { continue };
                    if !report(target, discard(operator, &target.order, sequence).await?) {
                        break;
                    }
                }
                Ok(())
            })
        },
        note: |_, days| {
            Some(format!(
                "If the sender sends the webhook again within {days} days after it was parked, it counts as a repeat."
            ))
        },
    },
};

async fn discard(operator: &Operator, order: &EntityKey, sequence: Sequence) -> Result<Report, OperatorError> {
    let shown = marked(sequence);
    let Some(parked) = operator.parked_at(order, sequence).await? else {
        let sentence = format!("nothing was removed: {order} {shown} is no longer parked");
        let json = json!({ "entity": order, "sequence": sequence, "done": null });
        return Ok(Report::new(Effect::Nothing, sentence, json));
    };
    let (effect, sentence) = match operator.discard(&parked).await {
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
    };
    let mut json = delivery_json(parked.delivery());
    json["done"] = json!(effect.is_done().then_some("discarded"));
    json["error"] = json!(parked.error);
    Ok(Report::new(effect, sentence, json))
}
