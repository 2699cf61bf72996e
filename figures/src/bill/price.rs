//! Prices of us-east-1, arm64, on demand, and the monthly free tier that never expires.

pub(super) const WRITE_UNIT: f64 = 0.625e-6;
pub(super) const READ_UNIT: f64 = 0.125e-6;
pub(super) const TABLE_GB_MONTH: f64 = 0.25;
pub(super) const BACKUP_GB_MONTH: f64 = 0.20;
pub(super) const SQS_REQUEST: f64 = 0.40e-6;
pub(super) const SQS_FIFO_REQUEST: f64 = 0.50e-6;
pub(super) const INVOCATION: f64 = 0.20e-6;
pub(super) const GB_SECOND: f64 = 0.0000133334;
pub(super) const LOG_GB: f64 = 0.50;
pub(super) const LOG_SCAN_GB: f64 = 0.005;
pub(super) const METRIC_MONTH: f64 = 0.30;
pub(super) const ALARM_MONTH: f64 = 0.10;
pub(super) const DASHBOARD_MONTH: f64 = 3.00;
pub(super) const KEY_REQUEST: f64 = 0.03 / 10_000.0;
pub(super) const KEY_MONTH: f64 = 1.00;
pub(super) const SECRET_MONTH: f64 = 0.40;
pub(super) const SECRET_READ: f64 = 0.05 / 10_000.0;
pub(super) const ADVANCED_MONTH: f64 = 0.05;

/// Returns how many of `unit` are free each month in every account.
pub(super) fn free(unit: &str) -> f64 {
    match unit {
        "invocations" | "queue requests" => 1e6,
        "GB-s" => 400_000.0,
        "log GB" => 5.0,
        "metrics" | "alarms" => 10.0,
        "dashboards" => 3.0,
        "table GB" => 25.0,
        "key requests" => 20_000.0,
        _ => 0.0,
    }
}
