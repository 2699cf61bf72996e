//! Functions: that they start with what they are given, and are started at all.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use serializer::local::{BATCH, FUNCTION_TIMEOUT};
use webhook_serializer::{
    config::{SourcesOrigin, StoreConfig, WorkerConfig, detailed_metrics, parked_retention, scheduler_time},
    engine::queue::LONGEST_DELAY,
    sources::Sources,
    telemetry::NAMESPACE,
};

use super::{Case, Objections};
use crate::document::{Deployed, Template};

/// Each function with its program.
const FUNCTIONS: [(&str, &str); 3] = [("Ingest", "ingest"), ("Worker", "worker"), ("Scheduler", "scheduler")];

pub fn check(case: &Case, objections: &mut Objections) {
    let deployed = &case.deployed;
    let found: Vec<_> = deployed.of_type("AWS::Serverless::Function").into_keys().collect();
    objections.unless(found == ["Ingest", "Scheduler", "Worker"], || format!("the functions are {found:?}"));
    for (function, program) in FUNCTIONS {
        common(case, function, program, objections);
    }
    ingest(case, objections);
    worker(case, objections);
    scheduler(case, objections);
}

/// What is so of each.
fn common(case: &Case, function: &str, program: &str, objections: &mut Objections) {
    let deployed = &case.deployed;
    let debug = case.parameter("LogLevel") == "DEBUG";
    let mut at = |path: &str, value: Value| objections.unless_at(deployed, &format!("{function} {path}"), value);
    // As `.ci/deployable` builds them.
    at("Metadata BuildMethod", json!("rust-cargolambda"));
    at("Metadata BuildProperties", json!({ "Binary": program }));
    at("Properties CodeUri", json!(format!("functions/{program}")));
    at("Properties Runtime", json!("provided.al2023"));
    at("Properties Architectures", json!(["arm64"]));
    at("Properties Handler", json!("bootstrap"));
    at("Properties Role", json!(format!("{function}Role.Arn")));
    let mode = if case.parameter("Tracing") == "on" { "Active" } else { "PassThrough" };
    at("Properties Tracing", json!(mode));
    // Metrics are lines of the log: text, or a level above theirs, and no alarm sees anything.
    let logging = json!({
        "LogFormat": "JSON",
        "ApplicationLogLevel": case.parameter("LogLevel"),
        "SystemLogLevel": if debug { "INFO" } else { "WARN" },
        "LogGroup": format!("{function}Logs"),
    });
    at("Properties LoggingConfig", logging);
    let logs = format!("{function}Logs Properties");
    objections.unless_at(deployed, &format!("{logs} RetentionInDays"), case.parameter("LogRetentionDays"));
    objections.unless_at(deployed, &format!("{function}Logs Type"), "AWS::Logs::LogGroup");
    let name = format!("/aws/lambda/${{AWS::StackName}}-{program}");
    objections.unless_at(deployed, &format!("{logs} LogGroupName"), name);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    objections.unless(root.join("functions").join(program).join("Cargo.toml").is_file(), || {
        format!("{function} has no code")
    });

    let variables = variables(deployed, function);
    let variables = &borrowed(&variables)[..];
    match StoreConfig::read(&variables) {
        Err(error) => objections.unless(false, || format!("{function}: {error}")),
        Ok(store) => {
            let days = |name| case.parameter(name).parse::<u64>().expect("a number");
            // Who else parks is a person with the command, which asks the stack.
            let parked = parked_retention(days("ParkedRetentionDays"));
            let wanted = StoreConfig {
                entities_table: case.table("EntitiesTable"),
                inbox_table: case.table("InboxTable"),
                queue_url: "WakeUps".into(),
                retention: Duration::from_secs(86_400 * days("RetentionDays")),
                parked_retention: parked.filter(|_| function == "Worker"),
            };
            objections.unless(store == wanted, || format!("{function} works on {store:?}"));
        }
    }
    let namespace = format!("{NAMESPACE}/${{AWS::StackName}}");
    let path = format!("{function} Properties Environment Variables METRICS_NAMESPACE");
    objections.unless_at(deployed, &path, namespace);
    // Read by the code, as the parameter says.
    let is_detailed = detailed_metrics(&variables);
    let asked_for = case.parameter("DetailedMetrics") == "on";
    objections.unless(is_detailed == asked_for, || format!("{function} measures in detail: {is_detailed}"));
    let path = format!("{function} Properties Environment Variables DETAILED_METRICS");
    objections.unless_at(deployed, &path, case.parameter("DetailedMetrics"));
}

/// What a version of a function holds is published when it changes, and moves
/// behind the alias as the parameter says, watched by these alarms.
fn released(case: &Case, function: &str, alarms: &[&str], described: &[&str], objections: &mut Objections) {
    let deployed = &case.deployed;
    let mut at = |path: &str, value: Value| objections.unless_at(deployed, &format!("{function} {path}"), value);
    at("Properties AutoPublishAlias", json!("live"));
    at("Properties AutoPublishAliasAllProperties", json!("true"));
    at("Properties DeploymentPreference Enabled", json!(case.is_gradual().to_string()));
    at("Properties DeploymentPreference Type", case.parameter("DeploymentPreference").into());
    let alarms = if case.tells() || case.is_gradual() { json!(alarms) } else { json!([]) };
    at("Properties DeploymentPreference Alarms", alarms);
    let sources = if case.is_given("SourcesSecretArn") { "SourcesSecretArn" } else { "SourcesParameter" };
    let words = described.iter().map(|name| case.parameter(if *name == "Sources" { sources } else { name }));
    at("Properties VersionDescription", json!(words.collect::<Vec<_>>().join(" ")));
}

/// Every parameter that a version of the function holds is named in what it is
/// published by: another value would reach the alias no other way.
pub fn check_published(template: &Template, objections: &mut Objections) {
    // These are of the function, of its event source, or of its release.
    let besides = ["ReservedConcurrentExecutions", "Events", "DeploymentPreference", "VersionDescription"];
    for function in ["Ingest", "Worker"] {
        let mut properties = template.0["Resources"][function]["Properties"].clone();
        let named = properties["VersionDescription"].to_string();
        besides.iter().for_each(|name| drop(properties.as_object_mut().and_then(|all| all.remove(*name))));
        let held = [&properties, &template.0["Globals"]].map(Value::to_string);
        let used = |name: &str, text: &str| {
            text.contains(&format!(r#"{{"Ref":"{name}"}}"#)) || text.contains(&format!("${{{name}}}"))
        };
        for parameter in template.defaults().keys() {
            if held.iter().any(|text| used(parameter, text)) && !used(parameter, &named) {
                objections.unless(false, || format!("another {parameter} publishes no version of {function}"));
            }
        }
    }
}

fn ingest(case: &Case, objections: &mut Objections) {
    let deployed = &case.deployed;
    // An answer within 3.5 s, and a cold start before it.
    objections.unless_at(deployed, "Ingest Properties Timeout", "10");
    objections.unless_at(deployed, "Ingest Properties MemorySize", case.parameter("IngestMemory"));
    let reserved = Some(case.parameter("IngestConcurrency")).filter(|reserved| reserved != "0");
    objections.unless_at(deployed, "Ingest Properties ReservedConcurrentExecutions", reserved);
    let origin = Some(case.parameter("OriginSecret")).filter(|origin| !origin.is_empty());
    let origin = origin.map(|origin| format!("{{{{resolve:ssm:{origin}}}}}"));
    objections.unless_at(deployed, "Ingest Properties Environment Variables ORIGIN_SECRET", origin);
    let described = [
        "IngestMemory",
        "LogLevel",
        "Tracing",
        "DetailedMetrics",
        "RetentionDays",
        "Sources",
        "OriginSecret",
        "EntitiesTableName",
        "InboxTableName",
    ];
    released(case, "Ingest", &["IngestErrorsAlarm", "UnavailableAlarm", "DeferredAlarm"], &described, objections);
    reads_its_sources(case, "Ingest", objections);
}

fn worker(case: &Case, objections: &mut Objections) {
    let deployed = &case.deployed;
    let mut at = |path: &str, value: Value| objections.unless_at(deployed, &format!("Worker {path}"), value);
    at("Properties Timeout", case.parameter("WorkerTimeout").into());
    at("Properties MemorySize", case.parameter("WorkerMemory").into());
    // Put-offs are sent to the queue that the worker is fed from.
    at("Properties RecursiveLoop", json!("Allow"));
    at(
        "Properties Events",
        json!({ "WakeUps": { "Type": "SQS", "Properties": {
            "Queue": "WakeUps.Arn",
            "BatchSize": case.parameter("WorkerBatchSize"),
            // Without it, one message that was not served is deleted with the rest of its batch.
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "ScalingConfig": { "MaximumConcurrency": case.parameter("WorkerConcurrency") },
        }}}),
    );
    reads_its_sources(case, "Worker", objections);
    let described = [
        "WorkerTimeout",
        "WorkerMemory",
        "LogLevel",
        "Tracing",
        "DetailedMetrics",
        "RetentionDays",
        "ParkedRetentionDays",
        "Sources",
        "EntitiesTableName",
        "InboxTableName",
    ];
    released(case, "Worker", &["WorkerErrorsAlarm", "ParkedAlarm", "BlockedAlarm"], &described, objections);
    if case.given.is_empty() {
        // A run on one's own machine is what is deployed by default.
        objections.unless_at(deployed, "Worker Properties Timeout", FUNCTION_TIMEOUT.as_secs().to_string());
        objections.unless_at(deployed, "Worker Properties Events WakeUps Properties BatchSize", BATCH.to_string());
    }
}

fn scheduler(case: &Case, objections: &mut Objections) {
    let deployed = &case.deployed;
    let told = variables(deployed, "Scheduler");
    let told = scheduler_time(&&borrowed(&told)[..]).map(|time| time.as_secs().to_string());
    let timeout = deployed.text("Scheduler Properties Timeout");
    objections
        .unless(told.as_deref().ok() == timeout, || format!("the scheduler has {timeout:?} and is told {told:?}"));
    let mut at = |path: &str, value: Value| objections.unless_at(deployed, &format!("Scheduler {path}"), value);
    at("Properties Timeout", json!("300"));
    at("Properties MemorySize", json!("256"));
    at("Properties Environment Variables STAGE", case.parameter("Stage").into());
    at("Properties Environment Variables SWEEP_ROWS", case.parameter("SweepRowsPerMinute").into());
    at("Properties Environment Variables JOBS", case.parameter("Jobs").into());
    // The sweep finds what was left, a segment each minute.
    at(
        "Properties Events",
        json!({ "EveryMinute": { "Type": "Schedule", "Properties": {
            "Schedule": "cron(* * * * ? *)",
        }}}),
    );
    // What is older than its time to run would only be in the way of newer minutes.
    at("Properties EventInvokeConfig", json!({ "MaximumRetryAttempts": "1", "MaximumEventAgeInSeconds": "300" }));
}

/// From the one place or the other.
fn reads_its_sources(case: &Case, function: &str, objections: &mut Objections) {
    let held = variables(&case.deployed, function);
    let wanted = match case.parameter("SourcesSecretArn") {
        none if none.is_empty() => SourcesOrigin::Parameter(case.parameter("SourcesParameter")),
        arn => SourcesOrigin::Secret(arn),
    };
    let origin = SourcesOrigin::read(&&borrowed(&held)[..]);
    objections.unless(origin.as_ref() == Ok(&wanted), || format!("{function} reads its sources from {origin:?}"));
}

/// Every choice of the worker's time is a configuration that starts.
pub fn check_worker_timeout(template: &Template, choice: &str, objections: &mut Objections) {
    let deployed = template.deployed(&[("WorkerTimeout", choice)]);
    let seconds: u64 = choice.parse().expect("a number");
    // A handler's time that the parameter's description promises.
    let handler_timeout = seconds - 5;
    let sources = Sources::parse(&format!(
        "[sources.shop]\nprovider='shopify'\nsecrets=['s']\nhandler='log'\nhandler_timeout='{handler_timeout}s'"
    ));
    let variables = variables(&deployed, "Worker");
    let config = match WorkerConfig::read(&&borrowed(&variables)[..], &sources.expect("it is right")) {
        Ok(config) => config,
        Err(error) => {
            objections.unless(false, || format!("WorkerTimeout {choice}: {error}"));
            return;
        }
    };
    // What the worker is told is what is deployed, and nothing is left to a default of its own.
    for told in ["FUNCTION_TIMEOUT_SECONDS", "VISIBILITY_TIMEOUT_SECONDS", "LEASE_SECONDS"] {
        objections.unless(variables.iter().any(|(name, _)| name == told), || format!("a worker is not told {told}"));
    }
    let told = |time: Duration| time.as_secs().to_string();
    objections.unless_at(&deployed, "Worker Properties Timeout", told(config.function_timeout));
    objections.unless_at(&deployed, "WakeUps Properties VisibilityTimeout", told(config.visibility_timeout));
    // A dead worker's message comes back within half its time more, its lease ends within seconds.
    objections.unless(config.visibility_timeout == config.function_timeout * 3 / 2, || {
        format!("WorkerTimeout {choice}: a message is hidden for {:?}", config.visibility_timeout)
    });
    let lease = Duration::from_secs(15).min(config.function_timeout / 3);
    objections.unless(config.lease == lease, || format!("WorkerTimeout {choice}: a lease of {:?}", config.lease));
    // Older than the longest put-off, and three times that it was hidden: nobody receives it.
    let told_of = template.deployed(&[("WorkerTimeout", choice), ("AlarmEmail", "people@example.com")]);
    let stuck = told(LONGEST_DELAY + 3 * config.visibility_timeout);
    objections.unless_at(&told_of, "QueueStuckAlarm Properties Threshold", stuck);
}

/// Every choice but the first moves the alias step by step.
pub fn check_deployment_preference(template: &Template, choice: &str, objections: &mut Objections) {
    let deployed = template.deployed(&[("DeploymentPreference", choice)]);
    for function in ["Ingest", "Worker"] {
        let path = format!("{function} Properties DeploymentPreference Enabled");
        objections.unless_at(&deployed, &path, (choice != "AllAtOnce").to_string());
    }
    objections.0.extend(deployed.broken);
}

fn variables(deployed: &Deployed, function: &str) -> Vec<(String, String)> {
    let held = deployed.at(&format!("{function} Properties Environment Variables")).as_object();
    held.into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect()
}

fn borrowed(variables: &[(String, String)]) -> Vec<(&str, &str)> {
    variables.iter().map(|(name, value)| (&**name, &**value)).collect()
}
