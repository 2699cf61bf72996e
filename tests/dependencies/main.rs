//! The functions carry no emulator and no command-line code, alone or when the
//! whole workspace is built at once.

use std::{path::Path, process::Command};

/// What is only for the laptop.
const LOCAL: [&str; 5] = ["dynoxide-rs", "rusqlite", "clap", "axum", "webhook-serializer-cli"];

const FUNCTIONS: [&str; 3] = ["ingest", "worker", "scheduler"];

/// The library as no function needs more of it.
const LIBRARY: [&str; 3] = ["-p", "webhook-serializer", "--all-features"];

/// What depends on `package`, of what `selection` builds.
fn dependents(selection: &[&str], package: &str) -> String {
    let cargo = std::env::var_os("CARGO").expect("cargo runs this");
    let output = Command::new(cargo)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace"))
        .args(["tree", "--offline", "--locked", "-e", "normal", "--prefix", "none"])
        .args(selection)
        .args(["-i", package])
        .output()
        .expect("cargo runs");
    let text = |bytes| String::from_utf8(bytes).expect("a text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    let nothing = err.contains("nothing to print") || err.contains("did not match any packages");
    assert!(nothing || output.status.success(), "{err}");
    assert_eq!(out.is_empty(), nothing, "{err}");
    out
}

#[test]
fn no_function_depends_on_what_is_for_the_laptop() {
    for function in FUNCTIONS {
        for package in LOCAL {
            assert_eq!(dependents(&["-p", function], package), "", "{function}, {package}");
        }
    }
    for package in LOCAL {
        assert_eq!(dependents(&LIBRARY, package), "", "{package}");
    }
    // The check sees it where it is.
    assert!(dependents(&["-p", "webhook-serializer-cli"], "dynoxide-rs").contains("webhook-serializer-cli "));
    assert!(dependents(&LIBRARY, "lambda_runtime").contains("webhook-serializer "));
}

/// Each has the time to start of what it does, and no more.
#[test]
fn a_function_depends_on_what_it_does_only() {
    for (function, others) in
        [("ingest", &["jiff", "httpdate"][..]), ("worker", &["jiff"]), ("scheduler", &["httpdate"])]
    {
        for package in others {
            assert_eq!(dependents(&["-p", function], package), "", "{function}, {package}");
        }
    }
    assert!(dependents(&["-p", "scheduler"], "jiff").contains("scheduler "));
    assert!(dependents(&["-p", "worker"], "httpdate").contains("worker "));
}

/// Off by default, and by whatever else is built: `docs/traces.md`.
#[test]
fn no_function_has_what_traces_need_unless_it_is_built_for_them() {
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
fn nor_when_the_whole_workspace_is_built_at_once() {
    for package in LOCAL {
        let dependents = dependents(&["--workspace"], package);
        assert!(!dependents.is_empty(), "{package} is in the workspace");
        for function in FUNCTIONS.into_iter().chain(["webhook-serializer"]) {
            let starts = format!("{function} v");
            assert!(!dependents.lines().any(|line| line.starts_with(&starts)), "{function}, {package}");
        }
    }
}
