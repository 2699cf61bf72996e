//! `serializer doctor`: findings in an emulated stack and in a local run.

use std::process::Output;

use serde_json::{Value, json};

use crate::{
    aws::{Aws, StackWithLocal},
    running::{LocalProcess, printed},
};

/// Returns the printed findings.
pub fn findings(done: &Output) -> Vec<Value> {
    let lines = printed(done);
    lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {done:?}"))).collect()
}

pub fn of<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings.iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("{check}: {findings:?}"))
}

fn topic(aws: &Aws, attributes: &[(&str, &str)]) {
    let one = |(key, value): &(&str, &str)| format!("<entry><key>{key}</key><value>{value}</value></entry>");
    let entries: String = attributes.iter().map(one).collect();
    aws.answer(
        "GetTopicAttributes",
        200,
        format!("<R><GetTopicAttributesResult><Attributes>{entries}</Attributes></GetTopicAttributesResult></R>"),
    );
}

fn quota(aws: &Aws, all: u64) {
    let limit = json!({ "AccountLimit": { "ConcurrentExecutions": all, "UnreservedConcurrentExecutions": all } });
    aws.answer("/2016-08-19/account-settings/", 200, limit.to_string());
}

fn mapping(aws: &Aws, state: &str) {
    let told = json!({ "EventSourceMappings": [{ "UUID": "u-1", "State": state }] });
    aws.answer("/2015-03-31/event-source-mappings/?FunctionName=shop-Worker-1", 200, told.to_string());
}

/// Returns a stack in which everything that AWS reports is well.
pub fn well() -> StackWithLocal {
    let stack = StackWithLocal::start();
    let aws = &stack.aws;
    let caller =
        "<R><GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/ann</Arn></GetCallerIdentityResult></R>";
    aws.answer("GetCallerIdentity", 200, caller);
    quota(aws, 1000);
    mapping(aws, "Enabled");
    for function in ["shop-Worker-1", "shop-Scheduler-1"] {
        let state = json!({ "State": "Active", "LastUpdateStatus": "Successful" });
        aws.answer(&format!("/2015-03-31/functions/{function}/configuration"), 200, state.to_string());
        aws.answer(&format!("/2019-09-30/functions/{function}/concurrency"), 200, "{}");
    }
    aws.answer("AmazonSSM.GetServiceSetting", 200, r#"{"ServiceSetting":{"SettingValue":"true"}}"#);
    aws.answer("AmazonSQS.GetQueueAttributes", 200, r#"{"Attributes":{"VisibilityTimeout":"90"}}"#);
    let document = r#"{"Parameter":{"Name":"/shop","Type":"SecureString","Version":3,"Value":"[sources.shopify]\nprovider='shopify'\nsecrets=['s']\nhandler='orders'\n[sources.quiet]\nprovider='stripe'\nsecrets=['whsec_s']\nhandler='orders'"}}"#;
    aws.answer("AmazonSSM.GetParameter", 200, document);
    topic(aws, &[("SubscriptionsConfirmed", "1")]);
    stack
}

/// Promise: `doctor` reports problems with their remedy and what it could not check, and changes nothing.
#[test]
fn healthy_stack_passes_every_check() {
    let mut stack = well();
    stack.local.apply_sample();
    let done = stack.ran(&["doctor", "--json"]);
    let told = findings(&done);
    for check in [
        "credentials",
        "stack",
        "door",
        "concurrency",
        "function worker",
        "function scheduler",
        "wake-ups",
        "Parameter Store",
        "alarm topic",
        "queue",
        "dead letters",
        "permissions",
        "sources",
        "row versions",
        "source shopify",
        "orders",
    ] {
        assert_eq!(of(&told, check)["result"], "ok", "{check}: {told:?}");
    }
    assert!(of(&told, "permissions")["says"].as_str().unwrap().starts_with("all 17 "), "{told:?}");
    // A check that was not made is not reported as ok.
    for check in ["drift", "clock", "function ingest"] {
        assert_eq!(of(&told, check)["result"], "not made", "{check}: {told:?}");
    }
    let quiet = of(&told, "source quiet");
    assert!(quiet["result"] == "warning" && quiet["advice"].as_str().unwrap().contains("serializer source test quiet"));
    // The checks wrote nothing.
    let status: Value = serde_json::from_str(&printed(&stack.local.ran(&["status", "--json"]))).unwrap();
    assert_eq!(status["orders"], 1);
    assert_eq!(printed(&stack.local.ran(&["lease", "list", "--all", "--json"])).matches("nobody").count(), 0);
}

#[test]
fn stack_problems_are_reported_with_advice() {
    let stack = well();
    let aws = &stack.aws;
    quota(aws, 10);
    mapping(aws, "Disabled");
    aws.answer("/2019-09-30/functions/shop-Scheduler-1/concurrency", 200, r#"{"ReservedConcurrentExecutions":0}"#);
    aws.answer("AmazonSQS.GetQueueAttributes", 200, r#"{"Attributes":{"VisibilityTimeout":"30"}}"#);
    topic(aws, &[("KmsMasterKeyId", "alias/aws/sns"), ("SubscriptionsConfirmed", "1")]);
    aws.answer(
        "DetectStackDrift",
        200,
        "<R><DetectStackDriftResult><StackDriftDetectionId>d-1</StackDriftDetectionId></DetectStackDriftResult></R>",
    );
    let detected = "<R><DescribeStackDriftDetectionStatusResult><DetectionStatus>DETECTION_COMPLETE</DetectionStatus>\
                    <StackDriftStatus>DRIFTED</StackDriftStatus></DescribeStackDriftDetectionStatusResult></R>";
    aws.answer("DescribeStackDriftDetectionStatus", 200, detected);
    let drifts = "<R><DescribeStackResourceDriftsResult><StackResourceDrifts><member><LogicalResourceId>Worker</LogicalResourceId>\
                  <StackResourceDriftStatus>MODIFIED</StackResourceDriftStatus><PropertyDifferences><member>\
                  <PropertyPath>/MemorySize</PropertyPath></member></PropertyDifferences></member></StackResourceDrifts>\
                  </DescribeStackResourceDriftsResult></R>";
    aws.answer("DescribeStackResourceDrifts", 200, drifts);
    let done = stack.ran(&["doctor", "--detect-drift", "--json"]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let told = findings(&done);
    for (check, says, advice) in [
        ("drift", "changed by hand, now: Worker modified (/MemorySize)", "Put back what was changed by hand"),
        ("concurrency", "busy workers leave too little for ingest", "WorkerConcurrency=5"),
        ("function scheduler", "its reserved concurrency is 0", "delete-function-concurrency"),
        ("wake-ups", "is Disabled", "update-event-source-mapping --uuid u-1 --enabled"),
        ("queue", "visibility timeout of 30 s is shorter than a worker's timeout of 60 s", "set-queue-attributes"),
        ("alarm topic", "no alarm arrives", "cloudwatch.amazonaws.com"),
        ("table of orders", "its time to live is off", "update-time-to-live"),
    ] {
        let finding = of(&told, check);
        assert_eq!(finding["result"], "wrong", "{check}: {told:?}");
        assert!(finding["says"].as_str().unwrap().contains(says), "{finding}");
        assert!(finding["advice"].as_str().unwrap().contains(advice), "{finding}");
    }
    let shown = printed(&stack.ran(&["doctor", "--no-rows"]));
    let column = |text: &str| shown.lines().find_map(|line| line.find(text)).expect(text);
    assert_eq!(column("arn:aws:iam"), column("the account may run"), "{shown}");
    assert!(shown.trim_end().lines().last().unwrap().contains(" wrong, "), "{shown}");
}

#[test]
fn warning_says_dead_letter_may_be_only_copy() {
    let stack = well();
    let attributes = r#"{"Attributes":{"VisibilityTimeout":"90","ApproximateNumberOfMessages":"3"}}"#;
    stack.aws.answer("AmazonSQS.GetQueueAttributes", 200, attributes);
    let told = findings(&stack.ran(&["doctor", "--json"]));
    let finding = of(&told, "dead letters");
    assert_eq!(
        (&finding["result"], &finding["says"]),
        (&json!("warning"), &json!("the dead-letter queue has 3 messages"))
    );
    assert!(finding["advice"].as_str().unwrap().contains("may be the only copy of a delivery"), "{finding}");
}

#[test]
fn kms_key_and_subscribers_of_alarm_topic_are_checked() {
    let stack = well();
    let aws = &stack.aws;
    let asked = || {
        let told = findings(&stack.ran(&["doctor", "--no-rows", "--json"]));
        let finding = of(&told, "alarm topic");
        format!("{} {}", finding["result"].as_str().unwrap(), finding["says"].as_str().unwrap())
    };
    let policy = |principal: &str| {
        let policy = json!({ "Statement": [{ "Principal": { "Service": principal } }] }).to_string();
        aws.answer("TrentService.GetKeyPolicy", 200, json!({ "Policy": policy }).to_string());
    };
    topic(aws, &[("KmsMasterKeyId", "alias/mine"), ("SubscriptionsConfirmed", "1")]);
    aws.deny("TrentService.DescribeKey");
    let unknown = asked();
    assert!(unknown.starts_with("not made ") && unknown.contains("kms:DescribeKey"), "{unknown}");
    aws.answer("TrentService.DescribeKey", 200, r#"{"KeyMetadata":{"KeyId":"k-1"}}"#);
    policy("s3.amazonaws.com");
    assert!(asked().starts_with("wrong the topic is encrypted with alias/mine, whose policy does not name CloudWatch"));
    assert!(aws.asked("TrentService.GetKeyPolicy")[0].contains(r#""KeyId":"k-1""#));
    policy("cloudwatch.amazonaws.com");
    assert!(asked().starts_with("ok subscriptions: 1;"), "{}", asked());
    topic(aws, &[("SubscriptionsConfirmed", "0")]);
    assert!(asked().starts_with("warning the topic has no confirmed subscription"), "{}", asked());
    let missing = "<ErrorResponse><Error><Code>NotFound</Code><Message>no</Message></Error></ErrorResponse>";
    aws.answer("GetTopicAttributes", 404, missing);
    assert!(asked().contains("does not exist, so nobody gets alarms"), "{}", asked());
}

#[test]
fn check_without_permission_names_the_missing_permission() {
    let stack = well();
    for action in [
        "GetTopicAttributes",
        "AmazonSSM.GetServiceSetting",
        "/2016-08-19/account-settings/",
        "AmazonSQS.GetQueueAttributes",
    ] {
        stack.aws.deny(action);
    }
    let told = findings(&stack.ran(&["doctor", "--no-rows", "--json"]));
    for (check, permission) in [
        ("alarm topic", "sns:GetTopicAttributes"),
        ("concurrency", "lambda:GetAccountSettings"),
        ("Parameter Store", "ssm:GetServiceSetting"),
        ("queue", "sqs:GetQueueAttributes"),
        ("rows", "--no-rows"),
    ] {
        let finding = of(&told, check);
        assert_eq!(finding["result"], "not made", "{finding}");
        assert!(finding["says"].as_str().unwrap().contains(permission), "{finding}");
    }
}

/// The worker's role lists functions as `InvokeFunctionArns` does. IAM takes another qualifier for another
/// function.
///
/// Promise: `doctor` checks the functions and tables that sources name, their rights, and names a `WorkerConcurrency`.
#[test]
fn missing_or_forbidden_invoked_function_is_reported() {
    let stack = well();
    let aws = &stack.aws;
    let sources = "[sources.shopify]\nprovider='shopify'\nsecrets=['s']\nhandler='invoke'\n\
                   invoke={function='orders',qualifier='live'}\n\
                   [sources.stripe]\nprovider='stripe'\nsecrets=['whsec_s']\nhandler='invoke'\ninvoke={function='mails'}";
    let document = json!({ "Parameter": { "Name": "/shop", "Type": "SecureString", "Version": 3, "Value": sources } });
    aws.answer("AmazonSSM.GetParameter", 200, document.to_string());
    let configuration = "/2015-03-31/functions/orders/configuration?Qualifier=live";
    aws.answer(configuration, 200, r#"{"State":"Active"}"#);
    let [orders, mails] =
        ["orders", "mails"].map(|name| format!("arn:aws:lambda:eu-central-1:123456789012:function:{name}"));
    let asked = |allowed: &str| {
        stack.deployed(&[("InvokeFunctionArns", allowed)]);
        let told = findings(&stack.ran(&["doctor", "--no-rows", "--json"]));
        let finding = of(&told, "invoke orders:live");
        ["result", "says", "advice"].map(|name| finding[name].as_str().unwrap_or_default().to_owned())
    };
    for (allowed, advice) in [
        ("", format!("deploy with InvokeFunctionArns='{mails},{orders}:live'")),
        (&*orders, format!("deploy with InvokeFunctionArns='{orders},{mails},{orders}:live'")),
    ] {
        let [result, says, advised] = asked(allowed);
        assert_eq!((result.as_str(), advised), ("wrong", advice), "{allowed}");
        assert!(
            says.starts_with("the worker has no permission to call this function, so deliveries of shopify wait"),
            "{says}"
        );
    }
    stack.deployed(&[("InvokeFunctionArns", "")]);
    let told = findings(&stack.ran(&["doctor", "--no-rows", "--json"]));
    let advice = ["invoke orders:live", "invoke mails"].map(|check| of(&told, check)["advice"].clone());
    assert_eq!(advice[0], advice[1], "whoever follows one follows both");
    assert!(aws.asked(configuration).is_empty());
    let both = format!("{orders}:test,{orders}:live");
    assert_eq!(asked(&both), ["ok", "the worker may call this function, for shopify", ""]);
    aws.answer(configuration, 404, r#"{"__type":"ResourceNotFoundException"}"#);
    let [result, says, advice] = asked(&both);
    assert!(result == "wrong" && says.contains("does not exist") && advice.contains("`invoke`"), "{says}");
    aws.deny(configuration);
    let [result, says, _] = asked(&both);
    assert!(result == "not made" && says.contains("lambda:GetFunctionConfiguration"), "{says}");
}

/// The worker's role lists tables as `CommitTableArns` does.
#[test]
fn forbidden_table_of_answers_is_reported() {
    let stack = well();
    let sources = "[sources.shopify]\nprovider='shopify'\nsecrets=['s']\nhandler='forward'\n\
                   forward={url='https://example.com/',secret='whsec_Zk93bTR6S2dRcTdUaHBY',commit=['totals','stock']}";
    let document = json!({ "Parameter": { "Name": "/shop", "Type": "SecureString", "Version": 3, "Value": sources } });
    stack.aws.answer("AmazonSSM.GetParameter", 200, document.to_string());
    let [stock, totals] =
        ["stock", "totals"].map(|name| format!("arn:aws:dynamodb:eu-central-1:123456789012:table/{name}"));
    let asked = |allowed: &str| {
        stack.deployed(&[("CommitTableArns", allowed)]);
        let told = findings(&stack.ran(&["doctor", "--no-rows", "--json"]));
        ["commit stock", "commit totals"].map(|check| {
            let finding = of(&told, check);
            ["result", "says", "advice"].map(|name| finding[name].as_str().unwrap_or_default().to_owned())
        })
    };
    let advice = format!("deploy with CommitTableArns='{totals},{stock}'");
    let lacks = "the worker has no permission to write this table, so deliveries of shopify fail";
    let [of_stock, of_totals] = asked(&totals);
    assert_eq!(of_stock, ["wrong", lacks, &advice]);
    assert_eq!(of_totals, ["ok", "the worker may write this table, for shopify", ""]);
    let both = asked(&format!("{totals},{stock}"));
    assert!(both.iter().all(|finding| finding[0] == "ok"), "{both:?}");
    assert!(asked("").iter().all(|finding| finding[0] == "wrong"));
}

#[test]
fn missing_table_permissions_are_named() {
    let stack = well();
    let target = |action: &str| format!("DynamoDB_20120810.{action}");
    for action in ["GetItem", "BatchGetItem", "Query", "DescribeTable", "DescribeTimeToLive"] {
        stack.aws.answer(&target(action), 200, "{}");
    }
    for action in ["UpdateItem", "PutItem"] {
        let failed = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}"#;
        stack.aws.answer(&target(action), 400, failed);
    }
    for action in ["Scan", "DeleteItem"] {
        stack.aws.deny(&target(action));
    }
    let command = ["doctor", "--no-rows", "--json", "--stack", "shop", "--region", "eu-central-1"];
    let done = stack.aws.ran(stack.aws.url(), &command);
    let told = findings(&done);
    let wrong = told.iter().filter(|finding| finding["check"] == "permissions" && finding["result"] == "wrong");
    let says: Vec<&str> = wrong.map(|finding| finding["says"].as_str().unwrap()).collect();
    let missing = [
        "Scan on entities",
        "DeleteItem on entities",
        "Scan on entities/index/held",
        "Scan on entities/index/waits",
        "Scan on inbox",
        "DeleteItem on inbox",
        "Scan on inbox/index/parked",
    ];
    assert_eq!(says, missing.map(|what| format!("dynamodb:{what} is missing")), "{done:?}");
    let key = json!({
        "KeySchema": [{ "AttributeName": "entity", "KeyType": "HASH" }],
        "AttributeDefinitions": [{ "AttributeName": "entity", "AttributeType": "S" }],
    });
    let table = |properties: Value| {
        let mut table = key.clone();
        table.as_object_mut().unwrap().extend(properties.as_object().unwrap().clone());
        table
    };
    let on = json!({ "ContinuousBackupsDescription": { "PointInTimeRecoveryDescription": { "PointInTimeRecoveryStatus": "ENABLED" } } });
    let mut restorable = on.clone();
    let description = &mut restorable["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"];
    description["EarliestRestorableDateTime"] = json!(1_767_619_200);
    description["LatestRestorableDateTime"] = json!(1_767_622_800);
    for (table, backups, says) in [
        (json!({}), json!({}), "is "),
        (table(json!({ "TableStatus": "ACTIVE" })), json!({}), "its point-in-time recovery is off"),
        (table(json!({ "TableStatus": "ACTIVE" })), on.clone(), "no deletion protection"),
        (
            table(json!({ "TableStatus": "ACTIVE", "DeletionProtectionEnabled": true })),
            on.clone(),
            "is protected, and its point-in-time recovery is on",
        ),
        (
            table(json!({ "TableStatus": "ACTIVE", "DeletionProtectionEnabled": true })),
            restorable,
            "is protected, and can be restored to any second from 2026-01-05T13:20:00Z to 2026-01-05T14:20:00Z",
        ),
    ] {
        stack.aws.answer(&target("DescribeTable"), 200, json!({ "Table": table }).to_string());
        stack.aws.answer(&target("DescribeContinuousBackups"), 200, backups.to_string());
        let told = findings(&stack.aws.ran(stack.aws.url(), &command));
        let check = if table == json!({}) { "table of orders" } else { "recovery of orders" };
        assert!(of(&told, check)["says"].as_str().unwrap().contains(says), "{told:?}");
    }
    for body in stack.aws.asked(&target("PutItem")) {
        assert!(body.contains("attribute_exists(entity) AND attribute_not_exists(entity)"), "{body}");
    }
}

/// Existing tables that the parameter `Tables` names may have any keys.
#[test]
fn tables_with_unexpected_key_schema_are_reported() {
    let stack = well();
    let answered = |schema: Value, definitions: Value| {
        let table = json!({ "TableStatus": "ACTIVE", "KeySchema": schema, "AttributeDefinitions": definitions });
        stack.aws.answer("DynamoDB_20120810.DescribeTable", 200, json!({ "Table": table }).to_string());
        let command = ["doctor", "--no-rows", "--json", "--stack", "shop", "--region", "eu-central-1"];
        let told = findings(&stack.aws.ran(stack.aws.url(), &command));
        ["table of orders", "table of deliveries"].map(|check| {
            let finding = of(&told, check);
            ["says", "advice"].map(|name| finding[name].as_str().unwrap_or_default().to_owned())
        })
    };
    let schema = |keys: &[(&str, &str)]| -> Value {
        keys.iter().map(|(name, kind)| json!({ "AttributeName": name, "KeyType": kind })).collect()
    };
    let types = |types: &[(&str, &str)]| -> Value {
        types.iter().map(|(name, kind)| json!({ "AttributeName": name, "AttributeType": kind })).collect()
    };
    let both = (schema(&[("entity", "HASH"), ("item", "RANGE")]), types(&[("entity", "S"), ("item", "S")]));
    let [orders, deliveries] = answered(both.0.clone(), both.1);
    assert_eq!(orders[0], "entities has the key entity HASH S, item RANGE S; the functions need entity HASH S");
    assert!(orders[1].contains(
        "create-table --table-name PREFIX-entities --billing-mode PAY_PER_REQUEST \
         --attribute-definitions AttributeName=entity,AttributeType=S --key-schema AttributeName=entity,KeyType=HASH`"
    ));
    assert!(!deliveries[0].contains("has the key"), "{deliveries:?}");
    let [_, deliveries] = answered(both.0, types(&[("entity", "S"), ("item", "N")]));
    assert_eq!(
        deliveries[0],
        "inbox has the key entity HASH S, item RANGE N; the functions need entity HASH S, item RANGE S"
    );
    assert!(deliveries[1].contains("AttributeName=item,AttributeType=S --key-schema"), "{deliveries:?}");
    let [orders, _] = answered(schema(&[("id", "HASH")]), types(&[("id", "S")]));
    assert!(orders[0].starts_with("entities has the key id HASH S;"), "{orders:?}");
}

#[test]
fn tables_without_stack_kms_key_get_a_warning() {
    let stack = well();
    let wanted = "arn:aws:kms:eu-central-1:123456789012:key/mine";
    stack.deployed(&[("TableKeyArn", wanted)]);
    let on = json!({ "ContinuousBackupsDescription": { "PointInTimeRecoveryDescription": { "PointInTimeRecoveryStatus": "ENABLED" } } });
    stack.aws.answer("DynamoDB_20120810.DescribeContinuousBackups", 200, on.to_string());
    let asked = |key: &str| {
        let table = json!({
            "TableStatus": "ACTIVE",
            "KeySchema": [{ "AttributeName": "entity", "KeyType": "HASH" }],
            "AttributeDefinitions": [{ "AttributeName": "entity", "AttributeType": "S" }],
            "SSEDescription": { "Status": "ENABLED", "KMSMasterKeyArn": key },
        });
        stack.aws.answer("DynamoDB_20120810.DescribeTable", 200, json!({ "Table": table }).to_string());
        let command = ["doctor", "--no-rows", "--json", "--stack", "shop", "--region", "eu-central-1"];
        let told = findings(&stack.aws.ran(stack.aws.url(), &command));
        of(&told, "encryption of orders").clone()
    };
    assert_eq!(asked(wanted)["result"], "ok");
    let other = asked("arn:aws:kms:eu-central-1:123456789012:key/other");
    assert_eq!(other["result"], "warning");
    let advice = other["advice"].as_str().unwrap();
    assert!(
        advice.contains(&format!("--sse-specification Enabled=true,SSEType=KMS,KMSMasterKeyId={wanted}")),
        "{advice}"
    );
}

#[test]
fn doctor_on_local_run_skips_aws_checks() {
    let local = LocalProcess::with_order();
    let done = local.ran(&["doctor", "--json"]);
    let told = findings(&done);
    assert!(done.status.success(), "{done:?}");
    assert!(of(&told, "AWS")["says"].as_str().unwrap().starts_with("a local run has none of these: credentials"));
    for check in ["table of orders", "table of deliveries", "queue", "sources", "row versions", "source shopify"] {
        assert_eq!(of(&told, check)["result"], "ok", "{check}: {told:?}");
    }
}
