//! The front door: one of the two or both, open to senders and leading to ingest
//! alone, by the alias that outlives its versions.

use serde_json::{Value, json};

use super::{Case, Objections};

pub fn check(case: &Case, objections: &mut Objections) {
    let url = json!({ "TargetFunctionArn": "Ingest.Alias", "AuthType": "NONE" });
    let url_permission = json!({
        "Action": "lambda:InvokeFunctionUrl", "FunctionName": "Ingest.Alias", "Principal": "*", "FunctionUrlAuthType": "NONE",
    });
    let invoke_permission = json!({
        "Action": "lambda:InvokeFunction", "FunctionName": "Ingest.Alias", "Principal": "*", "InvokedViaFunctionUrl": "true",
    });
    let api = json!({ "Name": "${AWS::StackName}-webhooks", "ProtocolType": "HTTP" });
    let integration = json!({
        "ApiId": "IngestApi",
        "IntegrationType": "AWS_PROXY",
        "IntegrationUri": "Ingest.Alias",
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
        "FunctionName": "Ingest.Alias",
        "Principal": "apigateway.amazonaws.com",
        "SourceArn": "arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:IngestApi/*",
    });
    let domain = json!({
        "DomainName": case.parameter("DomainName"),
        "DomainNameConfigurations": [{
            "CertificateArn": case.parameter("CertificateArn"), "EndpointType": "REGIONAL", "SecurityPolicy": "TLS_1_2",
        }],
    });
    let mapping = json!({ "DomainName": "IngestDomain", "ApiId": "IngestApi", "Stage": "IngestApiStage" });
    let (has_url, has_api) = (case.has_function_url(), case.has_http_api());
    let has_domain = has_api && case.is_given("DomainName") && case.is_given("CertificateArn");
    let parts = [
        ("IngestUrl", "AWS::Lambda::Url", url, has_url),
        ("IngestUrlPermission", "AWS::Lambda::Permission", url_permission, has_url),
        ("IngestInvokePermission", "AWS::Lambda::Permission", invoke_permission, has_url),
        ("IngestApi", "AWS::ApiGatewayV2::Api", api, has_api),
        ("IngestApiIntegration", "AWS::ApiGatewayV2::Integration", integration, has_api),
        ("IngestApiRoute", "AWS::ApiGatewayV2::Route", route, has_api),
        ("IngestApiStage", "AWS::ApiGatewayV2::Stage", stage, has_api),
        ("IngestApiPermission", "AWS::Lambda::Permission", api_permission, has_api),
        ("IngestDomain", "AWS::ApiGatewayV2::DomainName", domain, has_domain),
        ("IngestDomainMapping", "AWS::ApiGatewayV2::ApiMapping", mapping, has_domain),
    ];
    for (name, kind, properties, is_there) in parts {
        let found = case.deployed.at(name);
        let wanted = if is_there { (json!(kind), properties) } else { (Value::Null, Value::Null) };
        objections
            .unless((&found["Type"], &found["Properties"]) == (&wanted.0, &wanted.1), || format!("{name} is {found}"));
    }
}
