//! Finds the time to which AWS restored the tables.

use anyhow::{Result, bail, ensure};
use serializer::output;
use webhook_serializer::time::Timestamp;

use crate::commands::target::Deployment;

/// The difference in milliseconds up to which two times count as equal, because a time that an operator types has only
/// whole seconds.
const EQUAL_WITHIN: u64 = 1_000;

/// Returns the time of the backup: the time `given` or, without it, the time to which AWS restored the orders' table.
/// Returns an error if these two times differ, or if neither is known.
pub async fn moment(deployment: &Deployment, given: Option<Timestamp>) -> Result<Timestamp> {
    if deployment.is_local() {
        let Some(given) = given else { bail!("give the time of the backup with --as-of TIME") };
        return Ok(given);
    }
    let http = deployment.account.http_client();
    let dynamodb = deployment.account.dynamodb(&http);
    let mut known = Vec::new();
    for name in [&deployment.config.entities_table, &deployment.config.inbox_table] {
        let summary = match dynamodb.describe_table().table_name(name).send().await {
            Ok(described) => described.table.and_then(|table| table.restore_summary),
            // Without permission to ask AWS, the given time is used.
            Err(_) if given.is_some() => None,
            Err(error) => bail!(
                "the table {name} cannot be described ({}): check its name, or give the time of the backup with --as-of TIME",
                aws_sdk_dynamodb::error::DisplayErrorContext(error)
            ),
        };
        let is_under_way = summary.as_ref().is_some_and(|summary| summary.restore_in_progress);
        ensure!(!is_under_way, "the table {name} is still being restored; wait until it is active");
        let restored_to = summary.and_then(|summary| summary.restore_date_time.to_millis().ok());
        known.push(restored_to.and_then(|millis| u64::try_from(millis).ok()).map(Timestamp::from_millis));
    }
    let [orders, deliveries] = &known[..] else { unreachable!("there are two tables") };
    if let (Some(orders), Some(deliveries)) = (orders, deliveries)
        && deliveries < orders
    {
        output::complain(format_args!(
            "the deliveries were restored to {deliveries}, and the orders to {orders}, so the deliveries accepted \
             between these times are missing. Restore the table of deliveries again, to a few seconds after the \
             orders"
        ));
    }
    match (given, orders) {
        (Some(given), Some(known)) if given.as_millis().abs_diff(known.as_millis()) > EQUAL_WITHIN => bail!(
            "{} was restored to {known}, not to {given}: leave --as-of out, or name the other table",
            deployment.config.entities_table
        ),
        (Some(given), _) => Ok(given),
        (None, Some(known)) => Ok(*known),
        (None, None) => bail!(
            "AWS does not list {} as restored from a backup. Check its name. If it was copied in another way, give \
             the time of the copy with --as-of TIME",
            deployment.config.entities_table
        ),
    }
}
