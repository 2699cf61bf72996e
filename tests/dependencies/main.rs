//! The functions depend on no emulator and no command-line code, even when the whole
//! workspace is built at once. The protocol depends on nothing that acts or that differs by machine.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Output},
};

/// Crates that only local runs need.
const LOCAL: [&str; 5] = ["dynoxide-rs", "rusqlite", "clap", "axum", "webhook-serializer-cli"];

const FUNCTIONS: [&str; 3] = ["ingest", "worker", "scheduler"];

/// Selects the library with all features.
const LIBRARY: [&str; 3] = ["-p", "webhook-serializer", "--all-features"];

/// Crates that act, measure time, draw random numbers or need a C compiler. The protocol does without them.
const IMPURE: [&str; 10] = ["chrono", "getrandom", "hyper", "jiff", "mio", "rand", "ring", "rustls", "tokio", "zstd"];

fn cargo_tree(selection: &[&str], more: &[&str]) -> Output {
    let cargo = std::env::var_os("CARGO").expect("cargo runs this");
    Command::new(cargo)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace"))
        .args(["tree", "--offline", "--locked", "-e", "normal", "--prefix", "none"])
        .args(selection)
        .args(more)
        .output()
        .expect("cargo runs")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("a text")
}

/// Returns the packages that depend on `package` in a build of `selection`.
fn dependents(selection: &[&str], package: &str) -> String {
    let output = cargo_tree(selection, &["-i", package]);
    let out = text(output.stdout);
    let err = text(output.stderr);
    let nothing = err.contains("nothing to print") || err.contains("did not match any packages");
    assert!(nothing || output.status.success(), "{err}");
    assert_eq!(out.is_empty(), nothing, "{err}");
    out
}

/// Returns the impure crates and the AWS crates that a build of the protocol with `features` includes.
fn impure_dependencies_of_protocol(features: &str, target: &str) -> BTreeSet<String> {
    let output = cargo_tree(&["-p", "webhook-serializer-protocol", "--features", features, "--target", target], &[]);
    assert!(output.status.success(), "{}", text(output.stderr));
    let tree = text(output.stdout);
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    names.filter(|name| IMPURE.contains(name) || name.starts_with("aws-")).map(str::to_owned).collect()
}

/// Promise: no function contains an emulator.
#[test]
fn no_function_depends_on_crates_for_local_runs() {
    for function in FUNCTIONS {
        for package in LOCAL {
            assert_eq!(dependents(&["-p", function], package), "", "{function}, {package}");
        }
    }
    for package in LOCAL {
        assert_eq!(dependents(&LIBRARY, package), "", "{package}");
    }
    // Shows that the check would find such a dependency.
    assert!(dependents(&["-p", "webhook-serializer-cli"], "dynoxide-rs").contains("webhook-serializer-cli "));
    assert!(dependents(&LIBRARY, "lambda_runtime").contains("webhook-serializer "));
}

/// Every dependency lengthens the start of a function.
#[test]
fn functions_do_not_depend_on_unused_time_crates() {
    for (function, others) in [("ingest", &["jiff", "httpdate"][..]), ("worker", &["jiff"])] {
        for package in others {
            assert_eq!(dependents(&["-p", function], package), "", "{function}, {package}");
        }
    }
    assert!(dependents(&["-p", "scheduler"], "jiff").contains("scheduler "));
    assert!(dependents(&["-p", "worker"], "httpdate").contains("worker "));
}

/// Traces are off by default, and no other package of the build turns them on: `docs/traces.md`.
///
/// Promise: functions contain tracing only if built with it.
#[test]
fn tracing_crates_are_absent_by_default() {
    for package in ["opentelemetry", "opentelemetry_sdk", "opentelemetry-otlp", "prost"] {
        assert_eq!(dependents(&["--workspace"], package), "", "{package}");
        for function in ["ingest", "worker"] {
            assert_eq!(dependents(&["-p", function], package), "", "{function}, {package}");
            let asked = dependents(&["-p", function, "--features", "otel"], package);
            assert!(asked.contains(&format!("{function} v")), "{function}, {package}: {asked}");
        }
    }
}

#[test]
fn workspace_build_adds_no_crates_for_local_runs_to_functions() {
    for package in LOCAL {
        let dependents = dependents(&["--workspace"], package);
        assert!(!dependents.is_empty(), "{package} is in the workspace");
        for function in FUNCTIONS.into_iter().chain(["webhook-serializer"]) {
            let starts = format!("{function} v");
            assert!(!dependents.lines().any(|line| line.starts_with(&starts)), "{function}, {package}");
        }
    }
}

/// A client in another language compiles the protocol to WebAssembly, and acts by itself.
#[test]
fn protocol_depends_on_no_impure_crate() {
    for target in ["x86_64-unknown-linux-gnu", "wasm32-unknown-unknown"] {
        assert_eq!(impure_dependencies_of_protocol("otel", target), BTreeSet::new(), "{target}");
        // Shows that the check would find such a dependency.
        let found = impure_dependencies_of_protocol("system,zstd", target);
        assert_eq!(found, ["getrandom", "tokio", "zstd"].map(str::to_owned).into(), "{target}");
    }
}
