//! Tests of the lanes and groups that an overview keeps.

use webhook_serializer::protocol::{
    format::FORMAT,
    keys::{delivery_row, parked_row},
    table::Key,
};

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn order(key: &str) -> Row {
    let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, key);
    row.with(a::TAIL, 4_u32).with(a::HEAD, 2_u32).with(a::TOKEN, 9_u32)
}

fn blocked(key: &str, since: u64, error: &str) -> Row {
    order(key).with(a::BLOCKED, "attempts").with(a::PENDING_SINCE, since).with(a::LAST_ERROR, error)
}

fn key(entity: &str) -> EntityKey {
    EntityKey::parse(entity).unwrap()
}

fn delivery(at: &Key, source: &str) -> Row {
    let row = at.to_row().with(a::VERSION, FORMAT).with(a::NONCE, "1");
    let row = row.with(a::SOURCE, source).with(a::DELIVERY_ID, "1").with(a::TOPIC, "t").with(a::RECEIVED_AT, 1_u32);
    row.with(a::BODY_BYTES, 0_u32).with(a::ENCODING, "plain")
}

fn parked(entity: &str, sequence: u64, source: &str, error: &str, since: u64) -> Row {
    let row = delivery(&parked_row(&key(entity), Sequence(sequence)), source);
    row.with(a::ERROR, error).with(a::PARKED_AT, since)
}

#[test]
fn errors_differing_only_in_numbers_are_treated_as_equal() {
    assert_eq!(alike("order 450789469 took 10000 ms: 503"), "order … took … ms: 503");
    let wants = |error: &str| OrderFilter { error: Some(error.into()), ..OrderFilter::default() };
    assert!(wants("order … took").takes(None, Some("order 1042 took 5 ms"), None));
    assert!(wants("order 1041 took").takes(None, Some("order 1042 took 5 ms"), None));
    assert!(!wants("503").takes(None, Some("it answered 502"), None) && !wants("x").takes(None, None, None));
    let after = OrderFilter { since: Some(Timestamp::from_millis(5)), ..OrderFilter::default() };
    let takes = |since| after.takes(None, None, Timestamp::from_millis(since).into());
    assert!(takes(5) && !takes(4) && !after.takes(None, None, None));
}

#[test]
fn overview_sorts_groups_of_orders_by_urgency() {
    let mut seen = Overview::default();
    seen.order(&order("shop/order/9").with(a::PENDING_SINCE, 7_u32), NOW);
    for row in [blocked("shop/order/1", 300, "no 1001"), blocked("shop/order/2", 200, "no 1002")] {
        seen.order(&row, NOW);
    }
    seen.order(&order("shop/order/3").with(a::HEAD, 4_u32), NOW);
    seen.order(&order("cron/sweep"), NOW);
    for entity in ["shop/order/1", "shop/order/2", "shop/order/9"] {
        // The source is known only from the next delivery.
        seen.delivery(&delivery(&delivery_row(&key(entity), Sequence(4)), "other"));
        seen.delivery(&delivery(&delivery_row(&key(entity), Sequence(3)), "shop"));
    }
    for (sequence, since) in [(1, 90), (2, 80)] {
        seen.delivery(&parked("shop/order/3", sequence, "shop", "bad", since));
    }
    assert_eq!((seen.orders, seen.lanes.len(), seen.count(Kind::Blocked)), (4, 3, 2));
    let told: Vec<String> = seen
        .groups()
        .iter()
        .map(|group| {
            let source = group.source.as_ref().map_or("?", SourceName::as_str);
            let error = group.error.as_deref().unwrap_or("-");
            let oldest = group.oldest.map_or(0, Timestamp::as_millis);
            let (entity, sequence) = (&group.example.0, group.example.1.unwrap());
            let what = group.kind.as_str();
            let deliveries = format!("{}{}", group.deliveries, group.of_others());
            format!("{what} {source} {error} {} {deliveries} {oldest} {entity} {sequence}", group.orders)
        })
        .collect();
    assert_eq!(
        told,
        [
            "blocked shop no … 2 4 (2 of other) 200 shop/order/2 3",
            "parked shop bad 1 2 80 shop/order/3 2",
            "waiting shop - 1 2 (1 of other) 7 shop/order/9 3",
        ]
    );
}

#[test]
fn group_of_an_order_without_deliveries_names_no_position() {
    let mut seen = Overview::default();
    seen.order(&order("shop/order/1").with(a::TAIL, 0_u32).with(a::HEAD, 0_u32).with(a::HOLD, 400_u32), NOW);
    let example = |seen: &Overview| seen.groups()[0].example.clone();
    assert_eq!(example(&seen), (key("shop/order/1"), None));
    seen.order(&order("shop/order/2").with(a::HOLD, 300_u32), NOW);
    assert_eq!(example(&seen), (key("shop/order/2"), Some(Sequence(3))));
}

/// Promise: `list` holds only the orders that it shows and those that are not settled.
#[test]
fn only_the_newest_settled_orders_have_lanes() {
    let mut seen = Overview { keeps_settled: 2, ..Overview::default() };
    seen.order(&blocked("shop/order/blocked", 300, "no"), NOW);
    let mut most = 0;
    for number in 0..5_000_u64 {
        let ended = number * 7 % 5_000;
        let row = order(&format!("shop/order/{ended}")).with(a::HEAD, 4_u32).with(a::PENDING_SINCE, ended);
        seen.order(&row, NOW);
        most = most.max(seen.lanes.len());
    }
    assert!(most <= SPARE_LANES + 3, "{most}");
    seen.drop_older_settled();
    let kept: Vec<_> = seen.lanes.iter().map(|lane| lane.state.entity.as_str()).collect();
    assert_eq!((kept, seen.orders), (vec!["shop/order/blocked", "shop/order/4999", "shop/order/4998"], 5_001));
    seen.delivery(&delivery(&delivery_row(&key("shop/order/blocked"), Sequence(3)), "shop"));
    assert_eq!(seen.lanes[0].source.as_ref().map(SourceName::as_str), Some("shop"));
}

/// Deliveries of a blocked order wait since the first of them, which may be long ago.
#[test]
fn arrival_at_blocked_or_held_order_is_activity() {
    let at = Timestamp::from_millis(900);
    let claim = Nonce::from_parts(at, 1);
    let held = order("shop/order/2").with(a::PENDING_SINCE, 300_u32).with(a::HOLD, 400_u32);
    for row in [blocked("shop/order/1", 300, "no"), held] {
        let mut seen = Overview::default();
        seen.order(&row.with(a::LAST_CLAIM, claim.as_str()), NOW);
        assert_eq!((seen.lanes[0].active_at, seen.lanes[0].since()), (Some(at), Some(Timestamp::from_millis(300))));
    }
}

#[test]
fn unreadable_row_hides_no_other_order() {
    let mut seen = Overview::default();
    seen.order(&order("shop/order/1").with(a::VERSION, FORMAT + 1), NOW);
    seen.order(&order("shop/order/2"), NOW);
    assert_eq!((seen.orders, seen.lanes.len(), seen.unreadable.len()), (1, 1, 1));
    assert_eq!(seen.unreadable[0].0, "shop/order/1");
}
