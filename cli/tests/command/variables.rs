//! Environment variables in place of options.

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
fn empty_variable_counts_as_unset() {
    let names = ["ENTITIES_TABLE", "INBOX_TABLE", "QUEUE_URL", "FAIR_QUEUE", "RETENTION_DAYS", "PARKED_RETENTION_DAYS"];
    let said = refused(&names.map(|name| (name, "")));
    assert!(said.contains("--entities-table is missing"), "{said}");
}
