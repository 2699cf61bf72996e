//! Finds resources of the stack that were changed by hand.

use std::time::Duration;

use serializer::stack::{
    Stack, VERSION,
    api::{Refusal, Service, Services, xml::Element},
};
use webhook_serializer::time::Env;

use super::{super::finding::CheckFinding, PUT_BACK};

const DETECTION_TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Checks whether the stack's resources were changed by hand. If `detect` is false, the check reports the result of the
/// last drift detection.
pub async fn drift(services: &Services, stack: &Stack, detect: bool, env: &Env) -> CheckFinding {
    const CHECK: &str = "drift";
    let (mut status, checked_at) = stack.drift.clone();
    let mut when = "at CloudFormation's last comparison".to_owned();
    when.extend(checked_at.map(|at| format!(", {at}")));
    if detect {
        match run_detection(services, stack, env).await {
            Ok(found) => status = found,
            Err(refusal) => return CheckFinding::refused(CHECK, &refusal),
        }
        when = "now".to_owned();
    }
    match status.as_str() {
        "IN_SYNC" => CheckFinding::ok(CHECK, format!("as deployed, {when}")),
        "DRIFTED" => {
            let changed = match changed_resources(services, stack).await {
                Ok(changed) => changed.join(", "),
                Err(refusal) => format!("the changed resources are unknown: {refusal}"),
            };
            CheckFinding::wrong(CHECK, format!("changed by hand, {when}: {changed}"), PUT_BACK)
        }
        "NOT_CHECKED" | "" => CheckFinding::not_made(
            CHECK,
            "CloudFormation has never compared the stack with its template; --detect-drift makes it do so, within \
             minutes",
        ),
        other => CheckFinding::not_made(CHECK, format!("CloudFormation says {other}")),
    }
}

async fn run_detection(services: &Services, stack: &Stack, env: &Env) -> Result<String, Refusal> {
    let name = ("StackName", stack.name.as_str());
    let begun = services.query(Service::CLOUDFORMATION, VERSION, "DetectStackDrift", &[name]).await?;
    let id = begun.what.text(&["DetectStackDriftResult", "StackDriftDetectionId"]).to_owned();
    let began = env.monotonic();
    let action = "DescribeStackDriftDetectionStatus";
    loop {
        let field = [("StackDriftDetectionId", id.as_str())];
        let answer = services.query(Service::CLOUDFORMATION, VERSION, action, &field).await?.what;
        let text = |name: &str| answer.text(&["DescribeStackDriftDetectionStatusResult", name]).to_owned();
        match text("DetectionStatus").as_str() {
            "DETECTION_COMPLETE" => return Ok(text("StackDriftStatus")),
            "DETECTION_IN_PROGRESS" if env.monotonic().saturating_sub(began) < DETECTION_TIMEOUT => {
                env.sleep(POLL_INTERVAL).await;
            }
            "DETECTION_IN_PROGRESS" => {
                return Err(Refusal::Silent(
                    "the detection takes more than 5 min; run this again later, without --detect-drift".into(),
                ));
            }
            _ => return Err(Refusal::Silent(text("DetectionStatusReason"))),
        }
    }
}

async fn changed_resources(services: &Services, stack: &Stack) -> Result<Vec<String>, Refusal> {
    let fields = [
        ("StackName", stack.name.as_str()),
        ("StackResourceDriftStatusFilters.member.1", "MODIFIED"),
        ("StackResourceDriftStatusFilters.member.2", "DELETED"),
    ];
    let told = services.query(Service::CLOUDFORMATION, VERSION, "DescribeStackResourceDrifts", &fields).await?.what;
    let drifts = told.at(&["DescribeStackResourceDriftsResult", "StackResourceDrifts"]);
    let one = |drift: &Element| {
        let properties = drift.at(&["PropertyDifferences"]).map(|all| {
            let paths = all.all("member").map(|one| one.text(&["PropertyPath"]).to_owned());
            paths.collect::<Vec<_>>().join(" ")
        });
        let properties = properties.filter(|paths| !paths.is_empty()).map(|paths| format!(" ({paths})"));
        let what = drift.text(&["StackResourceDriftStatus"]).to_lowercase();
        format!("{} {what}{}", drift.text(&["LogicalResourceId"]), properties.unwrap_or_default())
    };
    Ok(drifts.map(|drifts| drifts.all("member").map(one).collect()).unwrap_or_default())
}
