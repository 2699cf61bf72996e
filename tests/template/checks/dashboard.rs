//! The dashboard looks at what is measured, in this stack.

use serde_json::Value;
use webhook_serializer::telemetry::{Metric, NAMESPACE};

use super::{Case, Objections};

/// How many lines of it show what the functions measure themselves.
const LINES: usize = 14;

pub fn check(case: &Case, objections: &mut Objections) {
    objections.unless_at(&case.deployed, "Dashboard Type", "AWS::CloudWatch::Dashboard");
    objections.unless_at(&case.deployed, "Dashboard Properties DashboardName", "${AWS::StackName}");
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
    for table in ["EntitiesTable", "InboxTable"] {
        let searched = format!("TableName=\\\"{}\\\"", case.table(table));
        objections.unless(text.contains(&searched), || format!("the dashboard does not look at the {table}"));
    }
    let mut lines = 0;
    for widget in body["widgets"].as_array().into_iter().flatten() {
        // A dot is what stands in the row above.
        let mut above = (String::new(), String::new());
        for row in widget["properties"]["metrics"].as_array().into_iter().flatten() {
            above = match row[0]["expression"].as_str() {
                Some(search) => {
                    let ours = search.split_once(&format!("\"{namespace}\",source,outcome}} MetricName=\""));
                    let Some((_, rest)) = ours else {
                        objections.unless(search.contains("{AWS/"), || format!("the dashboard searches {search}"));
                        continue;
                    };
                    (namespace.clone(), rest.split('"').next().unwrap_or_default().to_owned())
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
                let is_known = Metric::ALL.iter().any(|metric| metric.name() == above.1);
                objections.unless(is_known, || format!("nobody measures the dashboard's {}", above.1));
                lines += 1;
            }
        }
    }
    objections.unless(lines == LINES, || format!("{lines} lines of the dashboard show what is measured"));
}
