//! The testing kit finds planted mistakes, passes correct handlers, and is deterministic.

use std::time::Duration;

use webhook_serializer::{
    Age, Change, Context, Deliveries, Delivery, Handler, HandlerError, Key, Outcome, Row, Write,
    testing::{Event, ExternalSystem, Finding, Scenario, Verdict},
};

use crate::examples::order_totals::Totals;

const ORDER: &str = "shopify/order/1";
const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandlerBehaviour {
    AddsAgain,
    AddsInAGroup,
    SetsUnfenced,
    TakesTheLatestArrival,
    Panics,
    Blocks,
    Fails,
    Rejects,
    TriesUnderAnOldToken,
    HasNeverRoom,
    AsksForAnotherDay,
    Commits,
    CommitsWhatItRead,
    AddsOnce,
    SetsFenced,
    AsksTheAge,
    Waits,
    HasRoomTheNextDay,
    IsDoneTheNextDay,
}

struct Planted(ExternalSystem, HandlerBehaviour);

impl Handler for Planted {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let Self(external, does) = self;
        let order = delivery.entity().as_str();
        let id = delivery.delivery_id().as_str();
        let token = context.token();
        match does {
            HandlerBehaviour::AddsAgain | HandlerBehaviour::AddsInAGroup => external.add("stock", -1).await,
            HandlerBehaviour::SetsUnfenced => external.set(order, delivery.topic()).await,
            HandlerBehaviour::TakesTheLatestArrival => external.set_fenced(order, token, delivery.topic()).await?,
            HandlerBehaviour::Panics if id == "1" => panic!("planted"),
            HandlerBehaviour::Blocks if id == "1" => std::thread::sleep(Duration::from_millis(1500)),
            HandlerBehaviour::Fails if id == "1" => return Ok(Outcome::retry("planted")),
            HandlerBehaviour::Rejects if id == "1" => return Ok(Outcome::Reject("planted".into())),
            HandlerBehaviour::Panics
            | HandlerBehaviour::Blocks
            | HandlerBehaviour::Fails
            | HandlerBehaviour::Rejects => {}
            HandlerBehaviour::HasNeverRoom if id == "1" => return Ok(Outcome::not_now("planted")),
            HandlerBehaviour::AsksForAnotherDay if id == "1" => return Ok(Outcome::retry_after(DAY, "planted")),
            HandlerBehaviour::HasRoomTheNextDay if external.add_once("room", id, 1).await => {
                return Ok(Outcome::NotNow { after: Some(DAY), error: "planted".into() });
            }
            HandlerBehaviour::IsDoneTheNextDay if external.add_once("done", id, 1).await => {
                return Ok(Outcome::retry_after(DAY, "planted"));
            }
            HandlerBehaviour::HasNeverRoom | HandlerBehaviour::AsksForAnotherDay => {}
            HandlerBehaviour::HasRoomTheNextDay | HandlerBehaviour::IsDoneTheNextDay => {}
            HandlerBehaviour::TriesUnderAnOldToken => {
                while external.set_fenced(order, token, delivery.topic()).await.is_err() {
                    context.env().sleep(Duration::from_secs(1)).await;
                }
            }
            HandlerBehaviour::Commits => {
                let row = Key::named("counted", "order", order);
                return Ok(Outcome::commit([Write::update(row, [Change::add("deliveries", 1)])]));
            }
            HandlerBehaviour::CommitsWhatItRead => {
                let row = Key::named("counted", "order", order);
                let before = external.row(&row).await.and_then(|row| row.number("deliveries")).unwrap_or(0);
                return Ok(Outcome::commit([Write::put(row, Row::new().with("deliveries", before + 1))]));
            }
            HandlerBehaviour::AddsOnce => drop(external.add_once("stock", id, -1).await),
            HandlerBehaviour::SetsFenced => external.set_fenced(&format!("{order}/{id}"), token, true).await?,
            HandlerBehaviour::AsksTheAge if delivery.age() == Age::Older => {}
            HandlerBehaviour::AsksTheAge => external.set_fenced(order, token, delivery.topic()).await?,
            HandlerBehaviour::Waits => context.env().sleep(Duration::from_secs(5)).await,
        }
        Ok(Outcome::Done)
    }
}

fn scenario() -> Scenario {
    let events = ["orders/create", "orders/paid", "orders/updated"].map(|topic| Event::new(topic, "{}"));
    Scenario::new(ORDER).deliver(events)
}

fn judged(scenario: Scenario, does: HandlerBehaviour) -> Verdict {
    scenario.run(|external| Planted(external.clone(), does))
}

fn disturbed() -> Scenario {
    scenario().twice(0).crash_after(1).stale_token(1).out_of_order()
}

/// Promise: the kit reports every planted mistake, and passes correct handlers, reproducibly.
#[test]
fn test_kit_reports_each_planted_handler_mistake() {
    let found = |does: HandlerBehaviour| judged(disturbed(), does).findings;
    assert!(
        matches!(&found(HandlerBehaviour::AddsAgain)[..], [Finding::AppliedTwice { at, differs }, Finding::NotFenced { .. }]
            if at == "delivery 1 (orders/paid)" && differs == "stock is -4, but should be -3"),
        "{:?}",
        found(HandlerBehaviour::AddsAgain)
    );
    let unfenced = found(HandlerBehaviour::SetsUnfenced);
    assert!(matches!(&unfenced[..], [Finding::NotFenced { .. }, Finding::DependsOnOrder { .. }]), "{unfenced:?}");
    let latest = found(HandlerBehaviour::TakesTheLatestArrival);
    assert!(matches!(&latest[..], [Finding::DependsOnOrder { arrived, .. }] if arrived.len() == 3), "{latest:?}");
    assert_eq!(found(HandlerBehaviour::Panics), [Finding::Panics { at: "delivery 1 (orders/paid)".into() }]);
    assert_eq!(found(HandlerBehaviour::Blocks), [Finding::Blocks { at: "delivery 1 (orders/paid)".into() }]);
    let fails = Finding::NotApplied { at: "delivery 1 (orders/paid)".into(), error: "planted".into() };
    for does in [
        HandlerBehaviour::Fails,
        HandlerBehaviour::Rejects,
        HandlerBehaviour::HasNeverRoom,
        HandlerBehaviour::AsksForAnotherDay,
    ] {
        assert_eq!(found(does), std::slice::from_ref(&fails), "{does:?}");
    }
    let late = judged(scenario().stale_token(1), HandlerBehaviour::TriesUnderAnOldToken).to_string();
    assert!(late.contains("never applies delivery 1 (orders/paid): the handler never ends"), "{late}");
    let told = judged(disturbed(), HandlerBehaviour::SetsUnfenced).to_string();
    assert!(told.starts_with("with seed 0:\n- a worker that froze at delivery 1 (orders/paid) and"), "{told}");
}

#[test]
fn test_kit_passes_correct_handlers() {
    for does in [
        HandlerBehaviour::Commits,
        HandlerBehaviour::CommitsWhatItRead,
        HandlerBehaviour::AddsOnce,
        HandlerBehaviour::SetsFenced,
        HandlerBehaviour::AsksTheAge,
        HandlerBehaviour::Waits,
        HandlerBehaviour::HasRoomTheNextDay,
        HandlerBehaviour::IsDoneTheNextDay,
    ] {
        for seed in 0..5 {
            let verdict = judged(disturbed().seed(seed), does);
            assert!(verdict.is_right(), "{does:?}: {verdict}");
        }
    }
}

#[test]
fn each_injected_fault_reveals_one_handler_mistake() {
    for (does, mishap) in [
        (HandlerBehaviour::AddsAgain, scenario().crash_after(2)),
        (HandlerBehaviour::SetsUnfenced, scenario().stale_token(0)),
        (HandlerBehaviour::TakesTheLatestArrival, scenario().out_of_order()),
    ] {
        assert!(judged(scenario().twice(0), does).is_right(), "{does:?}");
        assert_eq!(judged(mishap, does).findings.len(), 1, "{does:?}");
    }
}

#[test]
fn same_seed_gives_the_same_test_kit_verdict() {
    for seed in 0..10 {
        let once = || judged(disturbed().seed(seed), HandlerBehaviour::TakesTheLatestArrival);
        assert_eq!(once(), once());
    }
}

/// The default `handle_all` fails the group, so each delivery then runs alone.
#[test]
fn test_kit_delivers_groups_as_configured() {
    let verdict = judged(scenario().up_to(3).crash_after(1), HandlerBehaviour::AddsInAGroup);
    assert!(matches!(&verdict.findings[..], [Finding::AppliedTwice { .. }]), "{verdict}");
}

/// A handler that reads its row, adds the number of deliveries, and replaces the row.
struct Counter(ExternalSystem);

impl Counter {
    async fn count(&self, deliveries: &[&Delivery]) -> Outcome {
        let row = Key::named("counted", "order", deliveries[0].entity().as_str());
        let before = self.0.row(&row).await.and_then(|row| row.number("deliveries")).unwrap_or(0);
        Outcome::commit([Write::put(row, Row::new().with("deliveries", before + deliveries.len() as u64))])
    }
}

impl Handler for Counter {
    async fn handle(&self, delivery: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
        Ok(self.count(&[delivery]).await)
    }

    async fn handle_all(&self, deliveries: Deliveries, _: &Context) -> Result<Outcome, HandlerError> {
        Ok(self.count(&deliveries.iter().collect::<Vec<_>>()).await)
    }
}

#[test]
fn test_kit_passes_handler_that_commits_groups() {
    for up_to in [1, 3] {
        disturbed().up_to(up_to).run(|external| Counter(external.clone())).assert_right();
    }
}

#[test]
fn test_kit_passes_order_totals_example() {
    let event = |topic: &str, total: &str| Event::new(topic, format!(r#"{{"total_price":"{total}"}}"#));
    let events = [event("orders/create", "48.20"), event("orders/paid", "48.20"), event("orders/updated", "40.00")];
    for seed in 0..5 {
        let scenario =
            Scenario::new(ORDER).deliver(events.clone()).twice(0).crash_after(1).stale_token(2).out_of_order();
        scenario.seed(seed).run(|_| Totals("totals".into())).assert_right();
    }
}
