//! Checks the stack and its account in AWS: credentials, clock, drift, concurrency, functions, quotas and alarms.

mod drift;
mod quotas;

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use serializer::{
    output::duration,
    stack::{
        Stack,
        api::{Refusal, Reply, Service, Services},
    },
};
use webhook_serializer::time::{Env, Timestamp};

use super::finding::CheckFinding;
pub use drift::drift;
pub use quotas::{concurrency, parameter_store};

/// The largest accepted difference between this machine's clock and the clock of AWS.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(30);

/// The section on undoing a change that somebody made to the stack by hand. Deploying the unchanged template does not
/// undo such a change.
const PUT_BACK: &str = "docs/deploying.md, “Put back what was changed by hand”";

const FUNCTIONS: [(&str, &str); 3] =
    [("ingest", "IngestFunction"), ("worker", "WorkerFunction"), ("scheduler", "SchedulerFunction")];

/// Checks the credentials and the clock. The returned bool is false if further requests to AWS would fail.
pub async fn caller(services: &Services, env: &Env) -> (Vec<CheckFinding>, bool) {
    const CHECK: &str = "credentials";
    match services.query(Service::STS, "2011-06-15", "GetCallerIdentity", &[]).await {
        Ok(Reply { what, date }) => {
            let arn = what.text(&["GetCallerIdentityResult", "Arn"]);
            let caller = CheckFinding::ok(CHECK, format!("{arn} in {}", services.region()));
            (vec![caller, clock(date.as_deref(), env.machine_now())], true)
        }
        Err(refusal @ Refusal::Silent(_)) => {
            let advice =
                "check the network, the proxy and the region, then run doctor again: it made no other check in AWS";
            (vec![CheckFinding::wrong(CHECK, refusal.to_string(), advice)], false)
        }
        Err(refusal) => {
            (vec![CheckFinding::wrong(CHECK, refusal.to_string(), "sign in again, or give another --profile")], false)
        }
    }
}

fn clock(date: Option<&str>, now: Timestamp) -> CheckFinding {
    const CHECK: &str = "clock";
    let told = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let Some(told) = told.and_then(|told| told.duration_since(SystemTime::UNIX_EPOCH).ok()) else {
        return CheckFinding::not_made(CHECK, "the answer of AWS has no date");
    };
    let told = Timestamp::from_secs(told.as_secs());
    let (off, side) = if now >= told { (now.since(told), "ahead of") } else { (told.since(now), "behind") };
    match off {
        // The header has whole seconds, and the answer took time to arrive.
        off if off < Duration::from_secs(3) => {
            CheckFinding::ok(CHECK, "this machine's clock agrees with AWS to a few seconds")
        }
        off if off < MAX_CLOCK_SKEW => {
            CheckFinding::ok(CHECK, format!("this machine's clock is {} {side} AWS's clock", duration(off)))
        }
        off => CheckFinding::warning(
            CHECK,
            format!("this machine's clock is {} {side} AWS's clock", duration(off)),
            "set the clock: AWS refuses requests if it is 5 min off. Deliveries, their sequence and leases do not \
             depend on it",
        ),
    }
}

pub fn status(stack: &Stack) -> CheckFinding {
    const CHECK: &str = "stack";
    let Stack { name, status, .. } = stack;
    match status.as_str() {
        "CREATE_COMPLETE" | "UPDATE_COMPLETE" | "IMPORT_COMPLETE" => {
            CheckFinding::ok(CHECK, format!("{name}: {status}"))
        }
        "UPDATE_ROLLBACK_COMPLETE" => CheckFinding::warning(
            CHECK,
            format!("{name}: {status}: the last deploy failed, and the previous version runs"),
            format!("`aws cloudformation describe-stack-events --stack-name {name}` says why; deploy again"),
        ),
        status if status.ends_with("_IN_PROGRESS") => CheckFinding::warning(
            CHECK,
            format!("{name}: {status}: a deploy is under way"),
            "run this again after the deploy",
        ),
        status => CheckFinding::wrong(
            CHECK,
            format!("{name}: {status}"),
            format!("`aws cloudformation describe-stack-events --stack-name {name}` says why"),
        ),
    }
}

pub async fn functions(services: &Services, stack: &Stack) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    for (name, output) in FUNCTIONS {
        let check = format!("function {name}");
        let Some(function) = stack.outputs.get(output) else {
            findings.push(CheckFinding::not_made(&check, format!("the stack has no output {output}")));
            continue;
        };
        findings.push(match state(services, function).await {
            Ok((state, reserved)) => running(&check, function, &state, reserved),
            Err(refusal) => missing(&check, &refusal, function),
        });
    }
    if let Some(worker) = stack.outputs.get("WorkerFunction") {
        findings.push(fed(services, worker).await);
    }
    findings
}

async fn state(services: &Services, function: &str) -> Result<(Value, Option<u64>), Refusal> {
    let path = format!("/2015-03-31/functions/{function}/configuration");
    let state = services.get(Service::LAMBDA, "GetFunctionConfiguration", &path).await?;
    let path = format!("/2019-09-30/functions/{function}/concurrency");
    let reserved = services.get(Service::LAMBDA, "GetFunctionConcurrency", &path).await?;
    Ok((state, reserved["ReservedConcurrentExecutions"].as_u64()))
}

fn missing(check: &str, refusal: &Refusal, function: &str) -> CheckFinding {
    match refusal {
        Refusal::Other { code, .. } if code == "ResourceNotFoundException" => {
            CheckFinding::wrong(check, format!("{function} does not exist"), PUT_BACK)
        }
        refusal => CheckFinding::refused(check, refusal),
    }
}

fn running(check: &str, function: &str, state: &Value, reserved: Option<u64>) -> CheckFinding {
    let word = |name: &str| state[name].as_str().unwrap_or("Active");
    if reserved == Some(0) {
        return CheckFinding::wrong(
            check,
            format!("{function} is stopped: its reserved concurrency is 0"),
            format!("`aws lambda delete-function-concurrency --function-name {function}`"),
        );
    }
    match (word("State"), state["LastUpdateStatus"].as_str().unwrap_or("Successful")) {
        ("Active" | "Inactive", "Successful") => CheckFinding::ok(check, format!("{function} is active")),
        ("Active" | "Inactive" | "Pending", update) if update != "Failed" => {
            CheckFinding::warning(check, format!("{function} is being updated"), "run this again after the update")
        }
        (found, update) => {
            let why = state["LastUpdateStatusReason"].as_str().or(state["StateReason"].as_str()).unwrap_or_default();
            CheckFinding::wrong(check, format!("{function}: {found}, its last update {update}. {why}"), "deploy again")
        }
    }
}

async fn fed(services: &Services, worker: &str) -> CheckFinding {
    const CHECK: &str = "wake-ups";
    let path = format!("/2015-03-31/event-source-mappings/?FunctionName={worker}");
    let mapping = match services.get(Service::LAMBDA, "ListEventSourceMappings", &path).await {
        Ok(told) => told["EventSourceMappings"][0].clone(),
        Err(Refusal::Other { code, .. }) if code == "ResourceNotFoundException" => Value::Null,
        Err(refusal) => return CheckFinding::refused(CHECK, &refusal),
    };
    match mapping["State"].as_str() {
        Some("Enabled") => CheckFinding::ok(CHECK, "Lambda starts workers from the queue"),
        Some(state) => {
            let id = mapping["UUID"].as_str().unwrap_or_default();
            CheckFinding::wrong(
                CHECK,
                format!("Lambda starts no worker: the queue's event source mapping is {state}. Deliveries wait"),
                format!("`aws lambda update-event-source-mapping --uuid {id} --enabled`"),
            )
        }
        None => CheckFinding::wrong(CHECK, "Lambda starts no worker: the queue has no event source mapping", PUT_BACK),
    }
}

/// Regions without Lambda Function URLs. The GovCloud regions, which are not listed, have none either.
/// A test compares the list with `tests/template/regions.json`.
const WITHOUT_FUNCTION_URLS: [&str; 11] = [
    "ap-east-2",
    "ap-south-2",
    "ap-southeast-4",
    "ap-southeast-5",
    "ap-southeast-6",
    "ap-southeast-7",
    "ca-west-1",
    "eu-central-2",
    "il-central-1",
    "me-central-1",
    "mx-central-1",
];

pub fn door(region: &str, stack: &Stack) -> CheckFinding {
    const CHECK: &str = "door";
    let door = stack.parameters.get("FrontDoor").map_or("function-url", String::as_str);
    if door != "http-api" && (WITHOUT_FUNCTION_URLS.contains(&region) || region.starts_with("us-gov-")) {
        let says = format!("FrontDoor is {door}, but Lambda has no Function URLs in {region}");
        return CheckFinding::warning(CHECK, says, "deploy with FrontDoor=http-api");
    }
    CheckFinding::ok(CHECK, door)
}

/// Checks that alarms reach somebody through the topic of the observability stack. The stack must have the name that
/// samconfig.toml gives it, because other names are not searched.
pub async fn alarms(services: &Services, stack: &Stack) -> CheckFinding {
    const CHECK: &str = "alarm topic";
    let name = format!("{}-observability", stack.name);
    let observability = Stack::find(services, &name).await;
    let Some(arn) = observability.as_ref().ok().and_then(|found| found.outputs.get("Topic")) else {
        let advice = "sam deploy --config-env observability --parameter-overrides Email=YOU@EXAMPLE.COM";
        let says = format!("there is no stack `{name}` with alarms; other names are not searched");
        return CheckFinding::warning(CHECK, says, advice);
    };
    let told = services.query(Service::SNS, "2010-03-31", "GetTopicAttributes", &[("TopicArn", arn)]).await;
    let attributes = match told {
        Ok(told) => told.what.pairs(&["GetTopicAttributesResult", "Attributes"], ["key", "value"]),
        Err(Refusal::Other { code, .. }) if code.starts_with("NotFound") => {
            let advice = "deploy the observability stack again";
            return CheckFinding::wrong(CHECK, format!("{arn} does not exist, so nobody gets alarms"), advice);
        }
        Err(refusal) => return CheckFinding::refused(CHECK, &refusal),
    };
    let value = |name: &str| attributes.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
    let key = value("KmsMasterKeyId");
    if key.ends_with("alias/aws/sns") {
        return CheckFinding::wrong(
            CHECK,
            "the topic is encrypted with AWS's own key for SNS, which CloudWatch may not use, so no alarm arrives",
            "encrypt the topic with your own key, and allow cloudwatch.amazonaws.com in its policy; or do not encrypt \
             it",
        );
    }
    if !key.is_empty() {
        match lets_cloudwatch(services, key).await {
            Ok(true) => {}
            Ok(false) => {
                return CheckFinding::wrong(
                    CHECK,
                    format!(
                        "the topic is encrypted with {key}, whose policy does not name CloudWatch, so no alarm arrives"
                    ),
                    "allow cloudwatch.amazonaws.com kms:Decrypt and kms:GenerateDataKey* in the key's policy",
                );
            }
            Err(refusal) => {
                let CheckFinding { says, .. } = CheckFinding::refused(CHECK, &refusal);
                return CheckFinding::not_made(
                    CHECK,
                    format!(
                        "the topic is encrypted with {key}; doctor cannot see whether CloudWatch may use it: {says}"
                    ),
                );
            }
        }
    }
    match value("SubscriptionsConfirmed").parse::<u64>() {
        Ok(0) => CheckFinding::warning(
            CHECK,
            "the topic has no confirmed subscription, so nobody gets alarms",
            "subscribe an address, and confirm the e-mail that arrives",
        ),
        Ok(count) => CheckFinding::ok(CHECK, format!("subscriptions: {count}; CloudWatch may publish to the topic")),
        Err(_) => CheckFinding::ok(CHECK, "CloudWatch may publish to the topic"),
    }
}

async fn lets_cloudwatch(services: &Services, key: &str) -> Result<bool, Refusal> {
    let described = services.json(Service::KMS, "TrentService.DescribeKey", &json!({ "KeyId": key })).await?;
    let id = described["KeyMetadata"]["KeyId"].as_str().unwrap_or(key).to_owned();
    let question = json!({ "KeyId": id, "PolicyName": "default" });
    let told = services.json(Service::KMS, "TrentService.GetKeyPolicy", &question).await?;
    Ok(told["Policy"].as_str().is_some_and(|policy| policy.contains("cloudwatch.amazonaws.com")))
}

#[cfg(test)]
mod tests {
    use super::super::finding::CheckVerdict;
    use super::*;

    #[test]
    fn region_without_function_urls_gets_a_warning() {
        let stack =
            |door: &str| Stack { parameters: [("FrontDoor".to_owned(), door.to_owned())].into(), ..Stack::default() };
        assert_eq!(door("eu-central-2", &stack("function-url")).verdict, CheckVerdict::Warning);
        assert_eq!(door("us-gov-west-1", &stack("both")).verdict, CheckVerdict::Warning);
        assert_eq!(door("eu-central-2", &stack("http-api")).verdict, CheckVerdict::Ok);
        assert_eq!(door("eu-central-1", &stack("function-url")).verdict, CheckVerdict::Ok);
    }

    #[test]
    fn clock_ahead_of_response_date_gets_a_warning() {
        let now = |seconds: u64| Timestamp::from_secs(1_795_248_000 + seconds);
        let told = |at| clock(Some("Sat, 21 Nov 2026 08:00:00 GMT"), at);
        assert_eq!(told(now(2)).verdict, CheckVerdict::Ok);
        assert_eq!(told(now(90)).verdict, CheckVerdict::Warning);
        assert!(told(now(90)).says.contains("2 min ahead of") || told(now(90)).says.contains("min ahead of"));
        assert_eq!(clock(None, now(0)).verdict, CheckVerdict::NotMade);
    }

    #[test]
    fn reserved_concurrency_of_zero_fails_the_check() {
        let active = json!({ "State": "Active", "LastUpdateStatus": "Successful" });
        assert_eq!(running("f", "f", &active, None).verdict, CheckVerdict::Ok);
        assert_eq!(running("f", "f", &active, Some(0)).verdict, CheckVerdict::Wrong);
        let failed = json!({ "State": "Active", "LastUpdateStatus": "Failed", "LastUpdateStatusReason": "no role" });
        assert!(running("f", "f", &failed, None).says.contains("no role"));
    }
}
