//! The front door: one of the two, open to senders and leading to ingest alone.

use serde_json::{Value, json};

use super::{Case, Objections};

pub fn check(case: &Case, objections: &mut Objections) {
    let url = json!({ "TargetFunctionArn": "Ingest.Arn", "AuthType": "NONE" });
    let url_permission = json!({
        "Action": "lambda:InvokeFunctionUrl", "FunctionName": "Ingest", "Principal": "*", "FunctionUrlAuthType": "NONE",
    });
    let invoke_permission = json!({
        "Action": "lambda:InvokeFunction", "FunctionName": "Ingest", "Principal": "*", "InvokedViaFunctionUrl": "true",
    });
    let api = json!({ "Name": "${AWS::StackName}-webhooks", "ProtocolType": "HTTP" });
    let integration = json!({
        "ApiId": "IngestApi",
        "IntegrationType": "AWS_PROXY",
        "IntegrationUri": "Ingest.Arn",
        "PayloadFormatVersion": "2.0",
        // It waits for as long as ingest may take.
        "TimeoutInMillis": "10000",
    });
    let route = json!({
        "ApiId": "IngestApi",
        "RouteKey": "POST /webhooks/{source}",
        "AuthorizationType": "NONE",
        "Target": "integrations/IngestApiIntegration",
    });
    let stage = json!({
        "ApiId": "IngestApi",
        "StageName": "$default",
        "AutoDeploy": "true",
        "DefaultRouteSettings": {
            "ThrottlingRateLimit": case.parameter("HttpApiRate"),
            "ThrottlingBurstLimit": case.parameter("HttpApiBurst"),
        },
    });
    let api_permission = json!({
        "Action": "lambda:InvokeFunction",
        "FunctionName": "Ingest",
        "Principal": "apigateway.amazonaws.com",
        "SourceArn": "arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:IngestApi/*",
    });
    let parts = [
        ("IngestUrl", "AWS::Lambda::Url", url, false),
        ("IngestUrlPermission", "AWS::Lambda::Permission", url_permission, false),
        ("IngestInvokePermission", "AWS::Lambda::Permission", invoke_permission, false),
        ("IngestApi", "AWS::ApiGatewayV2::Api", api, true),
        ("IngestApiIntegration", "AWS::ApiGatewayV2::Integration", integration, true),
        ("IngestApiRoute", "AWS::ApiGatewayV2::Route", route, true),
        ("IngestApiStage", "AWS::ApiGatewayV2::Stage", stage, true),
        ("IngestApiPermission", "AWS::Lambda::Permission", api_permission, true),
    ];
    for (name, kind, properties, of_http_api) in parts {
        let found = case.deployed.at(name);
        let wanted =
            if of_http_api == case.is_http_api() { (json!(kind), properties) } else { (Value::Null, Value::Null) };
        objections
            .unless((&found["Type"], &found["Properties"]) == (&wanted.0, &wanted.1), || format!("{name} is {found}"));
    }
}
