//! `serializer retry`: starts the next attempt of failed deliveries now.

use super::{
    Act, Report, Verb, VerbSubcommand,
    choice::{Chosen, OrderChoice},
};
use crate::{
    commands::reason::OptionalReason,
    view::{order_status::Kind, position::marked},
};

pub static RETRY: Verb = Verb {
    name: "retry",
    label: "Retry now",
    description: "An extra attempt is made now. Attempts stay counted, and the next one is no later than it was.",
    subcommand: Some(VerbSubcommand::new::<Chosen<OptionalReason, OrderChoice>>(
        "Start the next attempt of failed deliveries now: one or many",
        "Retry makes an extra attempt. If it fails, the next attempt is no later than it was. If the destination is \
         down, one of the orders tries it as a probe, and the command waits for the result; the first success \
         starts all waiting orders. Attempts stay counted: if the last one fails, the delivery is parked \
         or blocks its order. A blocked order continues with `resume`, which counts its attempts from zero.",
    )),
    is_final: false,
    asks_for_one: false,
    waits_for_probe: true,
    write_units: 3,
    takes: |lane| matches!(lane.kind, Kind::Failing | Kind::Unavailable),
    is_offered: |page| {
        page.in_front()
            .is_some_and(|state| state.retry_at.is_some() && state.last_error.is_some() && !state.is_stopped())
    },
    act: Act::Order(|operator, order| {
        Box::pin(async move {
            let change = operator.retry(order).await?;
            let report = Report::of_change(
                "retry",
                order,
                &change,
                |state| format!("{order} {} is due now: attempt {}", marked(state.next()), state.attempts + 1),
                |state| match state.is_stopped() {
                    true => format!("{order} is blocked or on hold; nothing was changed"),
                    false => format!("{order} does not wait for an attempt; nothing was changed"),
                },
            );
            Ok(report.then("show", &[], "shows its state"))
        })
    }),
};
