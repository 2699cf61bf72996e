//! Sums up all orders in two sentences.

use std::collections::BTreeSet;

use webhook_serializer::protocol::entity::EntityKey;

use super::{
    order_status::Kind,
    overview::{OrderSummary, Overview},
};

/// Returns how many orders there are of each kind, and how many deliveries are parked. `parked` is false if the parked
/// deliveries were not read, and `all_read` is false if only a part of them was.
pub fn summary(seen: &Overview, parked: bool, all_read: bool) -> String {
    let count = |kind: Kind| seen.count(kind);
    let some = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    let mut kinds = vec![some(count(Kind::Waiting), "waits", "wait")];
    let always = [Kind::Failing, Kind::Blocked];
    let if_any = [Kind::Unavailable, Kind::OnHold, Kind::AtWork, Kind::Leased, Kind::Abandoned];
    let if_any = if_any.into_iter().filter(|kind| count(*kind) > 0);
    kinds.extend(always.into_iter().chain(if_any).map(|kind| {
        let is = if count(kind) == 1 { "is" } else { "are" };
        let is_both = |lane: &&OrderSummary| lane.kind == kind && kind != Kind::OnHold && lane.is_on_hold();
        let held = seen.lanes.iter().filter(is_both).count();
        let also = if held > 0 { format!(" ({held} also on hold)") } else { String::new() };
        format!("{} {is} {}{also}", count(kind), kind.phrase())
    }));
    let orders = some(seen.orders as usize, "order", "orders");
    let aside = match parked {
        false => "Parked deliveries were not read.".to_owned(),
        true => {
            let entities: BTreeSet<&EntityKey> = seen.parked.iter().map(|one| &one.entity).collect();
            let of = some(entities.len(), "order", "orders");
            match seen.parked.len() {
                0 if !all_read => "The part of the table that was read has no parked delivery.".to_owned(),
                many if !all_read => format!("At least {many} of the deliveries are parked."),
                0 => "Nothing is parked.".to_owned(),
                1 => "1 delivery is parked.".to_owned(),
                many => format!("{many} deliveries of {of} are parked."),
            }
        }
    };
    format!("{orders}: {}. {aside}", kinds.join(", "))
}
