//! Checks that the functions named by `invoke` exist, and that the worker may call them.

use std::collections::BTreeMap;

use serializer::stack::{
    Stack,
    api::{Refusal, Service, Services},
};
use webhook_serializer::sources::{Sources, invocation::Function};

use super::finding::CheckFinding;

const PARAMETER: &str = "InvokeFunctionArns";

pub async fn functions(services: &Services, stack: Option<&Stack>, sources: &Sources) -> Vec<CheckFinding> {
    let mut named: BTreeMap<String, (&Function, Vec<&str>)> = BTreeMap::new();
    for source in sources.iter() {
        if let Some(function) = source.invoke() {
            named.entry(function.to_string()).or_insert((function, Vec::new())).1.push(source.name.as_str());
        }
    }
    // Each missing permission gets the same advice, which grants all of them.
    let all = stack.map(|stack| all(stack, named.values().map(|(function, _)| *function))).unwrap_or_default();
    let mut findings = Vec::new();
    for (shown, (function, sources)) in named {
        let check = format!("invoke {shown}");
        findings.push(match stack {
            Some(stack) => one(services, stack, &check, function, &sources.join(", "), &all).await,
            None => CheckFinding::not_made(
                &check,
                "add --stack NAME: the stack's parameters name the functions that the worker may call",
            ),
        });
    }
    findings
}

fn all<'a>(stack: &Stack, called: impl Iterator<Item = &'a Function>) -> String {
    let allowed = stack.parameters.get(PARAMETER).map_or("", String::as_str);
    let mut all: Vec<String> = allowed.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
    for arn in called.filter_map(|function| arn(function, stack)) {
        if !all.contains(&arn) {
            all.push(arn);
        }
    }
    all.join(",")
}

async fn one(
    services: &Services,
    stack: &Stack,
    check: &str,
    function: &Function,
    sources: &str,
    all: &str,
) -> CheckFinding {
    let Some(allowed) = stack.parameters.get(PARAMETER) else {
        return CheckFinding::not_made(check, format!("the stack has no parameter {PARAMETER}"));
    };
    let Some(arn) = arn(function, stack) else {
        return CheckFinding::not_made(check, format!("the stack's ARN cannot be read: {}", stack.id));
    };
    // IAM compares qualifiers too.
    if !allowed.split(',').any(|one| one == arn) {
        return CheckFinding::wrong(
            check,
            format!("the worker has no permission to call this function, so deliveries of {sources} wait"),
            format!("deploy with {PARAMETER}='{all}'"),
        );
    }
    let path = function.path("configuration");
    match services.get(Service::LAMBDA, "GetFunctionConfiguration", &path).await {
        Ok(_) => CheckFinding::ok(check, format!("the worker may call this function, for {sources}")),
        Err(Refusal::Other { code, .. }) if code == "ResourceNotFoundException" => CheckFinding::wrong(
            check,
            format!("the function does not exist, so deliveries of {sources} wait"),
            "deploy it, or correct `invoke` in the sources document",
        ),
        Err(refusal) => CheckFinding::refused(check, &refusal),
    }
}

/// Returns the function's ARN for an IAM policy. A function's plain name is completed with the stack's account and
/// region.
fn arn(function: &Function, stack: &Stack) -> Option<String> {
    if function.name().starts_with("arn:") {
        return Some(function.to_string());
    }
    stack.arn("lambda", &format!("function:{function}"))
}
