//! The questions of `serializer init`.

use std::io::IsTerminal;

use anyhow::Result;
use webhook_serializer::providers::webhook_senders;

use crate::commands::confirm::line;

pub(super) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks until `parse` accepts the answer. Enter chooses `default`.
pub(super) fn answer<T>(question: &str, default: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<T> {
    loop {
        let typed = line(&format!("{question} [{default}]: "))?;
        let typed = typed.trim();
        match parse(if typed.is_empty() { default } else { typed }) {
            Ok(value) => return Ok(value),
            Err(reason) => serializer::output::complain(reason),
        }
    }
}

pub(super) fn providers() -> Result<Vec<String>> {
    serializer::output::complain(format_args!("The providers are {}.", names()));
    answer("Providers", "shopify", |text| text.split([' ', ',']).filter(|name| !name.is_empty()).map(named).collect())
}

/// Returns the providers that `init` knows, as a list for a message.
pub(super) fn names() -> String {
    webhook_senders().collect::<Vec<_>>().join(", ")
}

fn named(name: &str) -> Result<String, String> {
    super::provider(name).map_err(|reason| format!("{name}: {reason}"))
}
