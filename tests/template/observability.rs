//! Alarms and dashboard: they watch metrics that are published, in the core stack that they belong to.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use webhook_serializer::telemetry::{Metric, NAMESPACE, Scope};

use crate::{
    core,
    document::{Deployed, Template},
};

/// The messages and fields of the functions' log lines.
const LINES: &str = include_str!("../../shared/src/telemetry/lines.txt");

fn deployed() -> Deployed {
    let core = core().deployed(&[("FrontDoor", "both")]);
    Template::read("templates/observability.yaml").deployed_beside(&[("Email", "a@example.com")], &core.outputs)
}

/// Returns the metric of that name, if functions publish it by default.
fn published(name: &str) -> Option<&Metric> {
    Metric::ALL.iter().find(|metric| metric.name() == name && metric.scope() != Scope::Detailed)
}

#[test]
fn every_alarm_has_published_metric_and_runbook() {
    let deployed = deployed();
    let topic = json!(["Topic"]);
    let namespace = format!("{NAMESPACE}/webhook-serializer");
    let mut pages = BTreeSet::from(["restore.md".to_owned()]);
    for (name, alarm) in deployed.of_type("AWS::CloudWatch::Alarm") {
        assert_eq!((&alarm["AlarmActions"], &alarm["OKActions"]), (&topic, &topic), "{name}");
        let page = alarm["AlarmDescription"].as_str().and_then(|text| text.rsplit_once("docs/runbooks/"));
        assert!(
            pages.insert(page.unwrap_or_else(|| panic!("{name} names no page")).1.to_owned()),
            "{name}: a page of two"
        );
        if alarm["Namespace"] == namespace {
            let metric = published(alarm["MetricName"].as_str().expect("a name"));
            assert!(metric.is_some_and(|metric| metric.scope() == Scope::Overall), "{name}: nobody publishes it");
        }
        let text = alarm.to_string();
        assert_eq!(
            text.matches(NAMESPACE).count(),
            text.matches(&namespace).count(),
            "{name}: another stack's metrics"
        );
    }
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbooks")).expect("there are pages");
    let files: BTreeSet<String> = files.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(pages, files);
}

/// Returns whether the alarm is on after these values, of which the newest is last, by CloudWatch's rules.
fn rings(deployed: &Deployed, alarm: &str, values: &[Option<f64>]) -> bool {
    let text = |property: &str| deployed.at(&format!("{alarm} Properties {property}")).as_str().map(str::to_owned);
    let number = |property: &str| text(property).map(|text| text.parse::<f64>().expect("a number"));
    let periods = number("EvaluationPeriods").expect("it is needed") as usize;
    let needed = number("DatapointsToAlarm").map_or(periods, |needed| needed as usize);
    let threshold = number("Threshold").expect("it is needed");
    let breaches = |value: f64| match text("ComparisonOperator").as_deref() {
        Some("GreaterThanOrEqualToThreshold") => value >= threshold,
        Some("LessThanThreshold") => value < threshold,
        other => panic!("{alarm}: {other:?}"),
    };
    let missing = text("TreatMissingData").as_deref() == Some("breaching");
    let value = |place: usize| values.len().checked_sub(place + 1).and_then(|place| values[place]);
    (0..periods).filter(|place| value(*place).map_or(missing, breaches)).count() >= needed
}

#[test]
fn alarm_fires_exactly_at_the_threshold() {
    let deployed = deployed();
    let rings = |alarm: &str, values: &[Option<f64>]| rings(&deployed, alarm, values);
    let rest = |value: f64, count: usize| vec![Some(value); count];
    let mut tried = BTreeSet::from(["SchedulerSilentAlarm"]);
    for (alarm, rings_at, silent_at) in [
        ("ParkedAlarm", rest(1.0, 1), rest(0.0, 1)),
        ("BlockedAlarm", rest(1.0, 1), rest(0.0, 1)),
        ("DeferredAlarm", rest(1.0, 1), rest(0.0, 1)),
        ("FailedWakeUpsAlarm", rest(1.0, 1), rest(0.0, 1)),
        ("JobsFailedAlarm", rest(1.0, 1), rest(0.0, 1)),
        ("IngestErrorsAlarm", rest(1.0, 1), rest(0.0, 1)),
        ("WorkerErrorsAlarm", rest(1.0, 1), rest(0.0, 1)),
        ("SchedulerErrorsAlarm", rest(1.0, 1), rest(0.0, 1)),
        ("ThrottlesAlarm", rest(1.0, 1), rest(0.0, 1)),
        ("DeadLettersAlarm", rest(1.0, 1), rest(0.0, 1)),
        ("RefusedInARowAlarm", rest(1.0, 1), rest(0.0, 1)),
        ("RefusedAlarm", rest(0.0, 1), rest(1.0, 1)),
        ("UnavailableAlarm", rest(3.0, 1), rest(2.0, 1)),
        ("NotFedAlarm", rest(1.0, 2), vec![Some(1.0), Some(0.0)]),
        ("SourcesNotReadAlarm", rest(1.0, 3), vec![Some(1.0), Some(0.0), Some(1.0)]),
        ("InversionsAlarm", rest(100.0, 1), rest(99.0, 1)),
        ("QueueStuckAlarm", rest(1170.0, 1), rest(1169.0, 1)),
        // The sweep reads an order once an hour. The alarm lasts until the sweep reads the order again.
        ("OldestWaitingAlarm", [rest(900.0, 1), rest(0.0, 59)].concat(), [rest(900.0, 1), rest(899.0, 60)].concat()),
    ] {
        tried.insert(alarm);
        assert!(rings(alarm, &rings_at), "{alarm}");
        assert!(!rings(alarm, &silent_at), "{alarm}");
        assert!(!rings(alarm, &[None]), "{alarm}: nothing was measured");
    }
    assert!(deployed.of_type("AWS::CloudWatch::Alarm").into_keys().eq(tried), "each alarm is tried");
}

/// Returns the states that a new alarm reports to its topic while these values arrive, one a minute, by
/// CloudWatch's rules. An alarm begins in `INSUFFICIENT_DATA` and acts when its state changes.
fn reported(deployed: &Deployed, alarm: &str, values: &[Option<f64>]) -> Vec<&'static str> {
    let at = |property: &str| deployed.at(&format!("{alarm} Properties {property}"));
    assert_eq!(at("Period"), "60", "{alarm}: a value a minute");
    let periods: usize = at("EvaluationPeriods").as_str().expect("a number").parse().expect("a number");
    let (mut state, mut reported) = ("INSUFFICIENT_DATA", Vec::new());
    for end in 1..=values.len() {
        let window = &values[end.saturating_sub(periods)..end];
        let is_known = window.iter().any(Option::is_some);
        let next = match at("TreatMissingData").as_str() {
            Some("ignore") if !is_known => state,
            Some("missing") | None if !is_known => "INSUFFICIENT_DATA",
            _ if rings(deployed, alarm, window) => "ALARM",
            _ => "OK",
        };
        let actions = match next {
            "ALARM" => "AlarmActions",
            "OK" => "OKActions",
            _ => "InsufficientDataActions",
        };
        if next != state && !at(actions).is_null() {
            reported.push(next);
        }
        state = next;
    }
    reported
}

#[test]
fn scheduler_alarm_fires_only_if_running_scheduler_stops() {
    let deployed = deployed();
    let reported = |parts: &[(Option<f64>, usize)]| {
        let values: Vec<_> = parts.iter().flat_map(|(value, minutes)| vec![*value; *minutes]).collect();
        reported(&deployed, "SchedulerSilentAlarm", &values)
    };
    let (runs, silent) = (Some(1.0), None);
    assert_eq!(reported(&[(silent, 30)]), [""; 0], "nothing ran yet");
    assert_eq!(reported(&[(silent, 3), (runs, 30)]), ["OK"]);
    assert_eq!(reported(&[(runs, 30), (silent, 9), (runs, 30)]), ["OK"]);
    let stopped = reported(&[(runs, 30), (silent, 60)]);
    assert!(matches!(stopped[..], ["OK", "ALARM" | "INSUFFICIENT_DATA"]), "rings once: {stopped:?}");
    let mended = reported(&[(runs, 30), (silent, 10), (runs, 1)]);
    assert!(matches!(mended[..], ["OK", _, "OK"]), "ends with the next run: {mended:?}");
}

#[test]
fn bill_counts_every_alarmed_metric() {
    let deployed = deployed();
    let metrics =
        deployed.of_type("AWS::CloudWatch::Alarm").into_values().map(|alarm| match alarm["Metrics"].as_array() {
            Some(metrics) => metrics.iter().filter(|metric| !metric["MetricStat"].is_null()).count(),
            None => 1,
        });
    assert_eq!(metrics.sum::<usize>() as f64, figures::bill::ALARMED_METRICS, "one more for each source");
}

#[test]
fn dashboard_shows_only_published_metrics_and_fields() {
    dashboard(&deployed());
}

/// Checks the dashboard of a deployed stack.
pub fn dashboard(deployed: &Deployed) {
    let body = deployed.text("Dashboard Properties DashboardBody");
    let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("the dashboard is no JSON: {error}"));
    let namespace = format!("{NAMESPACE}/webhook-serializer");
    let mut lines = 0;
    for widget in body["widgets"].as_array().expect("a list") {
        if let Some(query) = widget["properties"]["query"].as_str() {
            let mut texts = query.split('\'').skip(1).step_by(2);
            let group = texts.next().unwrap_or_default();
            assert!(group.starts_with("/aws/lambda/webhook-serializer-"), "{group}");
            for text in texts {
                assert!(LINES.contains(&format!("\"{text}\"")), "no line says what the dashboard asks for: {text}");
            }
            for field in ["LagMs", "HandlerMs", "Refused"].iter().filter(|field| query.contains(**field)) {
                assert!(LINES.contains(&format!("\"{field}\":")), "no line has {field}");
            }
        }
        // A dot stands for the value in the row above.
        let mut above = (String::new(), String::new());
        for row in widget["properties"]["metrics"].as_array().into_iter().flatten() {
            above = match row[0]["expression"].as_str() {
                Some(search) if search.contains("{AWS/") => continue,
                Some(search) => {
                    let ours = search.split_once(&format!("\"{namespace}\",source}} MetricName=\""));
                    let (_, metric) = ours.unwrap_or_else(|| panic!("the dashboard searches {search}"));
                    (namespace.clone(), metric.split('"').next().unwrap_or_default().to_owned())
                }
                None => {
                    let text = |place: usize, above: &str| match row[place].as_str() {
                        Some("." | "...") => above.to_owned(),
                        text => text.unwrap_or_default().to_owned(),
                    };
                    (text(0, &above.0), text(1, &above.1))
                }
            };
            if above.0 == namespace {
                assert!(published(&above.1).is_some(), "nobody publishes the dashboard's {above:?}");
                lines += 1;
            }
        }
    }
    assert_eq!(lines, 9, "lines of the functions' own metrics");
}
