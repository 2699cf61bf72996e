//! Alarms and dashboard: they watch metrics that are published, in the core stack that they belong to.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tests::tree::root;
use webhook_serializer::telemetry::{LogMessage, Metric, NAMESPACE, Scope};

use crate::{
    TEMPLATES, core,
    document::{DeployedTemplate, SamTemplate},
    file,
};

/// The messages and fields of the functions' log lines.
const LINES: &str = include_str!("../../shared/src/telemetry/lines.txt");

fn deployed() -> DeployedTemplate {
    let core = core().deployed(&[("FrontDoor", "both")]);
    SamTemplate::read("templates/observability.yaml").deployed_beside(&[("Email", "a@example.com")], &core.outputs)
}

/// Returns the metric of that name, if functions publish it by default.
fn published(name: &str) -> Option<&Metric> {
    Metric::ALL.iter().find(|metric| metric.name() == name && metric.scope() != Scope::Detailed)
}

/// Promise: every alarm has its page and rings when it should.
#[test]
fn every_alarm_has_published_metric_and_runbook() {
    let deployed = deployed();
    let topic = json!(["Topic"]);
    let namespace = format!("{NAMESPACE}/webhook-serializer");
    let mut pages = BTreeSet::from(["restore.md", "messages.md"].map(str::to_owned));
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
    let files = std::fs::read_dir(root().join("docs/runbooks")).expect("there are pages");
    let files: BTreeSet<String> = files.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(pages, files);
    let operating = file("docs/operating.md");
    for page in pages {
        assert!(
            page == "restore.md" || operating.contains(&format!("](runbooks/{page})")),
            "operating.md lacks {page}"
        );
    }
}

/// Promise: the log lines quoted on alarm pages are the code's.
#[test]
fn runbook_commands_look_for_logged_messages() {
    let pages = std::fs::read_dir(root().join("docs/runbooks")).expect("there are pages");
    let mut looked = 0;
    for page in pages {
        let text = std::fs::read_to_string(page.expect("it can be read").path()).expect("a page");
        for after in text.split("$.message = \"").skip(1) {
            let message = after.split('"').next().unwrap_or_default();
            assert!(LogMessage::parse(message).is_some(), "no line has the message {message:?}");
            looked += 1;
        }
    }
    assert!(looked >= 7, "{looked}");
}

/// The periods that CloudWatch looks at beyond those that an alarm evaluates. It may be more; AWS's
/// examples have two.
const FURTHER: usize = 2;

/// Returns the alarm's state after these values, one a period, of which the newest is last, by
/// CloudWatch's rules: it evaluates the newest values that it finds, however old, and fills up with
/// missing ones only if it finds too few.
fn state(deployed: &DeployedTemplate, alarm: &str, values: &[Option<f64>]) -> &'static str {
    let text = |property: &str| deployed.at(&format!("{alarm} Properties {property}")).as_str().map(str::to_owned);
    let number = |property: &str| text(property).map(|text| text.parse::<f64>().expect("a number"));
    let periods = number("EvaluationPeriods").expect("it is needed") as usize;
    let needed = number("DatapointsToAlarm").map_or(periods, |needed| needed as usize);
    let threshold = number("Threshold").expect("it is needed");
    let breaches = |value: &f64| match text("ComparisonOperator").as_deref() {
        Some("GreaterThanOrEqualToThreshold") => *value >= threshold,
        Some("LessThanThreshold") => *value < threshold,
        other => panic!("{alarm}: {other:?}"),
    };
    let range = &values[values.len().saturating_sub(periods + FURTHER)..];
    let found: Vec<f64> = range.iter().rev().filter_map(|value| *value).take(periods).collect();
    let breaching = found.iter().filter(|value| breaches(value)).count();
    match text("TreatMissingData").as_deref() {
        Some("missing") if found.is_empty() => "INSUFFICIENT_DATA",
        Some("missing") if breaching == found.len() => "ALARM",
        Some("missing" | "notBreaching") if breaching < needed => "OK",
        Some("missing" | "notBreaching") => "ALARM",
        other => panic!("{alarm}: {other:?}"),
    }
}

fn rings(deployed: &DeployedTemplate, alarm: &str, values: &[Option<f64>]) -> bool {
    state(deployed, alarm, values) == "ALARM"
}

/// Returns the values at which an alarm rings and at which it is silent, from the comment in front of it, such as
/// `# rings at 900 0x59, silent at 900 899x60`. A dash is a missing value, and `0x59` 59 periods of zero. Without a
/// comment, a single 1 makes the alarm ring.
fn tried_values(template: &str, alarm: &str) -> [Vec<Option<f64>>; 2] {
    let (before, _) = template.split_once(&format!("\n  {alarm}:\n")).expect("the alarm");
    let comment = before.rsplit('\n').next().and_then(|line| line.strip_prefix("  # rings at "));
    let (rings, silent) = comment.unwrap_or("1, silent at 0").split_once(", silent at ").expect("both");
    [rings, silent].map(|values| {
        let periods = values.split(' ').flat_map(|value| {
            let (value, times) = value.split_once('x').unwrap_or((value, "1"));
            vec![(value != "-").then(|| value.parse().expect("a number")); times.parse().expect("a number")]
        });
        periods.collect()
    })
}

/// Promise: an alarm rings if all webhooks of a source are refused.
#[test]
fn alarm_fires_exactly_at_the_threshold() {
    let deployed = deployed();
    let template = file("templates/observability.yaml");
    for alarm in deployed.of_type("AWS::CloudWatch::Alarm").into_keys().filter(|alarm| *alarm != "SchedulerSilentAlarm")
    {
        let [rings_at, silent_at] = tried_values(&template, alarm);
        assert!(rings(&deployed, alarm, &rings_at), "{alarm}");
        assert!(!rings(&deployed, alarm, &silent_at), "{alarm}");
        assert!(!rings(&deployed, alarm, &[None]), "{alarm}: nothing was measured");
    }
    let said = deployed.text("SourcesNotReadAlarm Properties AlarmDescription").to_owned();
    for text in [said, file("docs/runbooks/sources-not-read.md")] {
        assert!(text.to_lowercase().contains("in three periods of five minutes"), "they may lie apart: {text}");
    }
}

/// Returns the states that a new alarm reports to its topic while these values arrive, one a period. An
/// alarm begins in `INSUFFICIENT_DATA` and acts when its state changes.
fn reported(deployed: &DeployedTemplate, alarm: &str, parts: &[(Option<f64>, usize)]) -> Vec<&'static str> {
    let values: Vec<_> = parts.iter().flat_map(|(value, periods)| vec![*value; *periods]).collect();
    let mut before = "INSUFFICIENT_DATA";
    let mut reported = Vec::new();
    for end in 1..=values.len() {
        let next = state(deployed, alarm, &values[..end]);
        let actions = match next {
            "ALARM" => "AlarmActions",
            "OK" => "OKActions",
            _ => "InsufficientDataActions",
        };
        if next != before && !deployed.at(&format!("{alarm} Properties {actions}")).is_null() {
            reported.push(next);
        }
        before = next;
    }
    reported
}

#[test]
fn scheduler_alarm_fires_only_if_running_scheduler_stops() {
    let deployed = deployed();
    assert_eq!(deployed.at("SchedulerSilentAlarm Properties Period"), "60", "a value a minute");
    let reported = |parts: &[(Option<f64>, usize)]| reported(&deployed, "SchedulerSilentAlarm", parts);
    let runs = Some(1.0);
    let silent = None;
    assert_eq!(reported(&[(silent, 30)]), [""; 0], "nothing ran yet");
    assert_eq!(reported(&[(silent, 3), (runs, 30)]), ["OK"]);
    assert_eq!(reported(&[(runs, 30), (silent, 10), (runs, 30)]), ["OK"], "ten minutes are not enough");
    let stopped = reported(&[(runs, 30), (silent, 60)]);
    assert!(matches!(stopped[..], ["OK", "ALARM" | "INSUFFICIENT_DATA"]), "rings once: {stopped:?}");
    let mended = reported(&[(runs, 30), (silent, 10 + FURTHER), (runs, 1)]);
    assert!(matches!(mended[..], ["OK", _, "OK"]), "ends with the next run: {mended:?}");
    let said = deployed.text("SchedulerSilentAlarm Properties AlarmDescription").to_owned();
    for text in [said, file("docs/runbooks/scheduler-silent.md")] {
        assert!(text.contains("for more than ten minutes"), "{text}");
    }
}

#[test]
fn alarm_rings_once_for_repeats_while_it_is_on() {
    let deployed = deployed();
    let parked = Some(1.0);
    let none = None;
    let reported = |parts: &[(Option<f64>, usize)]| reported(&deployed, "ParkedAlarm", parts);
    assert_eq!(reported(&[(none, 1), (parked, 1), (none, FURTHER), (parked, 1), (none, 9)]), ["OK", "ALARM", "OK"]);
    let later = [(none, 1), (parked, 1), (none, 1 + FURTHER), (parked, 1)];
    assert_eq!(reported(&later), ["OK", "ALARM", "OK", "ALARM"]);
    let page = file("docs/operating.md");
    assert!(page.contains("What happens while an alarm is on sends no mail"), "the page says so");
}

#[test]
fn new_alarms_report_ok_once() {
    let deployed = deployed();
    let alarms = deployed.of_type("AWS::CloudWatch::Alarm");
    for alarm in alarms.keys() {
        let counted = if *alarm == "SchedulerSilentAlarm" { Some(1.0) } else { None };
        assert_eq!(reported(&deployed, alarm, &[(counted, 90)]), ["OK"], "{alarm}");
    }
    assert!(file("docs/deploying.md").contains("each alarm reports `OK` once"), "the page says so");
}

/// CloudFormation may read another stack's outputs only for resources that change.
///
/// Promise: alarms, dashboard and domain follow the core when they are deployed again.
#[test]
fn every_reader_of_an_output_reads_deployed() {
    for path in TEMPLATES {
        let template = SamTemplate::read(path);
        let mut readers = 0;
        for (name, resource) in template.0["Resources"].as_object().expect("a mapping") {
            if resource.to_string().contains("Fn::GetStackOutput") {
                readers += 1;
                let reads = resource["Properties"].to_string().contains(r#"{"Ref":"Deployed"}"#);
                assert!(reads, "{path}: {name} may keep an old output");
            }
        }
        assert_eq!(readers > 0, template.defaults().contains_key("Core"), "{path} names a core, or reads none");
        let outputs = template.0["Outputs"].to_string();
        assert!(!outputs.contains("Fn::GetStackOutput"), "{path}: an output is no resource");
    }
    for (path, how) in [
        ("docs/deploying.md", "sam deploy --config-env observability --parameter-overrides Deployed=$(date +%s)"),
        ("docs/deploying.md", "sam deploy --config-env domain --parameter-overrides Deployed=$(date +%s)"),
        (
            "docs/runbooks/restore.md",
            "sam deploy --config-env observability --parameter-overrides Deployed=$(date +%s)",
        ),
        ("docs/without-rust.md", "Core=webhooks Deployed=$(date +%s)"),
        (".ci/on-aws", "\"Deployed=$(date +%s)\""),
        ("templates/terraform/main.tf", "Deployed = sha256(jsonencode(aws_cloudformation_stack.webhooks.outputs))"),
    ] {
        assert!(file(path).contains(how), "{path} does not give {how}");
    }
}

#[test]
fn bill_counts_every_alarmed_metric() {
    let deployed = deployed();
    let metrics =
        deployed.of_type("AWS::CloudWatch::Alarm").into_values().map(|alarm| match alarm["Metrics"].as_array() {
            Some(metrics) => metrics.iter().filter(|metric| !metric["MetricStat"].is_null()).count(),
            None => 1,
        });
    assert_eq!(metrics.sum::<usize>() as f64, figures::bill::alarmed_metrics(), "one more for each source");
}

#[test]
fn dashboard_shows_only_published_metrics_and_fields() {
    dashboard(&deployed());
}

/// Checks the dashboard of a deployed stack.
pub fn dashboard(deployed: &DeployedTemplate) {
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
