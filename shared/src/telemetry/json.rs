//! One line of the log: a JSON object, with metrics in it where there are any.
//!
//! Metrics are in CloudWatch's embedded metric format
//! (<https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>),
//! which lets a line be both: what is not declared a metric or a dimension is
//! for people. Each is counted twice, once for alarms over everything and once
//! by source and outcome.

use std::fmt::Write;

use tracing::Level;

use super::metric::{Dimensions, Metric};
use crate::time::Timestamp;

/// A line in the making.
#[derive(Debug)]
pub(super) struct Json(String);

impl Json {
    /// A line that says `message`. Its time is what CloudWatch stamps it with;
    /// a warning has its own besides, since Lambda takes for information what
    /// has none
    /// (<https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-log-level.html>).
    pub(super) fn new(level: Level, message: &str, at: Timestamp) -> Self {
        let mut line = Self("{".to_owned());
        if level <= Level::WARN {
            line.text("timestamp", at);
        }
        line.text("level", level);
        line.text("message", message);
        line
    }

    /// A member whose value is a text.
    pub(super) fn text(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        self.0.push('"');
        let from = self.0.len();
        let _ = write!(self.0, "{value}");
        if self.0.as_bytes().iter().skip(from).any(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) {
            let quoted = serde_json::Value::from(self.0.split_off(from)).to_string();
            // Without its opening quotation mark, which is there, and its closing one, which follows.
            self.0.push_str(quoted.get(1..quoted.len() - 1).unwrap_or_default());
        }
        self.0.push('"');
    }

    /// A member whose value is a number.
    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        let _ = write!(self.0, "{value}");
    }

    /// The metrics, and what declares them. Nothing where there is none.
    pub(super) fn metrics(
        &mut self,
        namespace: &str,
        at: Timestamp,
        metrics: &[(Metric, u64)],
        dimensions: Option<Dimensions<'_>>,
    ) {
        if let Some(dimensions) = dimensions {
            self.text("source", dimensions.source);
        }
        if metrics.is_empty() {
            return;
        }
        if let Some(dimensions) = dimensions {
            self.text("outcome", dimensions.outcome);
        }
        for (metric, value) in metrics {
            self.number(metric.name(), *value);
        }
        self.name("_aws");
        let sets = if dimensions.is_some() { r#"[[],["source","outcome"]]"# } else { "[[]]" };
        let _ = write!(
            self.0,
            r#"{{"Timestamp":{},"CloudWatchMetrics":[{{"Namespace":"{namespace}","Dimensions":{sets},"Metrics":["#,
            at.as_millis()
        );
        for (number, (metric, _)) in metrics.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let _ = write!(self.0, r#"{comma}{{"Name":"{}"}}"#, metric.name());
        }
        self.0.push_str("]}]}");
    }

    /// The whole line, its end included.
    pub(super) fn end(mut self) -> String {
        self.0.push_str("}\n");
        self.0
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        let _ = write!(self.0, "\"{name}\":");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_line_is_an_object_whatever_its_texts_hold() {
        let mut line = Json::new(Level::INFO, "said", Timestamp::from_millis(7));
        for text in ["", "plain", "a \"b\" \\ c", "line\nbreak\u{1}", "größer"] {
            line.text(&format!("name {}", text.len()), text);
        }
        line.number("number", u64::MAX);
        let line = line.end();
        let parsed: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(parsed["name 5"], "plain");
        assert_eq!(parsed["name 11"], "line\nbreak\u{1}");
        assert_eq!(parsed["number"], u64::MAX);
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn a_warning_says_when_and_is_left_a_warning() {
        let at = Timestamp::from_millis(1_767_225_600_007);
        let line = Json::new(Level::WARN, "said", at).end();
        assert_eq!(line, "{\"timestamp\":\"2026-01-01T00:00:00.007Z\",\"level\":\"WARN\",\"message\":\"said\"}\n");
        assert_eq!(Json::new(Level::INFO, "said", at).end(), "{\"level\":\"INFO\",\"message\":\"said\"}\n");
    }

    #[test]
    fn metrics_are_declared_with_and_without_dimensions() {
        let at = Timestamp::from_millis(7);
        let mut line = Json::new(Level::INFO, "settled", at);
        let dimensions = Dimensions { source: "shop", outcome: "applied" };
        line.metrics("Shop", at, &[(Metric::Delivered, 1), (Metric::LagMs, 5)], Some(dimensions));
        let parsed: Value = serde_json::from_str(&line.end()).unwrap();
        let declared = json!({ "Timestamp": 7, "CloudWatchMetrics": [{
            "Namespace": "Shop",
            "Dimensions": [[], ["source", "outcome"]],
            "Metrics": [{ "Name": "Delivered" }, { "Name": "LagMs" }],
        }]});
        assert_eq!(parsed["_aws"], declared);
        assert_eq!((&parsed["Delivered"], &parsed["LagMs"]), (&json!(1), &json!(5)));
        assert_eq!((&parsed["source"], &parsed["outcome"]), (&json!("shop"), &json!("applied")));
    }
}
