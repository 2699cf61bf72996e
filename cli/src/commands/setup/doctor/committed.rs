//! Checks that the worker may write the tables that sources name for writes in answers.

use std::collections::BTreeMap;

use serializer::stack::Stack;
use webhook_serializer::sources::Sources;

use super::finding::CheckFinding;

const PARAMETER: &str = "CommitTableArns";

pub fn tables(stack: Option<&Stack>, sources: &Sources) -> Vec<CheckFinding> {
    let mut named: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in sources.iter() {
        for table in source.forward().into_iter().flat_map(|destination| destination.commit()) {
            named.entry(table).or_default().push(source.name.as_str());
        }
    }
    // Each missing permission gets the same advice, which grants all of them.
    let all = stack.map(|stack| all(stack, named.keys().copied())).unwrap_or_default();
    named.iter().map(|(table, sources)| one(stack, table, &sources.join(", "), &all)).collect()
}

fn allowed(stack: &Stack) -> Option<Vec<String>> {
    let arns = stack.parameters.get(PARAMETER)?.split(',');
    Some(arns.filter(|arn| !arn.is_empty()).map(str::to_owned).collect())
}

fn all<'a>(stack: &Stack, tables: impl Iterator<Item = &'a str>) -> String {
    let mut all = allowed(stack).unwrap_or_default();
    for arn in tables.filter_map(|table| arn(table, stack)) {
        if !all.contains(&arn) {
            all.push(arn);
        }
    }
    all.join(",")
}

fn one(stack: Option<&Stack>, table: &str, sources: &str, all: &str) -> CheckFinding {
    let check = format!("commit {table}");
    let Some(stack) = stack else {
        let why = "add --stack NAME: the stack's parameters name the tables that the worker may write";
        return CheckFinding::not_made(&check, why);
    };
    match (allowed(stack), arn(table, stack)) {
        (None, _) => CheckFinding::not_made(&check, format!("the stack has no parameter {PARAMETER}")),
        (_, None) => CheckFinding::not_made(&check, format!("the stack's ARN cannot be read: {}", stack.id)),
        (Some(allowed), Some(arn)) if allowed.contains(&arn) => {
            CheckFinding::ok(&check, format!("the worker may write this table, for {sources}"))
        }
        _ => CheckFinding::wrong(
            &check,
            format!("the worker has no permission to write this table, so deliveries of {sources} fail"),
            format!("deploy with {PARAMETER}='{all}'"),
        ),
    }
}

fn arn(table: &str, stack: &Stack) -> Option<String> {
    stack.arn("dynamodb", &format!("table/{table}"))
}
