//! Alarms: each by what it has to ring at, and what it has to be silent at.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};
use serializer::cost::ASSUMPTIONS;
use webhook_serializer::telemetry::{Metric, NAMESPACE};

use super::{Case, Objections};

/// What has to hold of one alarm.
struct Watch {
    alarm: &'static str,
    /// Namespace, name and statistic. Of our own metrics, those that are over everything.
    metric: (String, &'static str, &'static str),
    dimension: Option<(&'static str, &'static str)>,
    /// Seconds that one value is of.
    period: u32,
    /// Values, the newest last: it rings. Behind them nothing was measured.
    rings_at: Vec<Option<f64>>,
    /// As close as this it does not.
    silent_at: Vec<Option<f64>>,
    /// Whether it rings where nothing was ever measured.
    rings_at_nothing: bool,
}

/// One value at which it rings, and the greatest at which it does not.
fn at_least(metric: Metric, alarm: &'static str, least: f64) -> Watch {
    Watch {
        alarm,
        metric: (format!("{NAMESPACE}/${{AWS::StackName}}"), metric.name(), "Sum"),
        dimension: None,
        period: 300,
        rings_at: vec![Some(least)],
        silent_at: vec![Some(least - 1.0)],
        rings_at_nothing: false,
    }
}

/// A function's own.
fn of_function(alarm: &'static str, metric: &'static str, function: &'static str) -> Watch {
    Watch {
        metric: ("AWS/Lambda".into(), metric, "Sum"),
        dimension: Some(("FunctionName", function)),
        ..at_least(Metric::Parked, alarm, 1.0)
    }
}

fn watches(case: &Case) -> Vec<Watch> {
    let number = |parameter: &str| case.parameter(parameter).parse::<f64>().expect("a number");
    let unavailable = match case.is_http_api() {
        true => Watch {
            metric: ("AWS/ApiGateway".into(), "5xx", "Sum"),
            dimension: Some(("ApiId", "IngestApi")),
            ..at_least(Metric::Parked, "UnavailableAlarm", 3.0)
        },
        false => Watch {
            rings_at: vec![Some(3.0)],
            silent_at: vec![Some(2.0)],
            ..of_function("UnavailableAlarm", "Url5xxCount", "Ingest")
        },
    };
    let oldest = number("OldestWaitingAlarmSeconds");
    // The sweep comes by once an hour: rung once, it rings until it was there again.
    let then_an_hour = |value: f64| [Some(value)].into_iter().chain(vec![Some(0.0); 59]).collect::<Vec<_>>();
    vec![
        at_least(Metric::Parked, "ParkedAlarm", 1.0),
        at_least(Metric::Blocked, "BlockedAlarm", 1.0),
        Watch {
            metric: (format!("{NAMESPACE}/${{AWS::StackName}}"), Metric::OldestWaitingSeconds.name(), "Maximum"),
            period: 60,
            rings_at: then_an_hour(oldest),
            silent_at: [vec![Some(oldest)], then_an_hour(oldest - 1.0)].concat(),
            ..at_least(Metric::Parked, "OldestWaitingAlarm", oldest)
        },
        at_least(Metric::FailedWakeUps, "FailedWakeUpsAlarm", 1.0),
        Watch {
            rings_at: vec![Some(1.0); 3],
            silent_at: vec![Some(1.0), Some(0.0), Some(1.0)],
            ..at_least(Metric::SourcesNotRead, "SourcesNotReadAlarm", 1.0)
        },
        Watch { period: 3600, ..at_least(Metric::Inversions, "InversionsAlarm", number("InversionsAlarmCount")) },
        unavailable,
        of_function("IngestErrorsAlarm", "Errors", "Ingest"),
        of_function("WorkerErrorsAlarm", "Errors", "Worker"),
        of_function("SchedulerErrorsAlarm", "Errors", "Scheduler"),
        at_least(Metric::JobsFailed, "JobsFailedAlarm", 1.0),
        Watch {
            rings_at: vec![Some(1.0), Some(0.0)],
            silent_at: vec![Some(0.0), Some(1.0)],
            rings_at_nothing: true,
            ..of_function("SchedulerSilentAlarm", "Invocations", "Scheduler")
        },
        Watch {
            metric: ("AWS/SQS".into(), "ApproximateNumberOfMessagesVisible", "Maximum"),
            dimension: Some(("QueueName", "DeadLetters.QueueName")),
            ..at_least(Metric::Parked, "DeadLettersAlarm", 1.0)
        },
        // Looks at several: below.
        at_least(Metric::Parked, THROTTLES, 1.0),
    ]
}

const THROTTLES: &str = "ThrottlesAlarm";

pub fn check(case: &Case, objections: &mut Objections) {
    let alarms = case.deployed.of_type("AWS::CloudWatch::Alarm");
    let watches = watches(case);
    let wanted: BTreeSet<_> = watches.iter().map(|watch| watch.alarm).collect();
    objections
        .unless(alarms.keys().copied().eq(wanted.iter().copied()), || format!("the alarms are {:?}", alarms.keys()));
    for watch in &watches {
        let Some(alarm) = alarms.get(watch.alarm) else { continue };
        looks_at(watch, alarm, objections);
        let name = watch.alarm;
        for (values, rings) in
            [(&watch.rings_at, true), (&watch.silent_at, false), (&vec![None], watch.rings_at_nothing)]
        {
            let found = rings_at(alarm, values);
            objections.unless(found == Some(rings), || format!("{name} behind {values:?}: {found:?}, not {rings}"));
        }
        let topic = Some(case.parameter("AlarmTopicArn")).filter(|topic| !topic.is_empty()).map(|topic| json!([topic]));
        for actions in ["AlarmActions", "OKActions"] {
            objections.unless_at(&case.deployed, &format!("{name} Properties {actions}"), topic.clone());
        }
    }
    bill(&alarms.values().copied().collect::<Vec<_>>(), objections);
    pages(case, objections);
}

fn looks_at(watch: &Watch, alarm: &Value, objections: &mut Objections) {
    let name = watch.alarm;
    if name == THROTTLES {
        let of = |id: &str, function: &str| {
            let metric = json!({
                "Namespace": "AWS/Lambda",
                "MetricName": "Throttles",
                "Dimensions": [{ "Name": "FunctionName", "Value": function }],
            });
            let stat = json!({ "Metric": metric, "Period": "300", "Stat": "Sum" });
            json!({ "Id": id, "ReturnData": "false", "MetricStat": stat })
        };
        let wanted = json!([
            { "Id": "throttles", "Expression": "FILL(ingest, 0) + FILL(worker, 0) + FILL(scheduler, 0)" },
            of("ingest", "Ingest"), of("worker", "Worker"), of("scheduler", "Scheduler"),
        ]);
        let mut found = alarm["Metrics"].clone();
        if let Some(sum) = found.get_mut(0).and_then(Value::as_object_mut) {
            // For people.
            sum.remove("Label");
        }
        objections.unless(found == wanted, || format!("{name} looks at {}", alarm["Metrics"]));
        return;
    }
    let text = |property: &str| alarm[property].as_str().unwrap_or_default();
    let (namespace, metric, statistic) = &watch.metric;
    let found = (text("Namespace"), text("MetricName"), text("Statistic"));
    objections.unless(found == (namespace, *metric, *statistic), || format!("{name} looks at {found:?}"));
    let dimension = watch.dimension.map(|(name, value)| json!([{ "Name": name, "Value": value }])).unwrap_or_default();
    objections.unless(alarm["Dimensions"] == dimension, || format!("{name} is of {}", alarm["Dimensions"]));
    let period = watch.period.to_string();
    objections.unless(text("Period") == period, || format!("{name} looks at each {} s", text("Period")));
}

/// Whether the alarm is on behind these values, by CloudWatch's rules; `None`:
/// CloudWatch would not take it.
fn rings_at(alarm: &Value, values: &[Option<f64>]) -> Option<bool> {
    let number = |property: &str| alarm[property].as_str()?.parse::<usize>().ok();
    let periods = number("EvaluationPeriods")?;
    let needed = if alarm["DatapointsToAlarm"].is_null() { periods } else { number("DatapointsToAlarm")? };
    if needed == 0 || needed > periods {
        return None;
    }
    let threshold: f64 = alarm["Threshold"].as_str()?.parse().ok()?;
    let breaches = |value: f64| match alarm["ComparisonOperator"].as_str()? {
        "GreaterThanOrEqualToThreshold" => Some(value >= threshold),
        "GreaterThanThreshold" => Some(value > threshold),
        "LessThanThreshold" => Some(value < threshold),
        "LessThanOrEqualToThreshold" => Some(value <= threshold),
        _ => None,
    };
    let missing = match alarm["TreatMissingData"].as_str()? {
        "breaching" => true,
        "notBreaching" => false,
        _ => return None,
    };
    let mut breaching = 0;
    for place in 0..periods {
        let value = values.len().checked_sub(place + 1).and_then(|place| values[place]);
        breaching += usize::from(value.map_or(Some(missing), breaches)?);
    }
    Some(breaching >= needed)
}

/// The bill knows them all: each is billed by the metrics that it looks at.
fn bill(alarms: &[&Value], objections: &mut Objections) {
    let metrics = alarms.iter().map(|alarm| match alarm["Metrics"].as_array() {
        Some(metrics) => metrics.iter().filter(|metric| !metric["MetricStat"].is_null()).count(),
        None => 1,
    });
    let billed = metrics.sum::<usize>() as f64;
    objections.unless(billed == ASSUMPTIONS.alarms, || format!("{billed} metrics are looked at by alarms"));
}

/// Each alarm says what to do, on a page of its own.
fn pages(case: &Case, objections: &mut Objections) {
    let mut told = BTreeSet::new();
    for (name, alarm) in case.deployed.of_type("AWS::CloudWatch::Alarm") {
        let page = alarm["AlarmDescription"].as_str().and_then(|text| text.rsplit_once("What to do - "));
        let Some((_, page)) = page else {
            objections.unless(false, || format!("{name} names no page"));
            continue;
        };
        objections.unless(told.insert(page.to_owned()), || format!("{page} is of two alarms"));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let pages = std::fs::read_dir(root.join("docs/runbooks")).expect("there are pages");
    let pages: BTreeSet<String> =
        pages.map(|page| format!("docs/runbooks/{}", page.unwrap().file_name().to_str().unwrap())).collect();
    // What no alarm tells of.
    let told: BTreeSet<String> = told.into_iter().chain(["docs/runbooks/restore.md".to_owned()]).collect();
    objections.unless(told == pages, || format!("the alarms' pages are {told:?}"));
}
