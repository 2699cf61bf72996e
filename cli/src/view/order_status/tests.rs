//! Tests the words for orders in each state.

use webhook_serializer::protocol::{
    format::{FORMAT, attribute as a},
    table::Row,
};

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn row() -> Row {
    let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, "shop/order/1").with(a::TAIL, 4_u32);
    row.with(a::HEAD, 2_u32).with(a::TOKEN, 9_u32)
}

fn described(row: &Row, parked: Option<ParkedDeliveries<'_>>) -> String {
    let state = EntityState::parse(row).unwrap();
    let status = OrderStatus::of(Some(&state), None, parked, NOW);
    let next: Vec<String> =
        status.next.iter().map(|next| [&[next.command.to_owned()], &next.arguments[..]].concat().join(" ")).collect();
    format!("{} | {} | {}", status.kind.as_str(), status.causes.join(" "), next.join(", "))
}

/// Promise: an order's state names cause and next commands.
#[test]
fn order_status_names_cause_and_next_commands() {
    let failed = row().with(a::ATTEMPTS, 1_u32).with(a::LAST_ERROR, "no");
    let on_hold = row().with(a::HOLD, 940_000_u32);
    let settled = row().with(a::HEAD, 4_u32);
    let unavailable = Retries::default().after(FailureClass::Unavailable, Duration::from_secs(9));
    let hung = Retries::default().after(FailureClass::Unanswered, Duration::from_secs(20));
    let [hung, refused_later, unavailable] =
        [hung, hung.after(FailureClass::Unavailable, Duration::from_secs(5)), unavailable]
            .map(|retries| retries.to_stored().unwrap());
    let timed_out = failed.clone().with(a::LAST_ERROR, "no answer within 10 s").with(a::RETRY_AT, 1_004_000_u32);
    let leased = |row: &Row, kind: &str, until: u64| {
        let row = row.clone().with(a::HOLDER, "h").with(a::KIND, kind).with(a::HOLDER_INFO, "worker 3");
        row.with(a::EXPIRES_AT, until)
    };
    let cases = [
        (
            row().with(a::BLOCKED, "attempts").with(a::ATTEMPTS, 8_u32).with(a::LAST_ERROR, "closed"),
            "blocked | #3 failed after 8 attempts: closed. | show 3, resume, skip 3 --why TEXT",
        ),
        (
            row().with(a::BLOCKED, "expired"),
            "blocked | #3 is empty and so old that its delivery may have expired. Ask the sender whether a webhook is missing. | resume",
        ),
        (
            row().with(a::BLOCKED, "vanished"),
            "blocked | 10 workers in a row died before they started the handler of #3. Their logs say why. | show 3, resume, skip 3 --why TEXT",
        ),
        (
            on_hold.clone().with(a::BLOCKED, "expired"),
            "blocked | #3 is empty and so old that its delivery may have expired. Ask the sender whether a webhook is missing. An operator put it on hold 1 min ago. 2 deliveries wait. | resume, show --history",
        ),
        (
            on_hold.clone(),
            "on hold | An operator put it on hold 1 min ago. 2 deliveries wait. | show --history, resume",
        ),
        (
            leased(&on_hold, "drain", 1_012_000),
            "on hold | An operator put it on hold 1 min ago. 2 deliveries wait. A worker (worker 3) finishes the running delivery and starts no other. | show --history, resume",
        ),
        (
            failed.clone().with(a::RETRY_AT, 999_000_u32),
            "failing | #3 failed after 1 attempt: no. The next attempt starts when a worker is free. | show 3",
        ),
        (
            failed.clone().with(a::RETRY_AT, 1_004_000_u32),
            "failing | #3 failed after 1 attempt: no. The next attempt starts in 4.0 s. | show 3, retry",
        ),
        (
            row().with(a::LAST_ERROR, "no").with(a::ONE_BY_ONE, 4_u32).with(a::RETRY_AT, 1_004_000_u32),
            "failing | A group of deliveries up to #4 failed, and each delivery is now tried alone: no. The next attempt starts in 4.0 s. | show 3, retry",
        ),
        (
            failed.with(a::ONE_BY_ONE, 2_u32).with(a::RETRY_AT, 999_000_u32),
            "failing | The newest waiting delivery failed after 1 attempt: no. The next attempt starts when a worker is free. | show 3",
        ),
        (
            row().with(a::LAST_ERROR, "refused").with(a::RETRIES, unavailable).with(a::RETRY_AT, 1_004_000_u32),
            "unavailable | #3 waits for its destination, so far 5.0 s in all: refused. The next attempt starts in 4.0 s. | show 3, retry",
        ),
        (
            timed_out.clone().with(a::RETRIES, hung),
            "failing | #3 has no answer after 1 attempt, and has waited 16.0 s in all: no answer within 10 s. The next attempt starts in 4.0 s. | show 3, retry",
        ),
        (
            timed_out.with(a::LAST_ERROR, "refused").with(a::RETRIES, refused_later),
            "unavailable | #3 waits for its destination, so far 21.0 s in all: refused. The next attempt starts in 4.0 s. | show 3, retry",
        ),
        (
            leased(&row().with(a::SUSPECT, 2_u32), "drain", 992_000),
            "abandoned | 2 workers died while #3 was next. So the delivery runs in isolation: alone, after the worker's other orders, and its start is recorded first. Its holder (worker 3) died or froze: the lease expired 8.0 s ago. The next wake-up lets a worker take it over; the sweep sends one within three hours. | resume",
        ),
        (
            leased(&row(), "drain", 1_012_000),
            "at work | A worker (worker 3) handles the order; its lease expires in 12.0 s unless it is renewed. | ",
        ),
        (
            leased(&row(), "exclusive", 1_012_000),
            "leased | worker 3 has leased the order; the lease expires in 12.0 s unless it is renewed. Deliveries wait until it ends. | lease release --why TEXT",
        ),
        (row(), "waiting | 2 deliveries wait to be handled. | resume"),
        (
            row().with(a::RETRY_AT, 1_004_000_u32),
            "waiting | 2 deliveries wait. The next start is due in 4.0 s at the earliest: by the source's `rate`, the turn of other orders, or a delivery that is still being stored. | resume",
        ),
        (
            row().with(a::HANDOVER, 1_060_000_u32),
            "waiting | 2 deliveries wait. A worker looks again in 1 min. | resume",
        ),
        (row().with(a::HANDOVER, 999_000_u32), "waiting | 2 deliveries wait to be handled. | resume"),
        (settled.clone(), "idle | All deliveries are settled. | "),
    ];
    for (row, expected) in cases {
        assert_eq!(described(&row, None), expected);
    }
}

#[test]
fn order_whose_first_start_a_breaker_refused_is_unavailable() {
    let now = Timestamp::from_secs(1_800_000_000);
    let refused = row()
        .with(a::LAST_ERROR, "not tried: other orders of its source fail or hang")
        .with(a::RETRY_AT, (now + Duration::from_secs(9)).as_millis());
    assert_eq!(Kind::of(&EntityState::parse(&refused).unwrap(), now), Kind::Unavailable);
    assert_eq!(Kind::of(&EntityState::parse(&row()).unwrap(), now), Kind::Waiting);
}

#[test]
fn attempts_name_the_starts_that_count_none() {
    let after = |class| {
        let retries = Retries::default().after(class, Duration::from_secs(9)).to_stored().unwrap();
        let failed = row().with(a::ATTEMPTS, 2_u32).with(a::LAST_ERROR, "no").with(a::RETRIES, retries);
        attempts_so_far(&EntityState::parse(&failed).unwrap())
    };
    assert_eq!(after(FailureClass::Failed), "2");
    let told = "2, without starts that found the destination unavailable";
    assert_eq!(after(FailureClass::Unavailable), told);
}

#[test]
fn order_with_parked_deliveries_is_never_idle() {
    let [order, unrouted] = ["shop/order/1", "shop/unrouted"].map(|key| EntityKey::parse(key).unwrap());
    let parked = |count| ParkedDeliveries { order: &order, count, newest: Sequence(2), newest_error: "bad" };
    assert_eq!(
        described(&row().with(a::HEAD, 4_u32), Some(parked(1))),
        "parked | 1 delivery is parked: bad. | show 2, redrive 2, discard 2 --why TEXT"
    );
    assert_eq!(
        described(&row(), Some(parked(3))),
        "waiting | 3 deliveries are parked; the error of the newest: bad. 2 deliveries wait to be handled. | show 2, redrive, resume"
    );
    assert_eq!(OrderStatus::of(None, None, Some(parked(1)), NOW).kind, Kind::Parked);
    for count in [1, 3] {
        let status = OrderStatus::of(None, None, Some(ParkedDeliveries { order: &unrouted, ..parked(count) }), NOW);
        let redrive = status.next.iter().find(|next| next.command == "redrive").unwrap();
        assert_eq!(redrive.line("", &unrouted), "serializer redrive shop/unrouted 2 --to ORDER");
    }
}
