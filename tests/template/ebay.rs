//! The URL of eBay's notifications, in front of a source's queue. `.ci/deployable` runs the tests of its function.

use serde_json::{Value, json};

use crate::document::{DeployedTemplate, SamTemplate, texts};

const QUEUE: &str = "arn:aws:sqs:eu-central-1:123456789012:webhook-serializer-ebay-queue";
const SECRET: &str = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:webhook-serializer-ebay-Ab12Cd";

fn ebay(given: &[(&str, &str)]) -> DeployedTemplate {
    let given = [&[("QueueArn", QUEUE), ("SecretArn", SECRET)], given].concat();
    let deployed = SamTemplate::read("templates/inlets/ebay/template.yaml").deployed(&given);
    assert_eq!(deployed.broken, [""; 0]);
    deployed
}

/// Promise: the function in front of eBay's queue may send to this queue, read its secret and log, no more.
#[test]
fn ebay_function_has_only_the_rights_it_uses() {
    let deployed = ebay(&[]);
    let policies = deployed.at("Role Properties Policies").as_array().expect("a list");
    assert_eq!((policies.len(), deployed.at("Role Properties ManagedPolicyArns")), (1, &Value::Null));
    assert_eq!(deployed.at("Notifications Properties Policies"), &Value::Null);
    let statements = policies[0]["PolicyDocument"]["Statement"].as_array().expect("a list");
    let granted: Vec<(Vec<String>, &str)> = statements
        .iter()
        .map(|statement| (texts(&statement["Action"]), statement["Resource"].as_str().expect("one resource")))
        .collect();
    let action = |name: &str| vec![name.to_owned()];
    let logs = vec!["logs:CreateLogStream".to_owned(), "logs:PutLogEvents".to_owned()];
    let expected = [
        (action("sqs:SendMessage"), QUEUE),
        (action("secretsmanager:GetSecretValue"), SECRET),
        (action("kms:Decrypt"), "*"),
        (logs, "Logs.Arn"),
    ];
    assert_eq!(granted, expected);
    assert_eq!(statements[2]["Condition"]["StringEquals"]["kms:EncryptionContext:SecretARN"], SECRET);
}

#[test]
fn ebay_function_finds_queue_secret_and_api() {
    for (environment, api) in [("production", "https://api.ebay.com"), ("sandbox", "https://api.sandbox.ebay.com")] {
        let variables = ebay(&[("Environment", environment)]).variables("Notifications");
        let expected = [
            ("EBAY_API", api),
            ("QUEUE_URL", "https://sqs.${AWS::Region}.${AWS::URLSuffix}/123456789012/webhook-serializer-ebay-queue"),
            ("SECRET_ARN", SECRET),
        ];
        assert_eq!(variables, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    let function = crate::file("templates/inlets/ebay/function/index.mjs");
    assert!(function.contains("const { EBAY_API, QUEUE_URL, SECRET_ARN } = process.env;"));
}

#[test]
fn ebay_url_is_public_and_ends_in_the_functions_path() {
    let deployed = ebay(&[]);
    assert_eq!(deployed.at("Url Properties AuthType"), "NONE");
    let permissions = deployed.of_type("AWS::Lambda::Permission");
    let actions: Vec<&Value> = permissions.values().map(|permission| &permission["Action"]).collect();
    assert_eq!(actions, ["lambda:InvokeFunction", "lambda:InvokeFunctionUrl"]);
    assert_eq!(deployed.at("InvokePermission Properties InvokedViaFunctionUrl"), "true");
    assert_eq!(deployed.outputs["EndpointUrl"], "Url.FunctionUrlebay");
    let function = crate::file("templates/inlets/ebay/function/endpoint.mjs");
    assert!(function.contains("export const PATH = \"/ebay\";"));
}

#[test]
fn alarm_of_ebays_url_names_its_page_and_topic() {
    let topic = "arn:aws:sns:eu-central-1:123456789012:alarms";
    let [without, with] = [ebay(&[]), ebay(&[("AlarmTopicArn", topic)])];
    let alarm = with.at("UnavailableAlarm Properties");
    assert_eq!((&alarm["AlarmActions"], &alarm["OKActions"]), (&json!([topic]), &json!([topic])));
    assert_eq!(without.at("UnavailableAlarm Properties AlarmActions"), &Value::Null);
    assert_eq!(alarm["Dimensions"], json!([{ "Name": "FunctionName", "Value": "Notifications" }]));
    let description = alarm["AlarmDescription"].as_str().expect("a text");
    assert!(description.ends_with("What to do - docs/runbooks/messages.md"), "{description}");
    assert!(crate::file("docs/runbooks/messages.md").contains("`UnavailableAlarm`"));
}
