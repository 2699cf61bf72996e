//! Terraform and the CDK: their code deploys the same stack, and never loses a table.

use std::collections::BTreeMap;

use crate::{core, document::SamTemplate, file};

/// Returns the content of a block, found by the text before its brace.
fn block<'a>(text: &'a str, header: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("{header} {{")).unwrap_or_else(|| panic!("no {header}"));
    let mut depth = 1;
    let end = rest.find(|sign: char| {
        depth += i32::from(sign == '{') - i32::from(sign == '}');
        depth == 0
    });
    &rest[..end.expect("its brace is closed")]
}

/// Returns a block's arguments, `name = value` or `name: value`, without those of inner blocks.
fn arguments(block: &str, sign: char) -> BTreeMap<&str, &str> {
    let mut depth = 0;
    let mut found = BTreeMap::new();
    for line in block.split(['\n', ',']).map(str::trim).filter(|line| !line.starts_with(['#', '/'])) {
        if let (0, Some((name, value))) = (depth, line.split_once(sign)) {
            found.insert(name.trim(), value.trim());
        }
        depth += line.matches(['{', '[']).count() as i32 - line.matches(['}', ']']).count() as i32;
    }
    found
}

/// Promise: Terraform uploads each function's code for its stack.
#[test]
fn terraform_keeps_previous_code_for_rollback() {
    let text = file("templates/terraform/main.tf");
    let code = block(&text, "resource \"aws_s3_object\" \"code\"");
    assert_eq!(arguments(block(code, "lifecycle"), '=')["create_before_destroy"], "true");
    // Changed code gets another key. So the old and the new code exist side by side, and CloudFormation sees
    // the change.
    assert!(arguments(code, '=')["key"].starts_with("\"${local.prefix}/"));
    let locals = block(&text, "locals");
    let prefix = locals.lines().find(|line| line.trim().starts_with("prefix = ")).expect("a prefix");
    for part in ["for name in local.functions", "filesha256(\"${var.dist}/arm64/${name}.zip\")"] {
        assert!(prefix.contains(part), "{prefix} does not follow each zip");
    }
    let stack = block(&text, "resource \"aws_cloudformation_stack\" \"webhooks\"");
    let held = arguments(stack, '=');
    assert!(!held.contains_key("template_url"), "a bucket's URL depends on the partition");
    let body = held["template_body"];
    assert!(body.starts_with("replace(file(\"${var.dist}/template.yaml\")"), "{body}");
    assert!(stack.contains("s3://${var.bucket}/${local.prefix}/arm64/"), "the code is taken from elsewhere");
    assert!(stack.contains("depends_on = [aws_s3_object.code]"), "it may be deployed before its code is there");
}

/// Promise: the CDK makes the same stack.
#[test]
fn terraform_and_cdk_set_the_tables_parameter() {
    let terraform = file("templates/terraform/main.tf");
    let core_stack = block(&terraform, "resource \"aws_cloudformation_stack\" \"webhooks\"");
    let in_terraform = arguments(block(core_stack, "parameters ="), '=');
    let cdk = file("templates/cdk/app.mjs");
    let in_cdk = arguments(block(&cdk, "parameters:"), ':');
    let parameters = core().defaults();
    for given in [&in_terraform, &in_cdk] {
        // Both tools reset parameters that they omit. Without `Tables`, they would make new and empty tables.
        assert_eq!(given.get("Tables"), Some(&"\"\""), "{given:?}");
        assert!(given.keys().all(|name| parameters.contains_key(*name)), "{given:?}");
    }
    assert_eq!(in_terraform, in_cdk, "both deploy the same stack");
    let other = block(&terraform, "resource \"aws_cloudformation_stack\" \"observability\"");
    let given = arguments(block(other, "parameters ="), '=');
    assert_eq!(given["Core"], "aws_cloudformation_stack.webhooks.name", "deployed after the core, and removed before");
    let parameters = SamTemplate::read("templates/observability.yaml").defaults();
    assert!(given.keys().all(|name| parameters.contains_key(*name)), "{given:?}");
}
