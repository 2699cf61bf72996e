//! `templates/deploy-policy.json` grants a deployer the actions that the templates' resources need.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{core, document::Template, file, roles::texts};

/// The name of the stack that the policy is for.
const STACK: &str = "webhook-serializer";

/// For each type of resource: the actions that CloudFormation takes, without those for properties that the
/// templates do not set, and the resource's ARN. As read in 2026 from the handlers in CloudFormation's
/// registry.
const NEEDED: &[(&[&str], &str, &str)] = &[
    (
        &["AWS::DynamoDB::Table"],
        "arn:aws:dynamodb:eu-central-1:123456789012:table/webhook-serializer-inbox",
        "dynamodb: CreateTable DeleteTable DescribeContinuousBackups DescribeContributorInsights \
         DescribeKinesisStreamingDestination DescribeTable DescribeTimeToLive GetResourcePolicy ListTagsOfResource \
         TagResource UntagResource UpdateContinuousBackups UpdateTable UpdateTimeToLive",
    ),
    (
        &["AWS::DynamoDB::Table"],
        "arn:aws:kms:eu-central-1:123456789012:key/mine",
        "kms: CreateGrant Decrypt DescribeKey Encrypt GenerateDataKey* ReEncrypt*",
    ),
    (
        &["AWS::SQS::Queue"],
        "arn:aws:sqs:eu-central-1:123456789012:webhook-serializer-WakeUps-1",
        "sqs: CreateQueue DeleteQueue GetQueueAttributes GetQueueUrl ListQueueTags SetQueueAttributes TagQueue UntagQueue",
    ),
    (
        &["AWS::IAM::Role", "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"],
        "arn:aws:iam::123456789012:role/webhook-serializer-WorkerRole-1",
        "iam: AttachRolePolicy CreateRole DeleteRole DeleteRolePermissionsBoundary DeleteRolePolicy DetachRolePolicy GetRole \
         GetRolePolicy ListAttachedRolePolicies ListRolePolicies PutRolePermissionsBoundary PutRolePolicy TagRole \
         UntagRole UpdateAssumeRolePolicy UpdateRole UpdateRoleDescription",
    ),
    (
        &["AWS::IAM::ManagedPolicy"],
        "arn:aws:iam::123456789012:policy/webhook-serializer-ReadSources-1",
        "iam: CreatePolicy CreatePolicyVersion DeletePolicy DeletePolicyVersion GetPolicy GetPolicyVersion \
         ListEntitiesForPolicy ListPolicyVersions",
    ),
    (&["AWS::Serverless::Function"], "arn:aws:iam::123456789012:role/webhook-serializer-WorkerRole-1", "iam: PassRole"),
    (
        &["AWS::Serverless::Function", "AWS::Lambda::Permission", "AWS::Lambda::Url"],
        "arn:aws:lambda:eu-central-1:123456789012:function:webhook-serializer-Worker-1",
        "lambda: AddPermission CreateFunction CreateFunctionUrlConfig DeleteFunction DeleteFunctionConcurrency \
         DeleteFunctionEventInvokeConfig DeleteFunctionUrlConfig GetFunction GetFunctionCodeSigningConfig \
         GetFunctionEventInvokeConfig GetFunctionRecursionConfig GetFunctionUrlConfig GetPolicy \
         GetRuntimeManagementConfig ListTags PutFunctionConcurrency PutFunctionEventInvokeConfig \
         PutFunctionRecursionConfig RemovePermission TagResource UntagResource UpdateFunctionCode \
         UpdateFunctionConfiguration UpdateFunctionEventInvokeConfig UpdateFunctionUrlConfig",
    ),
    (
        &["AWS::Serverless::Function"],
        "arn:aws:lambda:eu-central-1:123456789012:event-source-mapping:1",
        "lambda: CreateEventSourceMapping DeleteEventSourceMapping GetEventSourceMapping ListTags TagResource UntagResource \
         UpdateEventSourceMapping",
    ),
    (
        &["AWS::Serverless::Function"],
        "arn:aws:events:eu-central-1:123456789012:rule/webhook-serializer-SchedulerEveryMinute-1",
        "events: DeleteRule DescribeRule ListTagsForResource ListTargetsByRule PutRule PutTargets RemoveTargets TagResource \
         UntagResource",
    ),
    (
        &["AWS::Logs::LogGroup"],
        "arn:aws:logs:eu-central-1:123456789012:log-group:/aws/lambda/webhook-serializer-worker",
        "logs: CreateLogGroup DeleteLogGroup DescribeIndexPolicies DescribeLogGroups GetDataProtectionPolicy \
         ListTagsForResource PutRetentionPolicy TagResource UntagResource",
    ),
    (
        &[
            "AWS::ApiGatewayV2::Api",
            "AWS::ApiGatewayV2::Integration",
            "AWS::ApiGatewayV2::Route",
            "AWS::ApiGatewayV2::Stage",
        ],
        "arn:aws:apigateway:eu-central-1::/apis/a1/routes",
        "apigateway: DELETE GET PATCH POST PUT TagResource",
    ),
    (
        &["AWS::CloudWatch::Alarm"],
        "arn:aws:cloudwatch:eu-central-1:123456789012:alarm:webhook-serializer-observability-ParkedAlarm-1",
        "cloudwatch: DeleteAlarms DescribeAlarms ListTagsForResource PutMetricAlarm TagResource UntagResource",
    ),
    (
        &["AWS::CloudWatch::Dashboard"],
        "arn:aws:cloudwatch::123456789012:dashboard/webhook-serializer-eu-central-1",
        "cloudwatch: DeleteDashboards GetDashboard PutDashboard",
    ),
    (
        &["AWS::SNS::Topic", "AWS::SNS::Subscription"],
        "arn:aws:sns:eu-central-1:123456789012:webhook-serializer-observability-Topic-1",
        "sns: CreateTopic DeleteTopic GetDataProtectionPolicy GetSubscriptionAttributes GetTopicAttributes \
         ListSubscriptionsByTopic ListTagsForResource SetSubscriptionAttributes SetTopicAttributes Subscribe TagResource \
         Unsubscribe UntagResource",
    ),
];

/// Services that `sam deploy` and `sam delete` use themselves. Their statements name stacks, templates and
/// SAM's bucket.
const OF_SAM: [&str; 2] = ["cloudformation", "s3"];

struct Statement {
    actions: Vec<String>,
    resources: Vec<String>,
}

fn statements() -> Vec<Statement> {
    let policy: Value = serde_json::from_str(&file("templates/deploy-policy.json")).expect("it is JSON");
    let all = policy["Statement"].as_array().expect("a list").iter();
    all.inspect(|statement| assert_eq!(statement["Effect"], "Allow", "{statement}"))
        .map(|statement| Statement { actions: texts(&statement["Action"]), resources: texts(&statement["Resource"]) })
        .collect()
}

/// Returns whether an ARN fits a pattern, in which `*` stands for any text.
fn fits(pattern: &str, arn: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == arn,
        Some((start, rest)) => arn.strip_prefix(start).is_some_and(|arn| {
            arn.char_indices().map(|(at, _)| at).chain([arn.len()]).any(|at| fits(rest, &arn[at..]))
        }),
    }
}

#[test]
fn deploy_policy_grants_exactly_what_the_stacks_need() {
    let statements = statements();
    let mut needed = BTreeMap::new();
    for (kinds, arn, actions) in NEEDED {
        let (service, names) = actions.split_once(": ").expect("a service");
        for action in names.split_whitespace().map(|name| format!("{service}:{name}")) {
            let allows = |statement: &&Statement| {
                statement.actions.contains(&action) && statement.resources.iter().any(|pattern| fits(pattern, arn))
            };
            assert!(statements.iter().any(|statement| allows(&statement)), "{action} on {arn}, for {kinds:?}");
            needed.insert(action, *arn);
        }
    }
    let more = |action: &&String| {
        let service = action.split(':').next().expect("a service");
        !OF_SAM.contains(&service) && !needed.contains_key(*action)
    };
    let granted = statements.iter().flat_map(|statement| &statement.actions);
    assert_eq!(granted.filter(more).collect::<Vec<_>>(), [""; 0], "no resource needs it");
}

#[test]
fn deploy_policy_knows_every_resource_type() {
    let known: BTreeSet<&str> = NEEDED.iter().flat_map(|(kinds, ..)| kinds.iter().copied()).collect();
    for template in [core(), Template::read("templates/observability.yaml")] {
        for (name, resource) in template.0["Resources"].as_object().expect("a mapping") {
            let kind = resource["Type"].as_str().expect("a type");
            assert!(known.contains(kind), "{name}: what a deployer needs for {kind} is not known");
        }
    }
}

/// The policy reaches none of the account's other resources. Each statement names a prefix, or an action that
/// does not take a resource.
#[test]
fn deploy_policy_covers_only_resources_of_stacks() {
    for Statement { actions, resources } in statements() {
        let is_own = |pattern: &String| {
            pattern.contains(STACK) || pattern.contains("aws-sam-cli-managed-default") || pattern.contains("transform/")
        };
        let is_api = |pattern: &String| pattern.starts_with("arn:aws:apigateway:*::/");
        let knows_no_name = actions.iter().all(|action| {
            let (service, name) = action.split_once(':').expect("a service");
            let of_mappings = ["ListTags", "TagResource", "UntagResource"].contains(&name);
            match service {
                "cloudformation" => ["GetTemplateSummary", "ValidateTemplate"].contains(&name),
                "kms" => true,
                "lambda" => name.ends_with("EventSourceMapping") || of_mappings,
                "logs" => ["DescribeIndexPolicies", "DescribeLogGroups", "GetDataProtectionPolicy"].contains(&name),
                _ => false,
            }
        });
        assert!(
            resources.iter().all(|pattern| is_own(pattern) || is_api(pattern)) || knows_no_name,
            "{actions:?} on {resources:?}"
        );
    }
    let policy = file("templates/deploy-policy.json");
    // IAM does not count white space, and takes no longer managed policy.
    let length = policy.chars().filter(|sign| !sign.is_whitespace()).count();
    assert!(length <= 6_144, "{length}");
    assert!(file("docs/deploying.md").contains("(../templates/deploy-policy.json)"), "the page links to it");
}
