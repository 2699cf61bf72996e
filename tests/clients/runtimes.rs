//! The npm package in Node, Bun and Deno, and bundled by esbuild.

use std::path::PathBuf;

use serde_json::{Value, json};
use tests::{not_run::not_run, prelude::*};
use tokio::process::Command;

use crate::client::{SUITE, built, connect};

/// Returns a runtime that npm has installed for this system.
fn installed(scope: &str, program: &str) -> Option<PathBuf> {
    let packages = std::fs::read_dir(format!("{SUITE}/node_modules/{scope}")).ok()?;
    packages.flatten().map(|package| package.path().join(program)).find(|path| path.is_file())
}

#[tokio::test(flavor = "multi_thread")]
async fn package_works_in_each_runtime_and_bundled() {
    let node = || Some(std::env::var_os("NODE").map_or_else(|| "node".into(), PathBuf::from));
    let testbed = TestBed::start().await;
    for (runtime, program, arguments, file) in [
        ("Node", node(), &[][..], "runtimes.js"),
        ("esbuild", node(), &[], "runtimes_bundled.mjs"),
        ("Bun", installed("@oven", "bin/bun"), &["run"], "runtimes.js"),
        ("Deno", installed("@deno", "deno"), &["run", "--allow-all", "--no-lock"], "runtimes.js"),
    ] {
        let Some(program) = program else {
            not_run(&format!("npm has no {runtime} for this system"));
            continue;
        };
        let mut command = Command::new(program);
        command.args(arguments).arg(built(file)).current_dir(SUITE).kill_on_drop(true);
        connect(&mut command, &testbed.engines, &testbed.engines.dynamodb_url());
        let output = command.output().await.expect("it runs");
        assert!(output.status.success(), "{runtime}: {}", String::from_utf8_lossy(&output.stderr));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let delete = json!({ "Delete": { "TableName": "totals", "Key": { "order": { "S": "shop/order/1" } } } });
        let answer = json!({ "outcome": "done", "commit": [delete] });
        let expected =
            json!({ "isContended": true, "isGranted": true, "isInvalid": true, "status": 200, "answer": answer });
        assert_eq!(printed, expected, "{runtime}");
    }
}
