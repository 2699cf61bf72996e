//! Renders a log line as a JSON object that can hold metrics.
//!
//! Metrics are in CloudWatch's embedded metric format
//! (<https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>).
//! The object's other members are for operators. CloudWatch counts only the metrics that an alarm
//! uses, each in total or by source ([`Scope`]). With detailed metrics, it counts all metrics.
//! Those that are not counted by source are then counted in total, and also by source and outcome
//! if the line has both.

use std::fmt::Write;

use tracing::Level;

use super::metric::{Dimensions, Metric, Scope};
use crate::{protocol::format::visible, time::Timestamp};

#[derive(Debug)]
pub(super) struct MetricsSettings {
    pub(super) namespace: String,
    pub(super) detailed: bool,
}

impl MetricsSettings {
    pub(super) fn counts(&self, metric: Metric) -> bool {
        self.detailed || metric.scope() != Scope::Detailed
    }
}

#[derive(Debug)]
pub(super) struct Json(String);

impl Json {
    /// Begins a line. CloudWatch stamps each line with its time. From the level WARN on, a
    /// line also has its own `timestamp`, because Lambda treats a line without one as `INFO`
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

    pub(super) fn text(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        self.0.push('"');
        let from = self.0.len();
        let _ = write!(self.0, "{value}");
        if self.0.as_bytes().iter().skip(from).any(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) {
            let quoted = serde_json::Value::from(self.0.split_off(from)).to_string();
            // The quotation marks around the text are written elsewhere.
            self.0.push_str(quoted.get(1..quoted.len() - 1).unwrap_or_default());
        }
        if !self.0[from..].is_ascii() || self.0[from..].contains('\u{7f}') {
            let shown = visible(&self.0[from..]).into_owned();
            self.0.truncate(from);
            self.0.push_str(&shown);
        }
        self.0.push('"');
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        let _ = write!(self.0, "{value}");
    }

    /// Adds all metrics as values, and declares those that CloudWatch counts.
    pub(super) fn metrics(
        &mut self,
        counting: &MetricsSettings,
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
        if !metrics.iter().any(|(metric, _)| counting.counts(*metric)) {
            return;
        }
        self.name("_aws");
        let _ = write!(self.0, r#"{{"Timestamp":{},"CloudWatchMetrics":["#, at.as_millis());
        let overall = if dimensions.is_some() && counting.detailed { r#"[[],["source","outcome"]]"# } else { "[[]]" };
        let mut directives = 0;
        for (by_source, sets) in [(true, r#"[["source"]]"#), (false, overall)] {
            let mut declared = 0;
            for (metric, _) in metrics {
                if !counting.counts(*metric) || (metric.scope() == Scope::BySource) != by_source {
                    continue;
                }
                if declared == 0 {
                    let comma = if directives == 0 { "" } else { "," };
                    let namespace = &counting.namespace;
                    let _ = write!(self.0, r#"{comma}{{"Namespace":"{namespace}","Dimensions":{sets},"Metrics":["#);
                }
                let comma = if declared == 0 { "" } else { "," };
                let _ = write!(self.0, r#"{comma}{{"Name":"{}"}}"#, metric.name());
                declared += 1;
            }
            if declared > 0 {
                self.0.push_str("]}");
                directives += 1;
            }
        }
        self.0.push_str("]}");
    }

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
    fn log_line_is_valid_json_for_any_text() {
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
    fn control_and_bidirectional_characters_are_escaped() {
        let text = "a\u{9b}2J\u{202e}b \"c\" \u{2066}d\u{61c} größer";
        let mut line = Json::new(Level::INFO, "said", Timestamp::from_millis(7));
        line.text("name", text);
        let line = line.end();
        assert!(line.contains(r#""name":"a\u009b2J\u202eb \"c\" \u2066d\u061c größer""#), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["name"], text);
    }

    fn declared(metrics: &[(Metric, u64)]) -> Value {
        let at = Timestamp::from_millis(7);
        let counting = MetricsSettings { namespace: "Shop".into(), detailed: false };
        let mut line = Json::new(Level::INFO, "settled", at);
        line.metrics(&counting, at, metrics, Some(Dimensions { source: "shop", outcome: "applied" }));
        serde_json::from_str(&line.end()).unwrap()
    }

    fn directive(dimensions: &Value, metrics: &[&str]) -> Value {
        let metrics: Vec<_> = metrics.iter().map(|name| json!({ "Name": name })).collect();
        json!({ "Namespace": "Shop", "Dimensions": dimensions, "Metrics": metrics })
    }

    #[test]
    fn only_alarm_metrics_are_declared_by_default() {
        let parsed = declared(&[(Metric::Delivered, 1), (Metric::LagMs, 5)]);
        assert_eq!(parsed.get("_aws"), None);
        assert_eq!((&parsed["Delivered"], &parsed["LagMs"]), (&json!(1), &json!(5)));
        assert_eq!((&parsed["source"], &parsed["outcome"]), (&json!("shop"), &json!("applied")));
        let parsed = declared(&[(Metric::Delivered, 1), (Metric::Inversions, 1)]);
        assert_eq!(parsed["_aws"]["CloudWatchMetrics"], json!([directive(&json!([[]]), &["Inversions"])]));
    }

    #[test]
    fn accepted_metric_has_the_source_as_dimension() {
        let parsed = declared(&[(Metric::FailedWakeUps, 1), (Metric::Accepted, 1)]);
        let directives = [directive(&json!([["source"]]), &["Accepted"]), directive(&json!([[]]), &["FailedWakeUps"])];
        assert_eq!(parsed["_aws"]["CloudWatchMetrics"], json!(directives));
    }
}
