//! `serializer hold`: puts an order on hold, so that no handler starts.

use super::{Act, Report, Verb, VerbSubcommand, choice::OneOrder, report::waiting};
use crate::commands::reason::RequiredReason;

pub static HOLD: Verb = Verb {
    name: "hold",
    label: "Hold",
    description: "The running handler finishes, and no other starts. Webhooks are accepted and wait, in order, until the order is resumed.",
    subcommand: Some(VerbSubcommand::new::<OneOrder<RequiredReason>>(
        "Put an order on hold: webhooks wait, and no handler starts",
        "A running handler finishes; then no other handler of the order starts. Webhooks are still accepted, \
         and wait in order until `resume`. Leases are still granted, so that a script may work on the order.",
    )),
    is_final: false,
    asks_for_one: false,
    waits_for_probe: false,
    write_units: 3,
    takes: |_| false,
    is_offered: |page| {
        let is_running = page.state.is_some_and(|state| state.hold.since().is_none());
        page.is_order() && is_running && !page.order.is_kept_forever()
    },
    act: Act::Order(|operator, order| {
        Box::pin(async move {
            let change = operator.hold(order).await?;
            let report = Report::of_change(
                "hold",
                order,
                &change,
                |state| format!("{order} is on hold: {}, and nothing starts until it is resumed", waiting(state)),
                |state| format!("{order} was on hold already: {}", waiting(state)),
            );
            Ok(report.then("resume", &[], "lets it continue"))
        })
    }),
};
