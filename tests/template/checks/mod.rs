//! What has to hold of the template, as functions of it: what each returns
//! is what it objects to. `main.rs` asks them about the real one, `mutations.rs`
//! about each that lacks something.

mod alarms;
mod dashboard;
mod data;
mod front_door;
mod functions;
mod queues;
mod roles;

use serde_json::Value;

use crate::{
    document::{Deployed, Template},
    grants::AskedByFunctions,
};

/// What is objected to, a sentence each.
#[derive(Debug, Default)]
pub struct Objections(Vec<String>);

impl Objections {
    /// Objects, unless `holds`.
    fn unless(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.0.push(otherwise());
        }
    }

    /// Objects, unless `value` stands at `path`.
    fn unless_at(&mut self, deployed: &Deployed, path: &str, value: impl Into<Value>) {
        let (found, value) = (deployed.at(path), value.into());
        self.unless(*found == value, || format!("{path} is {found}, not {value}"));
    }
}

/// One way to deploy: parameters that differ from their defaults.
pub type Given = &'static [(&'static str, &'static str)];

/// The defaults; and all of them otherwise, so that a value which stands where a
/// parameter should be is told from it.
const WAYS: [Given; 6] = [
    &[],
    &[
        ("SourcesSecretArn", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:sources-Ab12Cd"),
        ("SourcesKeyArn", "arn:aws:kms:eu-central-1:123456789012:key/mine"),
        ("FrontDoor", "http-api"),
        ("DomainName", "webhooks.example.com"),
        ("CertificateArn", "arn:aws:acm:eu-central-1:123456789012:certificate/mine"),
        ("OriginSecret", "/webhook-serializer/origin:3"),
        ("HttpApiRate", "31"),
        ("HttpApiBurst", "32"),
        ("IngestConcurrency", "33"),
        ("IngestMemory", "512"),
        ("WorkerTimeout", "120"),
        ("WorkerConcurrency", "34"),
        ("WorkerBatchSize", "3"),
        ("WorkerMemory", "1024"),
        (
            "InvokeFunctionArns",
            "arn:aws:lambda:eu-central-1:123456789012:function:orders:live,arn:aws:lambda:eu-central-1:123456789012:function:mails",
        ),
        ("RetentionDays", "35"),
        ("ParkedRetentionDays", "90"),
        ("LogRetentionDays", "365"),
        ("SweepRowsPerMinute", "36000"),
        ("TableKeyArn", "arn:aws:kms:eu-central-1:123456789012:key/of-the-tables"),
        ("EntitiesTableName", "restored-entities"),
        ("InboxTableName", "restored-inbox"),
        ("Stage", "staging"),
        ("Jobs", "report"),
        ("AlarmTopicArn", "arn:aws:sns:eu-central-1:123456789012:alarms"),
        ("AlarmEmail", "people@example.com"),
        ("DetailedMetrics", "on"),
        ("DeploymentPreference", "Canary10Percent5Minutes"),
        ("OldestWaitingAlarmSeconds", "360"),
        ("InversionsAlarmCount", "37"),
        ("LogLevel", "DEBUG"),
        ("Tracing", "on"),
    ],
    &[
        ("SourcesParameter", "/mine"),
        ("SourcesKeyArn", "arn:aws:kms:eu-central-1:123456789012:key/mine"),
        ("FrontDoor", "both"),
        // Of the stack's own tables.
        ("TableKeyArn", "arn:aws:kms:eu-central-1:123456789012:key/of-the-tables"),
        ("AlarmEmail", "people@example.com"),
    ],
    // A domain of no door, half a domain; and nobody to tell of what is rolled back.
    &[
        ("DomainName", "webhooks.example.com"),
        ("CertificateArn", "arn:aws:acm:eu-central-1:123456789012:certificate/mine"),
        ("DeploymentPreference", "Linear10PercentEvery1Minute"),
    ],
    &[("DomainName", "webhooks.example.com"), ("FrontDoor", "http-api")],
    &[("AlarmTopicArn", "arn:aws:sns:eu-central-1:123456789012:alarms"), ("FrontDoor", "http-api")],
];

/// One deploy, and what it was made with.
pub struct Case {
    /// What is deployed.
    pub deployed: Deployed,
    given: Given,
}

impl Case {
    /// A parameter's value.
    pub fn parameter(&self, name: &str) -> String {
        self.deployed.parameters[name].clone()
    }

    fn has_http_api(&self) -> bool {
        self.parameter("FrontDoor") != "function-url"
    }

    fn has_function_url(&self) -> bool {
        self.parameter("FrontDoor") != "http-api"
    }

    fn is_given(&self, parameter: &str) -> bool {
        !self.parameter(parameter).is_empty()
    }

    /// Whether somebody is told of alarms.
    fn tells(&self) -> bool {
        self.is_given("AlarmTopicArn") || self.is_given("AlarmEmail")
    }

    /// Whether a new version takes over step by step.
    fn is_gradual(&self) -> bool {
        self.parameter("DeploymentPreference") != "AllAtOnce"
    }

    /// What a table is called: as it was given, or the stack's own.
    fn table(&self, own: &str) -> String {
        Some(self.parameter(&format!("{own}Name"))).filter(|name| !name.is_empty()).unwrap_or_else(|| own.to_owned())
    }

    /// What a role is to be granted something on.
    fn arn(&self, resource: &str) -> String {
        if !resource.ends_with("Table") || self.table(resource) == resource {
            return format!("{resource}.Arn");
        }
        let name = self.table(resource);
        format!("arn:${{AWS::Partition}}:dynamodb:${{AWS::Region}}:${{AWS::AccountId}}:table/{name}")
    }
}

/// Everything that is objected to, looked for as it is asked for.
pub fn objections<'a>(template: &'a Template, asked: &'a AskedByFunctions) -> impl Iterator<Item = String> + 'a {
    type Check = fn(&Case, &AskedByFunctions, &mut Objections);
    let checks: [Check; 7] = [
        |case, _, all| data::check(case, all),
        |case, _, all| queues::check(case, all),
        |case, _, all| functions::check(case, all),
        roles::check,
        |case, _, all| front_door::check(case, all),
        |case, _, all| alarms::check(case, all),
        |case, _, all| dashboard::check(case, all),
    ];
    let found = |check: &mut dyn FnMut(&mut Objections)| {
        let mut found = Objections::default();
        check(&mut found);
        found.0
    };
    let deployed = WAYS.into_iter().flat_map(move |given| {
        let case = Case { deployed: template.deployed(given), given };
        let broken = case.deployed.broken.clone();
        broken
            .into_iter()
            .chain(checks.into_iter().flat_map(move |check| found(&mut |objections| check(&case, asked, objections))))
    });
    let deployed = deployed.chain(found(&mut |objections| functions::check_published(template, objections)));
    let choices = template.choices("WorkerTimeout").into_iter();
    let timeouts = choices.flat_map(move |choice| {
        found(&mut |objections| functions::check_worker_timeout(template, &choice, objections))
    });
    let preferences = template.choices("DeploymentPreference").into_iter().flat_map(move |choice| {
        found(&mut |objections| functions::check_deployment_preference(template, &choice, objections))
    });
    deployed.chain(timeouts).chain(preferences)
}
