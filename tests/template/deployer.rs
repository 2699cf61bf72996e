//! `templates/deploy-policy.json` and `domain-policy.json` grant a deployer the actions that
//! CloudFormation takes for the templates' resources, by its registry.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{
    TEMPLATES,
    document::{SamTemplate, texts},
    file,
};

/// The actions of the registry's handlers for each type, as `.ci/parameters` saves them.
const REGISTRY: &str = include_str!("permissions.json");

const POLICIES: [&str; 2] = ["templates/deploy-policy.json", "templates/domain-policy.json"];

/// The resources of each type, by the service whose actions reach them.
const ARNS: &[(&str, &str, &str)] = &[
    ("AWS::ApiGatewayV2::Api", "apigateway", "arn:aws:apigateway:eu-central-1::/apis/a1"),
    ("AWS::ApiGatewayV2::ApiMapping", "apigateway", "arn:aws:apigateway:eu-central-1::/domainnames/a.b/apimappings"),
    ("AWS::ApiGatewayV2::DomainName", "apigateway", "arn:aws:apigateway:eu-central-1::/domainnames"),
    ("AWS::ApiGatewayV2::Integration", "apigateway", "arn:aws:apigateway:eu-central-1::/apis/a1/integrations"),
    ("AWS::ApiGatewayV2::Route", "apigateway", "arn:aws:apigateway:eu-central-1::/apis/a1/routes"),
    ("AWS::ApiGatewayV2::Stage", "apigateway", "arn:aws:apigateway:eu-central-1::/apis/a1/stages"),
    ("AWS::CertificateManager::Certificate", "acm", "arn:aws:acm:eu-central-1:123456789012:certificate/1"),
    ("AWS::CertificateManager::Certificate", "route53", "arn:aws:route53:::hostedzone/Z1"),
    (
        "AWS::CloudWatch::Alarm",
        "cloudwatch",
        "arn:aws:cloudwatch:eu-central-1:123456789012:alarm:webhook-serializer-observability-ParkedAlarm-1",
    ),
    (
        "AWS::CloudWatch::Dashboard",
        "cloudwatch",
        "arn:aws:cloudwatch::123456789012:dashboard/webhook-serializer-eu-central-1",
    ),
    ("AWS::DynamoDB::Table", "dynamodb", "arn:aws:dynamodb:eu-central-1:123456789012:table/webhook-serializer-inbox"),
    ("AWS::DynamoDB::Table", "kms", "arn:aws:kms:eu-central-1:123456789012:key/mine"),
    (
        "AWS::Events::Rule",
        "events",
        "arn:aws:events:eu-central-1:123456789012:rule/webhook-serializer-SchedulerEveryMinute-1",
    ),
    ("AWS::IAM::ManagedPolicy", "iam", "arn:aws:iam::123456789012:policy/webhook-serializer-ReadSources-1"),
    ("AWS::IAM::ManagedPolicy", "iam", ROLE),
    ("AWS::IAM::Role", "iam", ROLE),
    ("AWS::Lambda::EventSourceMapping", "lambda", "arn:aws:lambda:eu-central-1:123456789012:event-source-mapping:1"),
    ("AWS::Lambda::EventInvokeConfig", "lambda", FUNCTION),
    ("AWS::Lambda::Function", "lambda", FUNCTION),
    ("AWS::Lambda::Function", "iam", ROLE),
    (
        "AWS::Lambda::Function",
        "s3",
        "arn:aws:s3:::aws-sam-cli-managed-default-samclisourcebucket-1/webhook-serializer/1",
    ),
    ("AWS::Lambda::Permission", "lambda", FUNCTION),
    ("AWS::Lambda::Url", "lambda", FUNCTION),
    (
        "AWS::Logs::LogGroup",
        "logs",
        "arn:aws:logs:eu-central-1:123456789012:log-group:/aws/lambda/webhook-serializer-worker",
    ),
    ("AWS::Route53::RecordSet", "route53", "arn:aws:route53:::hostedzone/Z1"),
    ("AWS::S3::Bucket", "s3", BUCKET),
    ("AWS::S3::BucketPolicy", "s3", BUCKET),
    ("AWS::SNS::Subscription", "sns", TOPIC),
    ("AWS::SNS::Topic", "sns", TOPIC),
    ("AWS::SQS::Queue", "sqs", "arn:aws:sqs:eu-central-1:123456789012:webhook-serializer-WakeUps-1"),
    ("AWS::SQS::QueuePolicy", "sqs", "arn:aws:sqs:eu-central-1:123456789012:webhook-serializer-orders"),
];

const FUNCTION: &str = "arn:aws:lambda:eu-central-1:123456789012:function:webhook-serializer-Worker-1";
const ROLE: &str = "arn:aws:iam::123456789012:role/webhook-serializer-WorkerRole-1";
const TOPIC: &str = "arn:aws:sns:eu-central-1:123456789012:webhook-serializer-observability-Topic-1";
const BUCKET: &str = "arn:aws:s3:::aws-sam-cli-managed-default-samclisourcebucket-1";

/// For each type, actions of the registry that no deploy takes, and what they would be for.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    ("AWS::ApiGatewayV2::Api", "an import from S3", "s3:getObject"),
    ("AWS::ApiGatewayV2::DomainName", "mutual TLS", "s3:GetObject s3:GetObjectVersion"),
    ("AWS::ApiGatewayV2::Integration", "credentials", "iam:PassRole"),
    ("AWS::CertificateManager::Certificate", "a private authority", "acm-pca:GetCertificate acm-pca:IssueCertificate"),
    (
        "AWS::DynamoDB::Table",
        "replicas, which copy rows",
        "dynamodb:AssociateTableReplica dynamodb:BatchWriteItem dynamodb:CreateTableReplica dynamodb:DeleteItem \
         dynamodb:GetItem dynamodb:PutItem dynamodb:Query dynamodb:Scan dynamodb:UpdateItem \
         iam:CreateServiceLinkedRole",
    ),
    (
        "AWS::DynamoDB::Table",
        "an import from S3",
        "dynamodb:ImportTable s3:GetObject s3:GetObjectMetadata s3:ListBucket logs:CreateLogGroup \
         logs:CreateLogStream logs:DescribeLogGroups logs:DescribeLogStreams logs:PutLogEvents \
         logs:PutRetentionPolicy",
    ),
    (
        "AWS::DynamoDB::Table",
        "Kinesis",
        "dynamodb:DisableKinesisStreamingDestination dynamodb:EnableKinesisStreamingDestination \
         dynamodb:UpdateKinesisStreamingDestination kinesis:DescribeStream kinesis:PutRecords",
    ),
    (
        "AWS::DynamoDB::Table",
        "a policy, contributor insights",
        "dynamodb:DeleteResourcePolicy dynamodb:PutResourcePolicy dynamodb:UpdateContributorInsights",
    ),
    ("AWS::DynamoDB::Table", "a key named by its alias; replicas", "kms:ListAliases kms:RevokeGrant"),
    ("AWS::Events::Rule", "a target's role", "iam:PassRole"),
    (
        "AWS::IAM::ManagedPolicy",
        "groups and users",
        "iam:AttachGroupPolicy iam:AttachUserPolicy iam:DetachGroupPolicy iam:DetachUserPolicy",
    ),
    ("AWS::Lambda::EventSourceMapping", "a key for filters", "kms:Decrypt kms:DescribeKey kms:GenerateDataKey"),
    (
        "AWS::Lambda::Function",
        "a network or file system",
        "ec2:DescribeNetworkInterfaces ec2:DescribeSecurityGroups ec2:DescribeSubnets ec2:DescribeVpcs \
         elasticfilesystem:DescribeMountTargets s3files:ListMountTargets",
    ),
    (
        "AWS::Lambda::Function",
        "a key of its own",
        "kms:CreateGrant kms:Decrypt kms:DescribeKey kms:Encrypt kms:GenerateDataKey",
    ),
    (
        "AWS::Lambda::Function",
        "signed code, layers, versions, capacity, a fixed runtime",
        "lambda:AssociateRuntimeAlias lambda:DeleteFunctionCodeSigningConfig lambda:GetCodeSigningConfig \
         lambda:GetLayerVersion lambda:PassCapacityProvider lambda:PublishVersion \
         lambda:PutFunctionCodeSigningConfig lambda:PutFunctionScalingConfig lambda:PutRuntimeManagementConfig",
    ),
    (
        "AWS::Logs::LogGroup",
        "policies, deliveries, a key, endless retention",
        "firehose:TagDeliveryStream logs:AssociateKmsKey logs:CreateLogDelivery logs:DeleteDataProtectionPolicy \
         logs:DeleteIndexPolicy logs:DeleteResourcePolicy logs:DeleteRetentionPolicy logs:DisassociateKmsKey \
         logs:PutBearerTokenAuthentication logs:PutDataProtectionPolicy logs:PutIndexPolicy \
         logs:PutLogGroupDeletionProtection logs:PutResourcePolicy s3:REST.PUT.OBJECT",
    ),
    ("AWS::SNS::Subscription", "Firehose", "iam:GetRole iam:PassRole"),
    ("AWS::SNS::Topic", "delivery logs, a policy", "iam:GetRole iam:PassRole sns:PutDataProtectionPolicy"),
    ("AWS::S3::BucketPolicy", "SAM never removes its bucket", "s3:DeleteBucketPolicy"),
];

/// Actions that no registry names: those of SAM itself, of a key's use by DynamoDB, and of an
/// account's first custom domain.
const OTHERS: &[&str] = &[
    "cloudformation:",
    "iam:CreateServiceLinkedRole",
    "kms:GenerateDataKey*",
    "kms:ReEncrypt*",
    "s3:DeleteObject",
    "s3:PutObject",
];

/// Returns the actions that SAM's bucket needs. Its type has many more, for properties that SAM does
/// not set, and SAM never removes it.
fn is_of_sams_bucket(action: &str) -> bool {
    let writes = [
        "CreateBucket",
        "PutBucketPublicAccessBlock",
        "PutBucketTagging",
        "PutBucketVersioning",
        "PutEncryptionConfiguration",
        "TagResource",
    ];
    let name = action.strip_prefix("s3:");
    name.is_some_and(|name| name.starts_with("Get") || name.starts_with("List") || writes.contains(&name))
}

struct Statement {
    actions: Vec<String>,
    resources: Vec<String>,
    condition: Value,
}

fn statements(policy: &str) -> Vec<Statement> {
    let policy: Value = serde_json::from_str(&file(policy)).expect("it is JSON");
    let all = policy["Statement"].as_array().expect("a list").iter();
    all.inspect(|statement| assert_eq!(statement["Effect"], "Allow", "{statement}"))
        .map(|statement| Statement {
            actions: texts(&statement["Action"]),
            resources: texts(&statement["Resource"]),
            condition: statement["Condition"].clone(),
        })
        .collect()
}

fn all_statements() -> Vec<Statement> {
    POLICIES.into_iter().flat_map(statements).collect()
}

/// Returns whether a text fits a pattern, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| fits(rest, &text[at..]))
        }),
    }
}

fn registry() -> Map<String, Value> {
    serde_json::from_str(REGISTRY).expect("it is JSON")
}

/// Returns each type's actions that a deploy takes.
fn needed() -> Vec<(String, String)> {
    let mut needed = Vec::new();
    for (kind, actions) in registry() {
        for action in texts(&actions) {
            let is_left_out = |(of, _, names): &(&str, &str, &str)| {
                kind == **of && names.split_whitespace().any(|name| name == action)
            };
            if !LEFT_OUT.iter().any(is_left_out) && (kind != "AWS::S3::Bucket" || is_of_sams_bucket(&action)) {
                needed.push((kind.clone(), action));
            }
        }
    }
    needed
}

/// Promise: the deployer's policies grant what the stacks need, in every partition, and little more.
#[test]
fn deploy_policies_grant_every_action_of_the_registry() {
    let statements = all_statements();
    for (kind, action) in needed() {
        let service = action.split(':').next().expect("a service");
        let arns = ARNS.iter().filter(|(of, by, _)| kind == *of && service == *by);
        let arns: Vec<&str> = arns.map(|(.., arn)| *arn).collect();
        assert!(!arns.is_empty(), "{action} for {kind}: on which resource?");
        let allows = |statement: &Statement| {
            let reaches = |arn: &&str| statement.resources.iter().any(|pattern| fits(pattern, arn));
            statement.actions.iter().any(|pattern| fits(pattern, &action)) && arns.iter().any(reaches)
        };
        assert!(statements.iter().any(allows), "{action} on {arns:?}, for {kind}");
    }
}

#[test]
fn deploy_policies_grant_nothing_else() {
    let needed = needed();
    let registry = registry();
    let is_needed = |pattern: &str| needed.iter().any(|(_, action)| fits(pattern, action));
    let is_other = |pattern: &str| OTHERS.iter().any(|other| pattern.starts_with(other));
    let granted = all_statements().into_iter().flat_map(|statement| statement.actions);
    let more: Vec<String> = granted.filter(|pattern| !is_needed(pattern) && !is_other(pattern)).collect();
    assert_eq!(more, [""; 0], "no resource needs it");
    for (kind, _, names) in LEFT_OUT {
        let known = texts(&registry[*kind]);
        for name in names.split_whitespace() {
            assert!(known.iter().any(|action| action == name), "{name} is not an action for {kind}");
        }
    }
}

/// `.ci/parameters` saves the types that SAM makes of its own.
#[test]
fn registry_has_every_resource_type() {
    let known = registry();
    for template in TEMPLATES.map(SamTemplate::read) {
        for (name, resource) in template.0["Resources"].as_object().expect("a mapping") {
            let kind = resource["Type"].as_str().expect("a type").replace("Serverless", "Lambda");
            assert!(known.contains_key(&kind), "{name}: .ci/parameters --write saves what {kind} needs");
        }
    }
    let placed: BTreeSet<&str> = ARNS.iter().map(|(kind, ..)| *kind).collect();
    assert!(known.keys().all(|kind| placed.contains(kind.as_str())), "{placed:?}");
}

/// The policies reach none of the account's other resources. Each statement names a prefix, or an
/// action that does not take a resource. Domains, certificates and zones have names of their own.
#[test]
fn deploy_policies_cover_only_resources_of_stacks() {
    for Statement { actions, resources, condition } in statements(POLICIES[0]) {
        let is_own = |pattern: &String| {
            ["webhook-serializer", "aws-sam-cli-managed-default", "transform/"].iter().any(|own| pattern.contains(own))
        };
        let is_api = |pattern: &String| pattern.starts_with("arn:*:apigateway:*::/");
        let knows_no_name = actions.iter().all(|action| {
            let (service, name) = action.split_once(':').expect("a service");
            let of_mappings = ["ListTags", "TagResource", "UntagResource"].contains(&name);
            match service {
                "cloudformation" => {
                    ["DescribeStackDriftDetectionStatus", "GetTemplateSummary", "ValidateTemplate"].contains(&name)
                }
                "kms" => condition["StringLike"]["kms:ViaService"] == "dynamodb.*",
                "lambda" => name.ends_with("EventSourceMapping") || of_mappings,
                "logs" => name.starts_with("Describe") || name == "GetDataProtectionPolicy",
                _ => false,
            }
        });
        assert!(
            resources.iter().all(|pattern| is_own(pattern) || is_api(pattern)) || knows_no_name,
            "{actions:?} on {resources:?}"
        );
    }
    for policy in POLICIES {
        // IAM does not count white space, and takes no longer managed policy.
        let length = file(policy).chars().filter(|sign| !sign.is_whitespace()).count();
        assert!(length <= 6_144, "{policy}: {length}");
        assert!(file("docs/deploying.md").contains(&format!("(../{policy})")), "the page links to {policy}");
        assert!(file(".ci/dist").contains(policy), "dist has {policy}");
    }
}

#[test]
fn templates_and_policies_fit_every_partition() {
    for path in TEMPLATES.into_iter().chain(POLICIES) {
        let text = file(path);
        let fixed: Vec<&str> = text.lines().filter(|line| line.contains("arn:aws:")).collect();
        assert_eq!(fixed, [""; 0], "{path} names a partition");
    }
}

/// The first custom domain of an account makes API Gateway's service-linked role.
#[test]
fn domain_policy_allows_accounts_first_domain() {
    let statements = statements(POLICIES[1]);
    let first = statements.iter().find(|statement| statement.actions == ["iam:CreateServiceLinkedRole"]);
    let first = first.expect("a statement of its own");
    let role =
        "arn:aws:iam::123456789012:role/aws-service-role/ops.apigateway.amazonaws.com/AWSServiceRoleForAPIGateway";
    assert!(first.resources.iter().any(|pattern| fits(pattern, role)), "{:?}", first.resources);
    assert_eq!(first.condition["StringEquals"]["iam:AWSServiceName"], "ops.apigateway.amazonaws.com");
}
