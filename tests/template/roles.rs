//! Roles: each grants exactly the permissions that its function uses.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    SECRET, TEMPLATES,
    asked::asked,
    core,
    document::{DeployedTemplate, SamTemplate, texts},
    file,
    grants::{AskedByFunctions, Grants},
};

/// An action, a resource, and a condition as JSON.
type Grant = (String, String, String);

/// Promise: only named functions are called, with the qualifier; `local` sends none over `http://`.
///
/// Promise: each role grants what its function needs, and no more.
///
/// Promise: tables can use your key.
#[tokio::test(start_paused = true)]
async fn role_allows_exactly_the_requests_its_function_makes() {
    let asked = asked().await;
    let functions = "arn:aws:lambda:eu-central-1:123456789012:function:orders:live,arn:aws:lambda:eu-central-1:123456789012:function:mails";
    let tables = "arn:aws:dynamodb:eu-central-1:123456789012:table/totals,arn:aws:dynamodb:eu-central-1:123456789012:table/orders";
    for given in [
        &[][..],
        &[("Sources", "/shop/sources"), ("InvokeFunctionArns", functions), ("CommitTableArns", tables)],
        &[
            ("Sources", SECRET),
            ("Tables", "restored"),
            ("TableKeyArn", "arn:aws:kms:eu-central-1:123456789012:key/mine"),
        ],
    ] {
        let deployed = core().deployed(given);
        let AskedByFunctions { ingest, worker, scheduler } = &asked;
        for (function, asked) in [("Ingest", ingest), ("Worker", worker), ("Scheduler", scheduler)] {
            let granted = granted(&deployed, function);
            let wanted = wanted(&deployed, function, asked);
            let (more, less): (Vec<_>, Vec<_>) =
                (granted.difference(&wanted).collect(), wanted.difference(&granted).collect());
            assert!(more.is_empty() && less.is_empty(), "{function}: too much {more:#?}, too little {less:#?}");
        }
    }
}

#[test]
fn roles_carry_the_permissions_boundary() {
    let boundary = "arn:aws:iam::123456789012:policy/boundary";
    let without = core().deployed(&[]);
    let with = core().deployed(&[("PermissionsBoundary", boundary)]);
    for (name, role) in with.of_type("AWS::IAM::Role") {
        assert_eq!(role["PermissionsBoundary"], boundary, "{name}");
        assert_eq!(without.at(&format!("{name} Properties PermissionsBoundary")), &Value::Null);
        let trust = json!([{ "Effect": "Allow", "Principal": { "Service": "lambda.amazonaws.com" }, "Action": "sts:AssumeRole" }]);
        assert_eq!(role["AssumeRolePolicyDocument"]["Statement"], trust, "{name}");
    }
}

/// A second inline policy looks like a manual change of a role that declares its own. A drift-aware
/// change set, the cure for manual changes, would remove it.
///
/// Promise: drift detection finds manual changes, and no others.
#[test]
fn role_with_inline_policies_has_no_second_one() {
    for path in TEMPLATES {
        let resources = &SamTemplate::read(path).0["Resources"];
        for (name, policy) in resources.as_object().expect("a mapping") {
            let kind = policy["Type"].as_str().expect("a type");
            if ["AWS::IAM::Policy", "AWS::IAM::RolePolicy"].contains(&kind) {
                let named = policy["Properties"].to_string();
                let is_named = |role: &&String| named.contains(&format!("{{\"Ref\":\"{role}\"}}"));
                let roles = resources.as_object().expect("a mapping").keys().filter(is_named);
                let twice: Vec<_> =
                    roles.filter(|role| !resources[*role]["Properties"]["Policies"].is_null()).collect();
                assert!(twice.is_empty(), "{path}: {name} is a second inline policy of {twice:?}");
            }
        }
    }
    // A grant of the CDK to an imported role is an inline policy.
    assert!(!file("templates/cdk/app.mjs").contains(".grant"), "the CDK's app advises a second inline policy");
}

/// A function that starts without a policy of its role may fail at its first request.
#[test]
fn function_depends_on_every_policy_of_its_role() {
    let deployed = core().deployed(&[]);
    for function in ["Ingest", "Worker", "Scheduler"] {
        let depends = texts(deployed.at(&format!("{function} DependsOn")));
        let policies = ["AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"].map(|kind| deployed.of_type(kind));
        for (policy, properties) in policies.into_iter().flatten() {
            if texts(&properties["Roles"]).contains(&format!("{function}Role")) {
                assert!(depends.iter().any(|name| name == policy), "{function} may start before {policy}");
            }
        }
    }
}

/// Returns the permissions granted to a function by the policies inside and beside its role.
fn granted(deployed: &DeployedTemplate, function: &str) -> BTreeSet<Grant> {
    let role = format!("{function}Role");
    let own = deployed.at(&format!("{role} Properties Policies")).as_array().into_iter().flatten();
    let shared = ["AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"].map(|kind| deployed.of_type(kind).into_values());
    let shared = shared.into_iter().flatten().filter(|policy| texts(&policy["Roles"]).contains(&role));
    let documents = own.chain(shared).map(|policy| &policy["PolicyDocument"]["Statement"]);
    let mut granted = BTreeSet::new();
    for statement in documents.flat_map(|statements| statements.as_array().expect("a list")) {
        assert_eq!(statement["Effect"], "Allow", "{statement}");
        for action in texts(&statement["Action"]) {
            for resource in texts(&statement["Resource"]) {
                granted.insert((action.clone(), resource, statement["Condition"].to_string()));
            }
        }
    }
    granted
}

fn wanted(deployed: &DeployedTemplate, function: &str, asked: &Grants) -> BTreeSet<Grant> {
    let parameter = |name: &str| deployed.parameters[name].as_str();
    let of_account = |service: &str, rest: &str| {
        format!("arn:${{AWS::Partition}}:{service}:${{AWS::Region}}:${{AWS::AccountId}}:{rest}")
    };
    let through = |service: &str| format!("{service}.${{AWS::Region}}.${{AWS::URLSuffix}}");
    let arn = |resource: &str| match (resource, parameter("Tables")) {
        ("EntitiesTable", prefix) if !prefix.is_empty() => of_account("dynamodb", &format!("table/{prefix}-entities")),
        ("InboxTable", prefix) if !prefix.is_empty() => of_account("dynamodb", &format!("table/{prefix}-inbox")),
        _ => format!("{resource}.Arn"),
    };
    let mut wanted = BTreeSet::new();
    let mut grant = |action: &str, resource: &str, condition: &Value| {
        wanted.insert((action.to_owned(), resource.to_owned(), condition.to_string()));
    };
    for (action, resource) in asked {
        if let Some((table, partition)) = resource.split_once('=') {
            let condition = json!({ "ForAllValues:StringEquals": { "dynamodb:LeadingKeys": [partition] } });
            grant(action, &arn(table), &condition);
            continue;
        }
        let (table, part) =
            resource.split_once('/').map_or((&**resource, String::new()), |(table, part)| (table, format!("/{part}")));
        grant(action, &(arn(table) + &part), &Value::Null);
    }
    for action in ["logs:CreateLogStream", "logs:PutLogEvents"] {
        grant(action, &format!("{function}Logs.Arn"), &Value::Null);
    }
    // Any key may be used, but only through the service and only for these tables.
    let tables = [&deployed.outputs["EntitiesTable"], &deployed.outputs["InboxTable"]];
    let condition = json!({
        "StringEquals": { "kms:ViaService": through("dynamodb") },
        "StringEqualsIfExists": { "kms:EncryptionContext:aws:dynamodb:tableName": tables },
    });
    for action in ["Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey*", "ReEncrypt*"] {
        grant(&format!("kms:{action}"), "*", &condition);
    }
    let (service, action, document, context) = match parameter("Sources") {
        secret if secret.starts_with("arn:") => {
            ("secretsmanager", "secretsmanager:GetSecretValue", secret.to_owned(), "kms:EncryptionContext:SecretARN")
        }
        name => {
            let name = if name.is_empty() { "/${AWS::StackName}/sources" } else { name };
            let parameter = of_account("ssm", &format!("parameter{name}"));
            ("ssm", "ssm:GetParameter", parameter, "kms:EncryptionContext:PARAMETER_ARN")
        }
    };
    grant(action, &document, &Value::Null);
    let condition = json!({ "StringEquals": { "kms:ViaService": through(service), context: document } });
    grant("kms:Decrypt", "*", &condition);
    // Each function is granted by its whole ARN. With a qualifier, only that version is granted.
    for arn in parameter("InvokeFunctionArns").split(',').filter(|arn| !arn.is_empty() && function == "Worker") {
        grant("lambda:InvokeFunction", arn, &Value::Null);
    }
    for arn in parameter("CommitTableArns").split(',').filter(|arn| !arn.is_empty() && function == "Worker") {
        for action in ["ConditionCheckItem", "DeleteItem", "PutItem", "UpdateItem"] {
            grant(&format!("dynamodb:{action}"), arn, &Value::Null);
        }
    }
    wanted
}
