//! The queue of wake-ups, and what becomes of those that nobody takes.

use serde_json::json;
use serializer::local::{MAX_RECEIVES, VISIBILITY_TIMEOUT};
use webhook_serializer::engine::deferred::LARGEST_MESSAGE;

use super::{Case, Objections};

/// SQS keeps no message longer: 14 days.
const LONGEST: &str = "1209600";

pub fn check(case: &Case, objections: &mut Objections) {
    let deployed = &case.deployed;
    let found: Vec<_> = deployed.of_type("AWS::SQS::Queue").into_keys().collect();
    objections.unless(found == ["DeadLetters", "WakeUps"], || format!("the queues are {found:?}"));
    for queue in ["DeadLetters", "WakeUps"] {
        // A wake-up outlives any outage that somebody comes to see.
        objections.unless_at(deployed, &format!("{queue} Properties MessageRetentionPeriod"), LONGEST);
        let largest = LARGEST_MESSAGE.to_string();
        objections.unless_at(deployed, &format!("{queue} Properties MaximumMessageSize"), largest);
        objections.unless_at(deployed, &format!("{queue} Properties SqsManagedSseEnabled"), "true");
    }
    let redrive = json!({ "deadLetterTargetArn": "DeadLetters.Arn", "maxReceiveCount": MAX_RECEIVES.to_string() });
    objections.unless_at(deployed, "WakeUps Properties RedrivePolicy", redrive);
    if case.given.is_empty() {
        let local = VISIBILITY_TIMEOUT.as_secs().to_string();
        objections.unless_at(deployed, "WakeUps Properties VisibilityTimeout", local);
    }
}
