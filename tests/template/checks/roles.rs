//! Roles: each function may do what it is seen to ask, and nothing else.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Case, Objections};
use crate::grants::{AskedByFunctions, Grants};

/// An action, on what, and under which condition.
type Grant = (String, String, String);

pub fn check(case: &Case, asked: &AskedByFunctions, objections: &mut Objections) {
    let roles =
        [("Ingest", &asked.ingest, true), ("Worker", &asked.worker, true), ("Scheduler", &asked.scheduler, false)];
    let found = case.deployed.of_type("AWS::IAM::Role").len();
    objections.unless(found == roles.len(), || format!("there are {found} roles"));
    for (function, asked, reads_sources) in roles {
        let role = format!("{function}Role");
        let granted = granted(case, &role, objections);
        let wanted = wanted(case, function, asked, reads_sources);
        objections.unless(granted == wanted, || {
            let (more, less) = (granted.difference(&wanted), wanted.difference(&granted));
            format!("{role}: too much {:?}, too little {:?}", more.collect::<Vec<_>>(), less.collect::<Vec<_>>())
        });
        let trust = json!({ "Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Principal": { "Service": "lambda.amazonaws.com" }, "Action": "sts:AssumeRole",
        }]});
        objections.unless_at(&case.deployed, &format!("{role} Properties AssumeRolePolicyDocument"), trust);
    }
}

/// What the one policy of a role grants.
fn granted(case: &Case, role: &str, objections: &mut Objections) -> BTreeSet<Grant> {
    let policies = case.deployed.at(&format!("{role} Properties Policies"));
    objections.unless(policies.as_array().is_some_and(|all| all.len() == 1), || format!("{role} has policies"));
    objections.unless_at(&case.deployed, &format!("{role} Properties Policies 0 PolicyDocument Version"), "2012-10-17");
    let mut granted = BTreeSet::new();
    for statement in policies[0]["PolicyDocument"]["Statement"].as_array().into_iter().flatten() {
        objections.unless(statement["Effect"] == "Allow", || format!("{role}: {statement}"));
        let condition = match &statement["Condition"] {
            Value::Null => String::new(),
            condition => condition.to_string(),
        };
        for action in texts(&statement["Action"]) {
            for resource in texts(&statement["Resource"]) {
                granted.insert((action.clone(), resource, condition.clone()));
            }
        }
    }
    granted
}

fn wanted(case: &Case, function: &str, asked: &Grants, reads_sources: bool) -> BTreeSet<Grant> {
    let mut wanted = BTreeSet::new();
    let mut grant = |action: &str, resource: &str, condition: &str| {
        wanted.insert((action.to_owned(), resource.to_owned(), condition.to_owned()));
    };
    for (action, resource) in asked {
        grant(action, &case.arn(resource), "");
    }
    for action in ["logs:CreateLogStream", "logs:PutLogEvents"] {
        grant(action, &format!("{function}Logs.Arn"), "");
    }
    if reads_sources {
        let secret = case.parameter("SourcesSecretArn");
        let service = if secret.is_empty() { "ssm" } else { "secretsmanager" };
        if secret.is_empty() {
            let name = case.parameter("SourcesParameter");
            let parameter = format!("arn:${{AWS::Partition}}:ssm:${{AWS::Region}}:${{AWS::AccountId}}:parameter{name}");
            grant("ssm:GetParameter", &parameter, "");
        } else {
            grant("secretsmanager:GetSecretValue", &secret, "");
        }
        let key = case.parameter("SourcesKeyArn");
        if !key.is_empty() {
            let through = format!("{service}.${{AWS::Region}}.${{AWS::URLSuffix}}");
            let condition = json!({ "StringEquals": { "kms:ViaService": through } });
            grant("kms:Decrypt", &key, &condition.to_string());
        }
    }
    let functions = case.parameter("InvokeFunctionArns");
    // Each by its whole name: with a qualifier, of that version alone.
    for arn in functions.split(',').filter(|arn| !arn.is_empty() && function == "Worker") {
        grant("lambda:InvokeFunction", arn, "");
    }
    let key = case.parameter("TableKeyArn");
    if !key.is_empty() {
        let condition = json!({ "StringEquals": { "kms:ViaService": "dynamodb.${AWS::Region}.${AWS::URLSuffix}" } });
        for action in ["Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey*", "ReEncrypt*"] {
            grant(&format!("kms:{action}"), &key, &condition.to_string());
        }
    }
    if case.parameter("Tracing") == "on" {
        for action in ["xray:PutTraceSegments", "xray:PutTelemetryRecords"] {
            grant(action, "*", "");
        }
    }
    wanted
}

fn texts(value: &Value) -> Vec<String> {
    let all = match value {
        Value::Array(all) => all.clone(),
        one => vec![one.clone()],
    };
    all.iter().map(crate::document::text).collect()
}
