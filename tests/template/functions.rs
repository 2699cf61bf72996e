//! The functions start with the variables that the template gives them.

use std::time::Duration;

use serde_json::json;
use serializer::local::{BATCH, FUNCTION_TIMEOUT};
use webhook_serializer::{
    config::{SourcesOrigin, StoreConfig, WorkerConfig, scheduler_time},
    engine::queue::LONGEST_DELAY,
    functions::scheduler::SchedulerSettings,
    sources::Sources,
    telemetry::NAMESPACE,
};

use crate::{SECRET, core, document::DeployedTemplate};

type Set = Vec<(String, String)>;

fn borrowed(variables: &Set) -> Vec<(&str, &str)> {
    variables.iter().map(|(name, value)| (&**name, &**value)).collect()
}

/// Returns a source whose handler takes as long as the description of `WorkerTimeout` allows.
fn sources(worker_timeout: u64) -> Sources {
    let document = format!(
        "[sources.shop]\nprovider='shopify'\nsecrets=['s']\nhandler='log'\nhandler_timeout='{}s'",
        worker_timeout - 5
    );
    Sources::parse(&document).expect("it is right")
}

/// Promise: existing tables are used by their prefix: rights, variables and dashboard follow.
///
/// Promise: repeats are recognised for the retention, 30 days by default.
#[test]
fn functions_receive_the_template_parameters() {
    let given = [
        ("Sources", SECRET),
        ("Tables", "restored"),
        ("RetentionDays", "7"),
        ("ParkedRetentionDays", "90"),
        ("FairQueue", "true"),
    ];
    let deployed = core().deployed(&given);
    for function in ["Ingest", "Worker", "Scheduler"] {
        let variables = deployed.variables(function);
        let store = StoreConfig::read(&&borrowed(&variables)[..]).unwrap_or_else(|error| panic!("{function}: {error}"));
        let days = |days: u64| Duration::from_secs(86_400 * days);
        assert_eq!(
            (store.entities_table.as_str(), store.inbox_table.as_str()),
            ("restored-entities", "restored-inbox")
        );
        assert_eq!((store.queue_url.as_str(), store.retention, store.fair_queue), ("WakeUps", days(7), true));
        assert_eq!(store.parked_retention, (function == "Worker").then(|| days(90)), "people ask the stack");
        let namespace = format!("{NAMESPACE}/${{AWS::StackName}}");
        assert!(variables.contains(&("METRICS_NAMESPACE".into(), namespace)), "{function}");
        let program = function.to_lowercase();
        assert_eq!(deployed.text(&format!("{function} Metadata BuildProperties Binary")), program);
        assert_eq!(deployed.text(&format!("{function} Properties CodeUri")), format!("functions/{program}"));
        // Metrics are log lines without a level, and REPORT lines have the level INFO.
        let logging = json!({
            "LogFormat": "JSON", "ApplicationLogLevel": "INFO", "SystemLogLevel": "INFO", "LogGroup": format!("{function}Logs"),
        });
        assert_eq!(*deployed.at(&format!("{function} Properties LoggingConfig")), logging);
        // `serializer doctor` and `listen` look for a log group of this name. docs/data.md promises its
        // retention.
        let group =
            json!({ "LogGroupName": format!("/aws/lambda/${{AWS::StackName}}-{program}"), "RetentionInDays": "30" });
        assert_eq!(*deployed.at(&format!("{function}Logs Properties")), group);
    }
    for (sources, origin) in [
        ("", SourcesOrigin::Parameter("/${AWS::StackName}/sources".into())),
        ("/shop/sources", SourcesOrigin::Parameter("/shop/sources".into())),
        (SECRET, SourcesOrigin::Secret(SECRET.into())),
    ] {
        let deployed = core().deployed(&[("Sources", sources)]);
        for function in ["Ingest", "Worker", "Scheduler"] {
            let variables = deployed.variables(function);
            assert_eq!(SourcesOrigin::read(&&borrowed(&variables)[..]), Ok(origin.clone()), "of its own stack");
        }
    }
}

/// Each function's variables in the first release. CloudFormation updates code before variables, so a
/// function of any later release has to start with these too.
const FIRST_RELEASE: [(&str, &[&str]); 3] = [
    ("Ingest", &["ENTITIES_TABLE", "INBOX_TABLE", "METRICS_NAMESPACE", "QUEUE_URL", "RETENTION_DAYS", "SOURCES"]),
    (
        "Worker",
        &[
            "ENTITIES_TABLE",
            "FUNCTION_TIMEOUT_SECONDS",
            "INBOX_TABLE",
            "LEASE_SECONDS",
            "METRICS_NAMESPACE",
            "PARKED_RETENTION_DAYS",
            "QUEUE_URL",
            "RETENTION_DAYS",
            "SOURCES",
            "VISIBILITY_TIMEOUT_SECONDS",
        ],
    ),
    (
        "Scheduler",
        &[
            "ENTITIES_TABLE",
            "FUNCTION_TIMEOUT_SECONDS",
            "INBOX_TABLE",
            "JOBS",
            "METRICS_NAMESPACE",
            "QUEUE_URL",
            "RETENTION_DAYS",
        ],
    ),
];

/// Promise: a new release starts with the last one's variables; SAM keeps previous values.
#[test]
fn functions_accept_variables_of_the_first_release() {
    let deployed = core().deployed(&[]);
    for (function, names) in FIRST_RELEASE {
        let mut variables = deployed.variables(function);
        let is_kept = |name: &&&str| variables.iter().any(|(held, _)| held == **name);
        assert_eq!(names.iter().filter(is_kept).count(), names.len(), "{function}: a variable is gone or renamed");
        variables.retain(|(name, _)| names.contains(&name.as_str()));
        let variables = &borrowed(&variables)[..];
        StoreConfig::read(&variables).unwrap();
        match function {
            "Scheduler" => drop(SchedulerSettings::read(&variables).unwrap()),
            _ => drop(SourcesOrigin::read(&variables).unwrap()),
        }
        if function == "Worker" {
            WorkerConfig::read(&variables, &sources(60)).unwrap();
        }
    }
}

fn seconds(deployed: &DeployedTemplate, path: &str) -> Duration {
    Duration::from_secs(deployed.text(path).parse().expect("a number"))
}

/// Promise: lease and visibility timeout fit every `WorkerTimeout`.
#[test]
fn lease_and_visibility_fit_every_worker_timeout() {
    for timeout in ["30", "60", "120", "300", "900"] {
        let deployed = core().deployed(&[("WorkerTimeout", timeout)]);
        let variables = deployed.variables("Worker");
        let config = WorkerConfig::read(&&borrowed(&variables)[..], &sources(timeout.parse().unwrap())).unwrap();
        assert_eq!(config.function_timeout, seconds(&deployed, "Worker Properties Timeout"));
        assert_eq!(config.visibility_timeout, seconds(&deployed, "WakeUps Properties VisibilityTimeout"));
        assert_eq!(config.visibility_timeout, config.function_timeout * 3 / 2);
        assert_eq!(config.lease, Duration::from_secs(15).min(config.function_timeout / 3));
        let stuck = LONGEST_DELAY + 3 * config.visibility_timeout;
        assert_eq!(deployed.outputs["StuckSeconds"], stuck.as_secs().to_string());
    }
}

#[test]
fn queue_invokes_worker_with_configured_concurrency() {
    let deployed = core().deployed(&[("WorkerConcurrency", "34")]);
    let mapping = json!({ "Type": "SQS", "Properties": {
        "Queue": "WakeUps.Arn",
        "BatchSize": BATCH.to_string(),
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": { "MaximumConcurrency": "34" },
    }});
    assert_eq!(*deployed.at("Worker Properties Events WakeUps"), mapping);
    assert_eq!(deployed.text("Worker Properties RecursiveLoop"), "Allow", "a requeued wake-up is a loop to Lambda");
    assert_eq!(seconds(&deployed, "Worker Properties Timeout"), FUNCTION_TIMEOUT, "local runs are like the default");
}

/// Promise: an alert's commands name the stack, so that they work as they are.
#[test]
fn alerts_name_the_stack() {
    let variables = core().deployed(&[]).variables("Scheduler");
    let naming = SchedulerSettings::read(&&borrowed(&variables)[..]).unwrap().deployment;
    assert_eq!(naming.option, format!(" --stack {}", naming.name));
}

#[test]
fn scheduler_runs_once_a_minute() {
    let deployed = core().deployed(&[("Jobs", "-report")]);
    let variables = deployed.variables("Scheduler");
    let time = scheduler_time(&&borrowed(&variables)[..]).unwrap();
    assert_eq!(time, seconds(&deployed, "Scheduler Properties Timeout"));
    assert!(variables.contains(&("JOBS".into(), "-report".into())));
    assert_eq!(deployed.text("Scheduler Properties Events EveryMinute Properties Schedule"), "cron(* * * * ? *)");
    // An older event would only delay the events of newer minutes.
    let retries = json!({ "MaximumRetryAttempts": "1", "MaximumEventAgeInSeconds": "300" });
    assert_eq!(*deployed.at("Scheduler Properties EventInvokeConfig"), retries);
}

#[test]
fn ingest_reserves_concurrency_only_if_configured() {
    let reserved = |of: &str| {
        core().deployed(&[("IngestConcurrency", of)]).at("Ingest Properties ReservedConcurrentExecutions").clone()
    };
    assert_eq!((reserved("0"), reserved("20")), (json!(null), json!("20")));
}
