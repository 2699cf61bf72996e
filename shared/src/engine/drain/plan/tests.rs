//! Tests of the steps of a drain that holds the lease: starts, settles, receipts and hand-overs.

use std::sync::Arc;

use proptest::prelude::*;

mod groups;
mod receipts;
mod retry;

use super::*;
use crate::{
    handler::Outcome,
    protocol::{
        attempt::FailureClass,
        delivery::{Envelope, Incoming},
        entity::{DeliveryId, FencingToken, Identity, SourceName},
        format::{FORMAT, attribute as a},
        hold::Hold,
        inbox::Put,
        memory,
        operation::Operation,
        receipt::Recent,
        table::Row,
    },
    sources::Sources,
    time::Nonce,
};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const STARTED: Step = Step::Start { must_record: false, group: DeliveryGroup::ONE };
const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Moment = Moment {
    now: NOW,
    left: Duration::from_secs(100),
    is_alone: false,
    is_spent: false,
    patience: SECOND,
    pause: Duration::ZERO,
};

fn entity() -> EntityKey {
    EntityKey::parse("shop/order/1").unwrap()
}

fn on_hold() -> Hold {
    Hold::parse(&Row::new().with(a::HOLD, 5_u32)).unwrap()
}

fn row(head: u64, tail: u64) -> EntityState {
    let row = Row::new()
        .with(a::ENTITY, entity().as_str())
        .with(a::VERSION, FORMAT)
        .with(a::HEAD, head)
        .with(a::TAIL, tail)
        .with(a::TOKEN, 70_u64);
    EntityState::parse(&row).unwrap()
}

fn incoming(id: &str, at: u64) -> Incoming {
    Incoming {
        entity: entity(),
        identity: Identity { source: SourceName::parse("shop").unwrap(), delivery_id: DeliveryId::new(id), redrive: 0 },
        provider: None,
        topic: "orders/paid".into(),
        family: "orders".into(),
        event_time: Some(Timestamp::from_millis(at)),
        received_at: Timestamp::from_millis(at),
        content_type: None,
        body: Default::default(),
    }
}

fn stored(incoming: &Incoming, sequence: u64) -> Row {
    let envelope = Envelope::pack(incoming, &Nonce::from_parts(NOW, 1), NOW);
    let put = Put { envelope: &envelope, sequence: Sequence(sequence) };
    memory::evaluate(&put.write(), None).unwrap().unwrap()
}

fn page(deliveries: u64) -> InboxPage {
    let rows = (8..8 + deliveries).map(|at| stored(&incoming(&format!("D{at}"), at), at)).collect();
    InboxPage::parse(&entity(), Sequence(8), rows).unwrap()
}

fn drain(state: EntityState, deliveries: u64) -> Drain {
    let mut drain = Drain::granted(state, MEMORY);
    drain.read(page(deliveries));
    drain
}

fn source(options: &str) -> Arc<Source> {
    let document = format!(
        "[sources.shop]\nprovider = \"shopify\"\nsecrets = [\"s\"]\nhandler = \"h\"\nhandler_timeout = \"10s\"\n{options}"
    );
    Sources::parse(&document).unwrap().iter().next().unwrap().clone()
}

fn found(options: &str) -> Option<SourceLookup> {
    Some(SourceLookup::Source(source(options)))
}

fn next(drain: &Drain, moment: Moment) -> Step {
    drain.next(&moment, found("").as_ref())
}

fn after(change: impl FnOnce(&mut EntityState)) -> Step {
    let mut state = row(7, 8);
    change(&mut state);
    next(&drain(state, 1), MOMENT)
}

const MEMORY: Memory = Memory { capacity: 3, receipt_pages: PAGES, retention: Duration::from_secs(1000) };

fn ended(settlement: Settlement) -> SettleRequest {
    let token = FencingToken(70);
    let carried = Retries::default();
    SettleRequest { settlement, group: DeliveryGroup::ONE, token, attempts: 1, took: Some(SECOND), at: NOW, carried }
}

fn with(fraction: f64) -> AnswerTiming {
    AnswerTiming { at: NOW, took: SECOND, fraction }
}

fn aside(attempts: u32, error: &str) -> Step {
    Step::Park { attempts, error: error.into(), carried: Retries::default() }
}

fn retry(class: FailureClass, attempts: u32, wait: Duration, error: &str) -> Step {
    let retries = Retries::default().after(class, wait);
    Step::Retry { is_started: true, attempts, retries, one_by_one: None, wait, error: error.into() }
}

fn receipt_of(id: &str, sequence: u64, settlement: Settlement) -> Receipt {
    Receipt {
        sequence: Sequence(sequence),
        identity: Some(incoming(id, 1).identity.hash()),
        settlement,
        token: FencingToken(60),
        attempts: 1,
        settled_at: NOW,
        took: None,
    }
}

fn remembering(receipts: &[(&str, Settlement)], tail: u64) -> EntityState {
    let first = 8 - receipts.len() as u64;
    let receipts = (first..).zip(receipts).map(|(at, (id, settlement))| receipt_of(id, at, *settlement));
    let recent = receipts.fold(Default::default(), |recent: Recent, receipt| recent.with(receipt, SECOND));
    EntityState { recent, ..row(7, tail) }
}

fn identities(receipts: &[Receipt]) -> Vec<u64> {
    receipts.iter().map(|receipt| receipt.sequence.0).collect()
}

/// Returns the sequences of the receipts in the page.
fn spilling(spilling: Option<Spilling>) -> Vec<u64> {
    match spilling {
        None => Vec::new(),
        Some(Spilling::Page(receipts)) => receipts.iter().map(|receipt| receipt.sequence.0).collect(),
        Some(Spilling::Rows(receipts)) => panic!("{} rows", receipts.len()),
    }
}

fn first_receipt(decision: &Decision) -> &Receipt {
    decision.receipts().next().expect("a decision is about a place")
}

fn settle(drain: &mut Drain, settlement: Settlement) -> Decision {
    let decision = drain.decision(ended(settlement), NOW, None);
    let state = EntityState { head: decision.last(), recent: decision.recent.clone(), ..drain.state.clone() };
    drain.settled(state, &decision);
    decision
}

#[test]
fn waiting_delivery_is_started() {
    assert_eq!(after(|_| {}), STARTED);
}

#[test]
fn drain_releases_entity_if_empty_or_blocked_or_on_hold() {
    assert_eq!(next(&Drain::granted(row(7, 7), MEMORY), MOMENT), Step::ReleaseEmpty);
    assert_eq!(after(|state| state.blocked = Some(BlockReason::Attempts)), Step::Release);
    assert_eq!(after(|state| state.hold = on_hold()), Step::Release);
}

#[test]
fn repeated_crashes_before_start_block_the_entity() {
    let vanished = |times| after(|state| state.suspect = times);
    assert_eq!(vanished(VANISHED_BEFORE_START), Step::Block(BlockReason::Vanished));
    assert_eq!(vanished(VANISHED_BEFORE_START - 1), Step::AwaitIsolation { attempts: VANISHED_BEFORE_START - 1 });
}

#[test]
fn valid_yield_request_precedes_waiting_deliveries() {
    let asked = |state: &mut EntityState| state.yield_until = Some(NOW + 3 * SECOND);
    assert_eq!(after(asked), Step::HandOver(3 * SECOND, RequeueReason::Yielding));
    let both = |state: &mut EntityState| {
        asked(state);
        state.retry_at = Some(NOW + 2 * SECOND);
        state.handover = Some(NOW);
    };
    assert_eq!(after(both), Step::HandOver(3 * SECOND, RequeueReason::Yielding));
    assert_eq!(after(|state| state.yield_until = Some(NOW)), STARTED);
    let far_ahead = |state: &mut EntityState| state.yield_until = Some(NOW + 3600 * SECOND);
    assert_eq!(after(far_ahead), STARTED, "written by a clock far ahead");
}

#[test]
fn drain_hands_over_if_wait_exceeds_patience() {
    let waits = |wait: Duration, left: Duration| {
        let state = EntityState { retry_at: Some(NOW + wait), ..row(7, 8) };
        next(&drain(state, 1), Moment { left, ..MOMENT })
    };
    let longer = SECOND + Duration::from_millis(1);
    assert_eq!(waits(SECOND, MOMENT.left), Step::Wait(SECOND));
    assert_eq!(waits(longer, MOMENT.left), Step::HandOver(longer, RequeueReason::Retry));
    assert_eq!(waits(SECOND, MARGIN + SECOND), Step::Wait(SECOND));
    let short = MARGIN + SECOND - Duration::from_millis(1);
    assert_eq!(waits(SECOND, short), Step::HandOver(SECOND, RequeueReason::Retry));
    assert_eq!(waits(Duration::ZERO, MOMENT.left), STARTED);
    let state = EntityState { retry_at: Some(NOW + SECOND), ..row(7, 8) };
    let hurried = Moment { patience: SECOND / 10, ..MOMENT };
    assert_eq!(next(&drain(state, 1), hurried), Step::HandOver(SECOND, RequeueReason::Retry));
}

#[test]
fn drain_hands_over_at_slice_end() {
    assert_eq!(after(|state| state.handover = Some(NOW)), Step::HandOver(Duration::ZERO, RequeueReason::Slice));
    let waits = |state: &mut EntityState| {
        state.handover = Some(NOW);
        state.retry_at = Some(NOW + SECOND);
    };
    assert_eq!(after(waits), Step::HandOver(Duration::ZERO, RequeueReason::Slice));
    let state = EntityState { handover: Some(NOW), ..row(7, 8) };
    let crowded = Moment { pause: 3 * SECOND, ..MOMENT };
    assert_eq!(next(&drain(state, 1), crowded), Step::HandOver(3 * SECOND, RequeueReason::Slice));
}

#[test]
fn drain_with_too_little_function_time_left_hands_over() {
    let reads = |left| next(&Drain::granted(row(7, 8), MEMORY), Moment { left, ..MOMENT });
    let starts = |left| next(&drain(row(7, 8), 1), Moment { left, ..MOMENT });
    let out_of_time = Step::HandOver(HANDOVER_DELAY, RequeueReason::OutOfTime);
    let moment = Duration::from_millis(1);
    assert_eq!(reads(MARGIN), Step::ReadPage);
    assert_eq!(reads(MARGIN - moment), out_of_time);
    assert_eq!(starts(10 * SECOND + MARGIN), STARTED);
    assert_eq!(starts(10 * SECOND + MARGIN - moment), out_of_time);
}

#[test]
fn start_of_suspect_is_isolated_and_recorded() {
    let suspect = || drain(EntityState { suspect: 2, attempts: 1, ..row(7, 8) }, 1);
    let alone = |left| next(&suspect(), Moment { left, is_alone: true, ..MOMENT });
    assert_eq!(next(&suspect(), MOMENT), Step::AwaitIsolation { attempts: 3 });
    let enough = 10 * SECOND + MARK_TIMEOUT + MARGIN;
    assert_eq!(alone(enough), Step::Start { must_record: true, group: DeliveryGroup::ONE });
    let short = enough - Duration::from_millis(1);
    assert_eq!(alone(short), Step::HandOver(HANDOVER_DELAY, RequeueReason::OutOfTime));
}

#[test]
fn process_without_free_threads_starts_no_handler() {
    let spent = Moment { is_spent: true, ..MOMENT };
    assert_eq!(next(&drain(row(7, 8), 1), spent), Step::HandOver(HANDOVER_DELAY, RequeueReason::NoThread));
}

#[test]
fn drain_reads_a_filled_gap_and_settles_a_tombstone() {
    let gap = drain(row(7, 9), 0);
    assert_eq!(next(&gap, MOMENT), Step::AwaitGap);
    let mut filled = gap.clone();
    let mut void = gap;
    filled.filled();
    assert_eq!(next(&filled, MOMENT), Step::ReadPage);
    void.tombstone_written();
    assert_eq!(next(&void, MOMENT), Step::Settle(Settlement::Void));
    let decision = settle(&mut void, Settlement::Void);
    assert_eq!((decision.last(), first_receipt(&decision).identity, decision.pending_since), (Sequence(8), None, None));
    assert_eq!(next(&void, MOMENT), Step::ReadPage);
}

#[test]
fn gap_older_than_half_retention_blocks_entity() {
    let since = |pending_since| Drain::granted(EntityState { pending_since, ..row(7, 8) }, MEMORY);
    let retention = 100 * SECOND;
    let at = |ago| since(Some(Timestamp::from_millis(NOW.as_millis() - ago))).after_gap(NOW, retention);
    assert_eq!(at(50_000), Step::WriteTombstone(Sequence(8)));
    assert_eq!(at(50_001), Step::Block(BlockReason::Expired));
    assert_eq!(since(None).after_gap(NOW, retention), Step::WriteTombstone(Sequence(8)));
}

#[test]
fn delivery_of_a_removed_source_is_parked() {
    let of = |found: Option<SourceLookup>| drain(row(7, 8), 1).next(&MOMENT, found.as_ref());
    assert_eq!(of(None), Step::FindSource);
    assert_eq!(of(Some(SourceLookup::Unknown)), Step::HandOver(UNREADABLE, RequeueReason::UnknownSource));
    assert_eq!(of(Some(SourceLookup::Gone)), aside(0, "the source is no longer in the sources document"));
}

#[test]
fn delivery_without_an_order_is_parked() {
    let unrouted = EntityKey::parse("shop/unrouted").unwrap();
    let incoming = Incoming { entity: unrouted.clone(), ..incoming("D8", 8) };
    let mut drain = Drain::granted(EntityState { entity: unrouted.clone(), ..row(7, 8) }, MEMORY);
    drain.read(InboxPage::parse(&unrouted, Sequence(8), vec![stored(&incoming, 8)]).unwrap());
    assert_eq!(next(&drain, MOMENT), aside(0, "the source's rules find no order in the webhook"));
}

#[test]
fn only_applied_delivery_advances_newest_event_time() {
    let drain = drain(row(7, 9), 2);
    let newest = |settlement| drain.decision(ended(settlement), NOW, None).newest_event_time.of("orders");
    assert_eq!(newest(Settlement::Applied), Some(Timestamp::from_millis(8)));
    for settlement in [Settlement::Parked, Settlement::Repeat] {
        assert_eq!(newest(settlement), None);
    }
}

#[test]
fn pending_since_after_settle_is_never_later_than_next_arrival() {
    let since = |tail, read| drain(row(7, tail), read).decision(ended(Settlement::Applied), NOW, None).pending_since;
    // In turn, the next delivery was read, was not read, and does not exist yet.
    assert_eq!(since(9, 2), Some(Timestamp::from_millis(9)));
    assert_eq!(since(9, 1), Some(Timestamp::from_millis(8)));
    assert_eq!(since(8, 1), Some(NOW));
}

#[test]
fn settle_decision_has_receipt_and_next_start_time() {
    let decision = drain(row(7, 9), 1).decision(ended(Settlement::Applied), NOW, Some(NOW + SECOND));
    let receipt = Receipt { token: FencingToken(70), took: Some(SECOND), ..receipt_of("D8", 8, Settlement::Applied) };
    assert_eq!((first_receipt(&decision), decision.last()), (&receipt, Sequence(8)));
    assert_eq!(decision.recent.keep_until(), NOW + MEMORY.retention);
    assert_eq!(decision.not_before, Some(NOW + SECOND));
}

#[test]
fn drain_hands_over_at_slice_end_only_if_deliveries_wait() {
    let drain = drain(row(7, 9), 1);
    assert!(drain.hands_over(Sequence(8), true));
    assert!(!drain.hands_over(Sequence(8), false));
    assert!(!drain.hands_over(Sequence(9), true));
}

#[test]
fn next_page_is_read_ahead_during_last_delivery() {
    assert_eq!(drain(row(7, 9), 1).ahead(1, None), Some((Sequence(9), Sequence(9))));
    assert_eq!(drain(row(7, 12), 1).ahead(1, None), Some((Sequence(9), Sequence(12))));
    assert_eq!(drain(row(7, 9), 2).ahead(1, None), None);
    assert_eq!(drain(row(7, 8), 1).ahead(1, None), None);
    let mut ahead = drain(row(7, 9), 1);
    let rest = InboxPage::parse(&entity(), Sequence(9), vec![stored(&incoming("D9", 9), 9)]).unwrap();
    ahead.read_ahead(rest);
    settle(&mut ahead, Settlement::Applied);
    assert_eq!(ahead.front().unwrap().unpacked.head().sequence(), Sequence(9));
}

#[test]
fn event_age_is_compared_within_topic_family() {
    let state = |newest| EntityState { newest_event_time: newest, ..row(7, 8) };
    let applied = |family: &str, at| row(7, 8).newest_event_time.applied(family, Timestamp::from_millis(at));
    let age = |newest| {
        let drain = drain(state(newest), 1);
        drain.front().unwrap().unpacked.head().age_beside(&drain.state.newest_event_time)
    };
    assert_eq!(age(applied("orders", 7)), Age::Newer);
    assert_eq!(age(applied("orders", 8)), Age::SameTime);
    assert_eq!(age(applied("orders", 9)), Age::Older);
    assert_eq!(age(applied("refunds", 9)), Age::Newer);
}

/// The row keeps the event times of five topic families, so a sixth family replaces the first.
#[test]
fn event_of_dropped_topic_family_has_unknown_age() {
    let at = Timestamp::from_millis;
    let families = ["orders", "refunds", "returns", "disputes", "fulfillments", "carts"];
    let times =
        (3..).zip(families).fold(EventTimes::default(), |times, (time, family)| times.applied(family, at(time)));
    let waiting = |time| InboxPage::parse(&entity(), Sequence(8), vec![stored(&incoming("D8", time), 8)]).unwrap();
    for (time, age) in [(2, Age::Unknown), (4, Age::Unknown), (5, Age::Newer)] {
        let mut drain = Drain::granted(EntityState { newest_event_time: times.clone(), ..row(7, 8) }, MEMORY);
        drain.read(waiting(time));
        assert_eq!(drain.front().unwrap().unpacked.head().age_beside(&times), age, "{time}");
        assert_eq!(drain.next(&MOMENT, found("stale = 'skip'\n").as_ref()), STARTED, "{time}");
    }
}

#[test]
fn inbox_page_ends_at_the_first_gap() {
    let rows = vec![stored(&incoming("D8", 8), 8), stored(&incoming("DA", 77), 10)];
    let page = InboxPage::parse(&entity(), Sequence(8), rows).unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!(page.behind, Some(Timestamp::from_millis(77)));
}

#[test]
fn inbox_page_ends_before_an_unreadable_row() {
    let newer = |at| stored(&incoming("D", at), at).with(a::VERSION, FORMAT + 1);
    let page = |rows| InboxPage::parse(&entity(), Sequence(8), rows);
    assert_eq!(page(vec![stored(&incoming("D8", 8), 8), newer(9)]).unwrap().items.len(), 1);
    assert!(page(vec![newer(8)]).is_err());
}

proptest! {
    #[test]
    fn drain_starts_nothing_if_blocked_on_hold_waiting_or_out_of_time(
        (waiting, read) in (0_u64..4, 0_u64..4),
        (attempts, suspect, handover) in (0_u32..10, 0_u32..12, any::<bool>()),
        (blocked, holds) in (any::<bool>(), any::<bool>()),
        (retry, yields) in (0_u64..3000, 0_u64..3000),
        left in 0_u64..20_000,
        (is_alone, is_spent) in (any::<bool>(), any::<bool>()),
    ) {
        let state = EntityState {
            attempts,
            suspect,
            handover: handover.then_some(NOW),
            blocked: blocked.then_some(BlockReason::Attempts),
            hold: if holds { on_hold() } else { Hold::default() },
            retry_at: Some(NOW + Duration::from_millis(retry)),
            yield_until: Some(NOW + Duration::from_millis(yields)),
            ..row(7, 7 + waiting)
        };
        let drain = drain(state, read.min(waiting));
        let moment = Moment { left: Duration::from_millis(left), is_alone, is_spent, ..MOMENT };
        let step = next(&drain, moment);
        let is_free = retry == 0 && yields == 0 && !handover && !blocked && !holds && suspect < VANISHED_BEFORE_START;
        match step {
            Step::Start { must_record, group } => {
                prop_assert_eq!((must_record, group), (suspect > 0, DeliveryGroup::ONE));
                prop_assert!(is_free && !is_spent && waiting > 0 && read > 0);
                prop_assert!(suspect == 0 || is_alone);
                prop_assert!(moment.left >= 10 * SECOND + MARGIN);
            }
            Step::ReleaseEmpty => prop_assert_eq!(waiting, 0),
            Step::Release => prop_assert!(blocked || holds),
            Step::Wait(wait) => prop_assert!(wait <= moment.patience && yields == 0 && moment.left >= wait + MARGIN),
            Step::HandOver(..) | Step::Block(_) | Step::AwaitIsolation { .. } | Step::AwaitGap => {}
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

#[test]
fn interrupted_drain_hands_over_unless_fresh_wake_up_was_sent() {
    assert_eq!((EarlyEnd::of(true), EarlyEnd::of(false)), (EarlyEnd::Release, EarlyEnd::HandOver));
}

/// Promise: a paused source's webhooks are kept, without attempts; `show ORDER` says so.
#[test]
fn drain_hands_over_before_delivery_of_paused_source() {
    let paused = SourceLookup::Source(source("paused = true\n"));
    let requeue = Step::HandOver(PAUSED, RequeueReason::Paused);
    assert_eq!(drain(row(7, 9), 2).next(&MOMENT, Some(&paused)), requeue);
    // While its source is paused, a delivery that has used all its attempts is not parked.
    assert_eq!(drain(EntityState { attempts: 9, ..row(7, 9) }, 2).next(&MOMENT, Some(&paused)), requeue);
    let again = remembering(&[("D8", Settlement::Applied)], 9);
    let settled = drain(again, 2).next(&MOMENT, Some(&paused));
    assert_ne!(settled, requeue);
}

#[test]
fn step_outcome_names_settlement_retry_or_block() {
    let held_back = drain(row(7, 9), 2).held_back(SECOND, &source(""), NOW);
    for (step, outcome) in [
        (Step::Settle(Settlement::Repeat), Some("repeat")),
        (Step::Settle(Settlement::Parked), Some("parked")),
        (Step::Apply, Some("applied")),
        (Step::Commit(Vec::new()), Some("applied")),
        (aside(3, ""), Some("parked")),
        (retry(FailureClass::Failed, 1, SECOND, ""), Some("retry")),
        (held_back, None),
        (Step::GiveUp { attempts: 3, retries: Retries::default(), error: String::new() }, Some("blocked")),
        (STARTED, None),
        (Step::ReleaseEmpty, None),
    ] {
        assert_eq!(step.outcome().map(StepOutcome::as_str), outcome, "{step:?}");
    }
}
