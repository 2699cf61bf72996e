//! Environment variables in place of options.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use crate::running::{complained, serializer};

fn refused(variables: &[(&str, &str)]) -> String {
    let run = serializer(&["list"]).envs(variables.iter().copied()).output().expect("it can be run");
    assert!(!run.status.success(), "{run:?}");
    complained(&run)
}

#[test]
fn error_names_variable_with_wrong_value() {
    for (variable, value, reason) in [
        ("FAIR_QUEUE", "yes", "[possible values: true, false]"),
        ("RETENTION_DAYS", "0", "0 is not in 1..=3650"),
        ("PARKED_RETENTION_DAYS", "99999999999999999", "99999999999999999 is not in 0..=3650"),
    ] {
        let said = refused(&[(variable, value)]);
        assert!(said.contains(&format!("invalid value '{value}' for '{variable}'")), "{said}");
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn error_names_variable_that_is_not_utf8() {
    for variable in ["QUEUE_URL", "RETENTION_DAYS"] {
        let run = serializer(&["list"]).env(variable, OsStr::from_bytes(b"a\xff")).output().expect("it can be run");
        let said = complained(&run);
        assert!(said.contains(&format!("the value of the variable {variable} is not UTF-8")), "{said}");
    }
    let argument = [OsStr::new("--source"), OsStr::from_bytes(b"a\xff")];
    let run = serializer(&["list"]).args(argument).env("QUEUE_URL", OsStr::from_bytes(b"a\xff")).output();
    let said = complained(&run.expect("it can be run"));
    assert!(!said.contains("variable"), "{said}");
}

#[test]
fn typed_option_replaces_wrong_variable() {
    let said = |days| {
        let typed = serializer(&["list", "--retention-days", days]).env("RETENTION_DAYS", "0").output();
        complained(&typed.expect("it can be run"))
    };
    let invalid = said("0");
    assert!(invalid.contains("invalid value '0' for '--retention-days <DAYS>'"), "{invalid}");
    let valid = said("30");
    assert!(valid.contains("--entities-table is missing"), "{valid}");
}

#[test]
fn empty_variable_counts_as_unset() {
    let names = ["ENTITIES_TABLE", "INBOX_TABLE", "QUEUE_URL", "FAIR_QUEUE", "RETENTION_DAYS", "PARKED_RETENTION_DAYS"];
    let said = refused(&names.map(|name| (name, "")));
    assert!(said.contains("--entities-table is missing"), "{said}");
}
