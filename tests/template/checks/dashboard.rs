//! The dashboard looks at what is measured, in this stack, and at nothing that is
//! measured only where it is asked for.

use serde_json::Value;
use webhook_serializer::telemetry::{Metric, NAMESPACE, Scope};

use super::{Case, Objections};

/// How many lines of it show what the functions measure themselves: always, and
/// in detail.
const LINES: (usize, usize) = (9, 14);

/// What the functions' lines say.
const TOLD: &str = include_str!("../../../shared/src/telemetry/lines.txt");

pub fn check(case: &Case, objections: &mut Objections) {
    objections.unless_at(&case.deployed, "Dashboard Type", "AWS::CloudWatch::Dashboard");
    // A second stack of that name, in another region, is in the same list.
    let name = "${AWS::StackName}-${AWS::Region}";
    objections.unless_at(&case.deployed, "Dashboard Properties DashboardName", name);
    let body = case.deployed.text("Dashboard Properties DashboardBody").unwrap_or_default();
    let body: Value = match serde_json::from_str(body) {
        Ok(body) => body,
        Err(error) => return objections.unless(false, || format!("the dashboard is no JSON: {error}")),
    };
    let namespace = format!("{NAMESPACE}/${{AWS::StackName}}");
    let text = body.to_string();
    objections.unless(text.matches(NAMESPACE).count() == text.matches(&namespace).count(), || {
        "the dashboard looks at another stack's metrics".into()
    });
    // The front doors' own count of what was refused, of those that there are.
    for (metric, is_there) in [
        ("\"4xx\"", case.has_http_api()),
        ("\"Url4xxCount\"", case.has_function_url()),
        ("source,outcome", case.parameter("DetailedMetrics") == "on"),
    ] {
        objections.unless(text.contains(metric) == is_there, || format!("the dashboard shows {metric}: {}", !is_there));
    }
    for metric in ["\"ApproximateAgeOfOldestMessage\"", "breaker opened", "requeued"] {
        objections.unless(text.contains(metric), || format!("the dashboard does not show {metric}"));
    }
    for table in ["EntitiesTable", "InboxTable"] {
        let searched = format!("TableName=\\\"{}\\\"", case.table(table));
        objections.unless(text.contains(&searched), || format!("the dashboard does not look at the {table}"));
    }
    let (mut lines, mut detailed) = (0, 0);
    for widget in body["widgets"].as_array().into_iter().flatten() {
        if let Some(query) = widget["properties"]["query"].as_str() {
            asks(query, objections);
        }
        // A dot is what stands in the row above.
        let mut above = (String::new(), String::new());
        for row in widget["properties"]["metrics"].as_array().into_iter().flatten() {
            let mut dimensions = None;
            above = match row[0]["expression"].as_str() {
                Some(search) if search.contains("{AWS/") => continue,
                Some(search) => {
                    let ours = search.split_once(&format!("\"{namespace}\",")).map(|(_, rest)| rest);
                    let Some((by, metric)) = ours.and_then(|rest| rest.split_once("} MetricName=\"")) else {
                        objections.unless(false, || format!("the dashboard searches {search}"));
                        continue;
                    };
                    dimensions = Some(by.to_owned());
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
            if above.0 != namespace {
                continue;
            }
            let metric = Metric::ALL.iter().find(|metric| metric.name() == above.1);
            let is_detailed = dimensions.as_deref() == Some("source,outcome")
                || metric.is_some_and(|metric| metric.scope() == Scope::Detailed);
            let fits = metric.is_some_and(|metric| match dimensions.as_deref() {
                Some("source,outcome") => metric.scope() != Scope::BySource,
                Some("source") => metric.scope() == Scope::BySource,
                Some(_) => false,
                None => metric.scope() != Scope::BySource,
            });
            objections.unless(fits, || format!("nobody measures the dashboard's {above:?} by {dimensions:?}"));
            *(if is_detailed { &mut detailed } else { &mut lines }) += 1;
        }
    }
    let wanted = (LINES.0, if case.parameter("DetailedMetrics") == "on" { LINES.1 } else { 0 });
    objections.unless((lines, detailed) == wanted, || {
        format!("{lines} lines of the dashboard show what is measured, and {detailed} in detail")
    });
}

/// A query of the logs asks for what is said there.
fn asks(query: &str, objections: &mut Objections) {
    let is_of_ours = |group: &str| ["IngestLogs", "WorkerLogs"].contains(&group);
    let mut texts = query.split('\'').skip(1).step_by(2);
    let group = texts.next().unwrap_or_default();
    objections.unless(is_of_ours(group), || format!("the dashboard queries {group}"));
    for text in texts {
        let is_said = TOLD.contains(&format!("\"{text}\""));
        objections.unless(is_said, || format!("no line says what the dashboard asks for: {text}"));
    }
    for field in ["LagMs", "HandlerMs", "Refused"].iter().filter(|field| query.contains(**field)) {
        objections.unless(TOLD.contains(&format!("\"{field}\":")), || format!("no line has {field}"));
    }
}
