//! What logs, metrics, alarms and the dashboard amount to.

use webhook_serializer::telemetry::{Metric, Scope};

use super::DAYS;

/// The alarms and the dashboard.
const OBSERVABILITY: &str = include_str!("../../../templates/observability.yaml");

/// Returns the number of metrics that the template's alarms watch, because an alarm is billed by its
/// metrics. Each source adds one alarm with one metric.
pub fn alarmed_metrics() -> f64 {
    OBSERVABILITY.matches(" MetricName: ").count() as f64
}

/// Returns the number of Logs Insights queries that the dashboard runs each time it is opened.
pub(super) fn dashboard_queries() -> f64 {
    OBSERVABILITY.matches(r#""type": "log""#).count() as f64
}

/// Returns the number of metrics that are always published, without detailed metrics. Each source adds one.
/// `Deferred` has a value only during an outage: a day of one costs a cent.
pub(super) fn metrics() -> f64 {
    let counted = |metric: &&Metric| metric.scope() == Scope::Overall && **metric != Metric::Deferred;
    Metric::ALL.iter().filter(counted).count() as f64
}

/// The hours of logs that the dashboard reads in a month. It is opened once a day and shows
/// three hours.
pub(super) const DASHBOARD_HOURS: f64 = DAYS * 3.0;

/// The functions' own lines for one delivery.
pub(super) const LOG_BYTES: f64 = 800.0;
/// The lines that Lambda writes for each invocation, as long as these.
pub(super) const LAMBDA_LINES: [&str; 2] = [
    r#"{"time":"2026-11-25T12:00:00.000Z","type":"platform.start","record":{"requestId":"8b4f2d6e-3c1a-4f7b-9e5d-0a1b2c3d4e5f","functionArn":"arn:aws:lambda:us-east-1:123456789012:function:webhook-serializer-Ingest-AbCdEf012345","version":"$LATEST"}}"#,
    r#"{"time":"2026-11-25T12:00:00.000Z","type":"platform.report","record":{"requestId":"8b4f2d6e-3c1a-4f7b-9e5d-0a1b2c3d4e5f","metrics":{"durationMs":14.870,"billedDurationMs":15,"memorySizeMB":256,"maxMemoryUsedMB":31},"status":"success"}}"#,
];
/// The lines `swept` and `job done`, once a minute.
pub(super) const SWEEP_LOG_BYTES: f64 = 480.0;

/// Returns the bytes that Lambda logs for each invocation.
pub(super) fn lambda_log_bytes() -> f64 {
    LAMBDA_LINES.iter().map(|line| line.len() as f64 + 1.0).sum()
}
