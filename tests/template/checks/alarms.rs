//! Alarms: each by what it has to ring at, and what it has to be silent at.

use std::{collections::BTreeSet, path::Path};

use figures::bill::ALARMED_METRICS;
use serde_json::{Value, json};
use webhook_serializer::telemetry::{Metric, NAMESPACE};

use super::{Case, Objections};

/// What has to hold of one alarm.
struct Watch {
    alarm: &'static str,
    /// Namespace, name and statistic. Of our own metrics, those that are over everything.
    metric: (String, &'static str, &'static str),
    dimension: Option<(&'static str, &'static str)>,
    /// What it computes of several metrics, instead of looking at one.
    computes: Option<Value>,
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
        computes: None,
        period: 300,
        rings_at: vec![Some(least)],
        silent_at: vec![Some(least - 1.0)],
        rings_at_nothing: false,
    }
}

/// A metric that is computed with.
fn measured(id: &str, metric: [&str; 2], dimension: [&str; 2], statistic: &str) -> Value {
    let metric = json!({
        "Namespace": metric[0],
        "MetricName": metric[1],
        "Dimensions": [{ "Name": dimension[0], "Value": dimension[1] }],
    });
    let stat = json!({ "Metric": metric, "Period": "300", "Stat": statistic });
    json!({ "Id": id, "ReturnData": "false", "MetricStat": stat })
}

/// What the doors answered, of those that there are.
fn unavailable(case: &Case) -> Value {
    let api = case.has_http_api().then(|| measured("api", ["AWS/ApiGateway", "5xx"], ["ApiId", "IngestApi"], "Sum"));
    let url = ["AWS/Lambda", "Url5xxCount"];
    let url = case.has_function_url().then(|| measured("url", url, ["FunctionName", "Ingest"], "Sum"));
    let doors: Vec<Value> = api.into_iter().chain(url).collect();
    let filled: Vec<_> =
        doors.iter().map(|door| format!("FILL({}, 0)", door["Id"].as_str().expect("a name"))).collect();
    let sum = json!({ "Id": "failed", "Expression": filled.join(" + ") });
    Value::Array([sum].into_iter().chain(doors).collect())
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
        Watch {
            computes: Some(unavailable(case)),
            rings_at: vec![Some(3.0)],
            silent_at: vec![Some(2.0)],
            ..at_least(Metric::Parked, "UnavailableAlarm", 3.0)
        },
        at_least(Metric::Deferred, "DeferredAlarm", 1.0),
        Watch {
            // The greatest of a quarter of an hour: one that was accepted is enough.
            computes: Some(json!([{
                "Id": "accepted",
                "Expression": format!(
                    "SELECT MAX({}) FROM SCHEMA(\"{NAMESPACE}/${{AWS::StackName}}\", source) \
                     GROUP BY source ORDER BY MAX() ASC",
                    Metric::Accepted.name(),
                ),
                "Period": "900",
            }])),
            rings_at: vec![Some(0.0)],
            silent_at: vec![Some(1.0)],
            ..at_least(Metric::Accepted, "RefusedAlarm", 0.0)
        },
        Watch { period: 60, ..at_least(Metric::RefusedInARow, "RefusedInARowAlarm", 1.0) },
        Watch {
            metric: ("AWS/SQS".into(), "ApproximateAgeOfOldestMessage", "Maximum"),
            dimension: Some(("QueueName", "WakeUps.QueueName")),
            ..at_least(Metric::Parked, "QueueStuckAlarm", number_at(case, "QueueStuckAlarm Properties Threshold"))
        },
        Watch {
            computes: Some(json!([
                { "Id": "waits", "Expression": "IF(FILL(runs, 0) < 1, FILL(waiting, 0), 0)" },
                measured(
                    "waiting",
                    ["AWS/SQS", "ApproximateNumberOfMessagesVisible"],
                    ["QueueName", "WakeUps.QueueName"],
                    "Minimum",
                ),
                measured("runs", ["AWS/Lambda", "Invocations"], ["FunctionName", "Worker"], "Sum"),
            ])),
            rings_at: vec![Some(1.0); 2],
            silent_at: vec![Some(1.0), Some(0.0)],
            ..at_least(Metric::Parked, "NotFedAlarm", 1.0)
        },
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
        Watch {
            computes: Some(json!([
                { "Id": "throttles", "Expression": "FILL(ingest, 0) + FILL(worker, 0) + FILL(scheduler, 0)" },
                throttles("ingest", "Ingest"),
                throttles("worker", "Worker"),
                throttles("scheduler", "Scheduler"),
            ])),
            ..at_least(Metric::Parked, "ThrottlesAlarm", 1.0)
        },
    ]
}

fn throttles(id: &str, function: &str) -> Value {
    measured(id, ["AWS/Lambda", "Throttles"], ["FunctionName", function], "Sum")
}

/// What is held against the worker's times elsewhere.
fn number_at(case: &Case, path: &str) -> f64 {
    case.deployed.text(path).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

/// Those that roll a release back, which are there for that too.
const ROLL_BACK: [&str; 6] =
    ["BlockedAlarm", "DeferredAlarm", "IngestErrorsAlarm", "ParkedAlarm", "UnavailableAlarm", "WorkerErrorsAlarm"];

pub fn check(case: &Case, objections: &mut Objections) {
    let alarms = case.deployed.of_type("AWS::CloudWatch::Alarm");
    let mut watches = watches(case);
    watches.retain(|watch| case.tells() || case.is_gradual() && ROLL_BACK.contains(&watch.alarm));
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
        let topic = case.tells().then(|| json!([topic(case)]));
        for actions in ["AlarmActions", "OKActions"] {
            objections.unless_at(&case.deployed, &format!("{name} Properties {actions}"), topic.clone());
        }
    }
    told(case, objections);
    if case.tells() {
        bill(case, &alarms.values().copied().collect::<Vec<_>>(), objections);
        pages(case, objections);
    }
}

/// Who is told: the topic that is given, or one that is made for the address.
fn topic(case: &Case) -> String {
    match case.is_given("AlarmTopicArn") {
        true => case.parameter("AlarmTopicArn"),
        false => "AlarmTopic".into(),
    }
}

fn told(case: &Case, objections: &mut Objections) {
    let deployed = &case.deployed;
    let is_made = case.is_given("AlarmEmail") && !case.is_given("AlarmTopicArn");
    let wanted = is_made.then(|| json!({ "Type": "AWS::SNS::Topic", "Condition": "MakesAlarmTopic" }));
    let mut found = deployed.at("AlarmTopic").clone();
    found.as_object_mut().and_then(|found| found.remove("Metadata"));
    objections.unless(found == wanted.clone().unwrap_or_default(), || format!("AlarmTopic is {found}"));
    let address = json!({ "TopicArn": topic(case), "Protocol": "email", "Endpoint": case.parameter("AlarmEmail") });
    let wanted = if case.is_given("AlarmEmail") { address } else { Value::Null };
    let found = deployed.at("AlarmAddress Properties");
    objections.unless(*found == wanted, || format!("AlarmAddress is {found}"));
    let kind = if wanted.is_null() { Value::Null } else { json!("AWS::SNS::Subscription") };
    objections.unless_at(deployed, "AlarmAddress Type", kind);
}

fn looks_at(watch: &Watch, alarm: &Value, objections: &mut Objections) {
    let name = watch.alarm;
    if let Some(wanted) = &watch.computes {
        let mut found = alarm["Metrics"].clone();
        if let Some(first) = found.get_mut(0).and_then(Value::as_object_mut) {
            // For people.
            first.remove("Label");
        }
        objections.unless(found == *wanted, || format!("{name} looks at {}", alarm["Metrics"]));
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

/// The bill knows them all: each is billed by the metrics that it looks at. The
/// one that is about each source is billed by those.
fn bill(case: &Case, alarms: &[&Value], objections: &mut Objections) {
    let metrics = alarms.iter().map(|alarm| match alarm["Metrics"].as_array() {
        Some(metrics) => metrics.iter().filter(|metric| !metric["MetricStat"].is_null()).count(),
        None => 1,
    });
    let doors = usize::from(case.has_http_api()) + usize::from(case.has_function_url());
    let billed = (metrics.sum::<usize>() + 1 - doors) as f64;
    objections.unless(billed == ALARMED_METRICS, || format!("{billed} metrics are looked at by alarms"));
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
