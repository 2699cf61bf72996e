//! Tests of how the functions' log and `tracing` render every event.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tracing::Level;

use super::*;
use crate::{
    handlers::sample,
    protocol::{
        delivery::{Delivery, Envelope, InboxItem, Incoming},
        entity::{FencingToken, Sequence},
        keys::delivery_row,
        receipt::Settlement,
        state::BlockReason,
        tick::TickOutcome,
    },
    time::{Clock, Env, Nonce, SeededRandom, Timestamp},
};

const NOW: Timestamp = Timestamp::from_secs(1_767_225_600);

struct FrozenClock;

impl Clock for FrozenClock {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[derive(Clone, Default)]
struct TestClock(Arc<std::sync::atomic::AtomicU64>);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn incoming() -> Incoming {
    Incoming { received_at: Timestamp::from_millis(NOW.as_millis() - 42), ..sample::incoming("7\"7") }
}

fn delivery() -> Delivery {
    let incoming = incoming();
    let envelope = Envelope::pack(&incoming, &Nonce::from_parts(NOW, 1), NOW);
    let key = delivery_row(&incoming.entity, Sequence(9)).to_row();
    let row = key.into_iter().fold(envelope.row().clone(), |row, (name, value)| row.with(name, value));
    let Ok(InboxItem::Delivery(unpacked)) = InboxItem::parse(&incoming.entity, &row) else { panic!("a delivery") };
    unpacked.complete(&[]).unwrap()
}

fn observe_all(observer: &dyn Observer) {
    let incoming = &incoming();
    let delivery = &delivery();
    let entity = &incoming.entity;
    let sequence = Sequence(9);
    let token = FencingToken(3);
    let source = &incoming.identity.source;
    let second = Duration::from_secs(1);
    let settled = |settlement, delivery, took| Event::Settled { entity, sequence, settlement, delivery, took };
    let ended = |ending, took| Event::JobEnded { job: "report", tick: NOW, ending, took };
    let swept = Swept { seen: 5, woken: 1, lagging: true, oldest: 7 * second, ..Swept::default() };
    for event in [
        Event::Accepted { incoming, sequence, is_wake_up_lost: false },
        Event::Accepted { incoming, sequence, is_wake_up_lost: true },
        Event::Deferred {
            incoming,
            reason: "workers filled 3 claimed sequences with tombstones before the delivery was written",
        },
        Event::TakenUp { incoming, sequence, after: second, is_wake_up_lost: false },
        Event::TakenUp { incoming, sequence, after: second, is_wake_up_lost: true },
        Event::Ignored { incoming, filter: None },
        Event::Ignored { incoming, filter: Some("/source_name") },
        Event::Refused {
            source: Some(source),
            refusal: IngestRefusal::NotVerified,
            reason: "no secret fits",
            limit: Some(2),
        },
        Event::Refused {
            source: Some(source),
            refusal: IngestRefusal::NotPosted,
            reason: "webhooks are posted",
            limit: None,
        },
        Event::Refused {
            source: None,
            refusal: IngestRefusal::UnknownSource,
            reason: "there is none: shp",
            limit: None,
        },
        Event::Refused {
            source: None,
            refusal: IngestRefusal::UnknownSource,
            reason: "there is none: spam",
            limit: None,
        },
        Event::Refused {
            source: None,
            refusal: IngestRefusal::WrongEvent,
            reason: "it is no HTTP request",
            limit: None,
        },
        Event::Started { delivery, token },
        Event::Inversion { delivery },
        settled(Settlement::Applied, Some(delivery), Some(second)),
        Event::Started { delivery, token },
        settled(Settlement::Repeat, Some(delivery), None),
        settled(Settlement::Parked, Some(delivery), Some(second)),
        settled(Settlement::Void, None, None),
        Event::Failed { delivery, retry_in: second, error: "secret" },
        Event::Blocked { entity, reason: BlockReason::Attempts, delivery: Some(delivery) },
        Event::Blocked { entity, reason: BlockReason::Expired, delivery: None },
        Event::Waited { entity, waited: second, polls: 4 },
        Event::Requeued { entity, delay: second, reason: RequeueReason::Held },
        Event::Requeued { entity, delay: second, reason: RequeueReason::Drained },
        Event::TakenOver { entity, token },
        Event::Lost { entity, token },
        Event::LeaseGranted { entity, token, waited: second, polls: 2 },
        Event::LeaseGranted { entity, token, waited: second, polls: 0 },
        Event::LeaseEnded { entity, token, held: second },
        Event::LeaseDropped { entity, token },
        Event::LeaseInDoubt { entity, token },
        Event::WakeUpFailed { entity },
        Event::BreakerOpened { source, wait: second },
        Event::BreakerClosed { source },
        Event::DestinationUnavailable { source, is_hung: false, error: "secret" },
        Event::DestinationUnavailable { source, is_hung: true, error: "secret" },
        Event::DestinationAvailable { source, after: second },
        Event::NoWakeUp { message_id: "m" },
        Event::UnreadableDelivery { message_id: "m", reason: "the delivery is damaged at byte 7" },
        Event::Swept { swept: &swept },
        ended(TickOutcome::Done, Some(second)),
        ended(TickOutcome::Failed, Some(second)),
        ended(TickOutcome::Crashed, None),
        Event::ThreadsLost { lost: 2, is_end: false },
        Event::ThreadsLost { lost: 2, is_end: true },
        Event::SourcesChanged { count: 3 },
        Event::SourcesKept { reason: "gone", is_news: true },
        Event::SourcesKept { reason: "gone", is_news: false },
    ] {
        observer.observe(&event);
    }
}

fn function_log(detailed: bool) -> String {
    let functions = Sink::default();
    let env = Env::new(FrozenClock, SeededRandom::new(1));
    let log = JsonLog::to(functions.clone(), log_level(Some("DEBUG")), env).detailed(detailed);
    log.begin("r");
    observe_all(&log);
    log.end();
    functions.text()
}

fn all_lines() -> String {
    let functions = function_log(true);
    let program = Sink::default();
    let writer = program.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::DEBUG)
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || observe_all(&TracingLog));
    format!("{functions}\n{}", program.text())
}

/// Filters and dashboards depend on the text of these lines.
#[test]
fn log_lines_of_all_events_match_the_snapshot() {
    let logged = all_lines();
    let expected = include_str!("lines.txt");
    for (number, (logged, expected)) in logged.lines().zip(expected.lines()).enumerate() {
        assert_eq!(logged, expected, "line {}", number + 1);
    }
    assert_eq!(logged.lines().count(), expected.lines().count());
}

/// Each source after the first adds one metric. The metric `Deferred` exists only while the store is down.
///
/// Promise: as many metrics as the page says, one more per further source.
#[test]
fn metrics_of_alarms_are_counted_by_default() {
    let mut counted = std::collections::BTreeSet::new();
    for line in function_log(false).lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        for directive in line["_aws"]["CloudWatchMetrics"].as_array().into_iter().flatten() {
            let dimensions = directive["Dimensions"].to_string();
            for metric in directive["Metrics"].as_array().unwrap() {
                counted.insert((metric["Name"].as_str().unwrap().to_owned(), dimensions.clone()));
            }
        }
    }
    let by_default = Metric::ALL.iter().filter_map(|metric| match metric.scope() {
        Scope::Overall => Some((metric.name().to_owned(), "[[]]".to_owned())),
        Scope::BySource => Some((metric.name().to_owned(), r#"[["source"]]"#.to_owned())),
        Scope::Detailed => None,
    });
    assert_eq!(counted, by_default.collect());
    let by_source = |metric: &&Metric| metric.scope() == Scope::BySource;
    assert_eq!(Metric::ALL.iter().find(by_source), Some(&Metric::Accepted), "the only one that grows with sources");
}

#[test]
fn further_refusals_are_summed_over_ten_seconds() {
    let sink = Sink::default();
    let clock = TestClock::default();
    let log = JsonLog::to(sink.clone(), log_level(None), Env::new(clock.clone(), SeededRandom::new(1)));
    let source = &incoming().identity.source;
    for _ in 0..1000 {
        log.begin("flood");
        let reason = "no secret fits";
        log.observe(&Event::Refused { source: Some(source), refusal: IngestRefusal::NotVerified, reason, limit: None });
        log.end();
    }
    assert_eq!(sink.text().lines().count(), 1, "{}", sink.text());
    clock.0.fetch_add(11, std::sync::atomic::Ordering::Relaxed);
    log.begin("later");
    let logged = sink.text();
    let lines: Vec<serde_json::Value> = logged.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts: Vec<_> = lines.iter().map(|line| (&line["Refused"], &line["Accepted"], &line["source"])).collect();
    let shop = &serde_json::json!("shop");
    assert_eq!(counts, [(&1.into(), &0.into(), shop), (&999.into(), &0.into(), shop)]);
    assert_eq!(lines[1].get("request"), None, "they are of many requests");
}

/// CloudWatch accepts one value of a metric in a line, and JSON one value of a key.
#[test]
fn lag_is_logged_for_each_delivery_of_group() {
    let incoming = incoming();
    let entity = &incoming.entity;
    let token = FencingToken(3);
    let sink = Sink::default();
    let log = JsonLog::to(sink.clone(), log_level(None), Env::new(FrozenClock, SeededRandom::new(1)));
    let of = |place| Delivery::detached(incoming.clone(), Sequence(place));
    let group: Vec<_> = (9..12).map(of).collect();
    let started = |delivery| log.observe(&Event::Started { delivery, token });
    group.iter().for_each(started);
    for delivery in &group {
        let sequence = delivery.sequence();
        let settlement = Settlement::Applied;
        log.observe(&Event::Settled { entity, sequence, settlement, delivery: Some(delivery), took: None });
    }
    let logged = sink.text();
    assert_eq!(
        logged.lines().map(|line| line.matches("\"LagMs\":42").count()).collect::<Vec<_>>(),
        [1, 1, 1],
        "{logged}"
    );

    // A rewound delivery has no lag, because it has not waited since its arrival.
    let mut again = of(12);
    again.run_before = Some(token);
    started(&again);
    let sequence = again.sequence();
    let settlement = Settlement::Applied;
    log.observe(&Event::Settled { entity, sequence, settlement, delivery: Some(&again), took: None });
    assert!(!sink.text().lines().last().expect("a line").contains("LagMs"), "{}", sink.text());
}
