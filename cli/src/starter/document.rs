//! Writes the sources document, with the samples' development secrets and a comment on each field to change.

use std::{collections::BTreeMap, fmt::Write};

use toml_edit::{DocumentMut, Item, Table, Value};
use webhook_serializer::providers::{self, ShopOrder};

use super::{StarterChoices, StarterHandler, relay};
use crate::local::samples;

const HEAD: &str = "\
# The senders: webhooks of [sources.NAME] are posted to /webhooks/NAME. docs/sources-reference.md describes all fields.
#
# Webhooks with the same key (`entity`) wait in one inbox, in sequence of arrival. Different keys run in parallel.
#
# REPLACE marks what is for development, and known to everybody. `serializer check sources.toml` says what is left to
# replace. Keep the real secrets out of version control.
";

/// Ends the lines with what is for development.
pub(crate) const REPLACE: &str = "# REPLACE";

/// Returns the document. `keys` are the keys of each source's samples.
pub(super) fn text(choices: &StarterChoices, keys: &BTreeMap<String, Vec<String>>) -> String {
    let mut text = HEAD.to_owned();
    for provider in &choices.providers {
        source(choices, provider, keys.get(provider).map_or(&[], Vec::as_slice), &mut text);
    }
    if relay::is_used(choices) {
        relay::source(choices, &mut text);
    }
    text
}

fn source(choices: &StarterChoices, provider: &str, keys: &[String], text: &mut String) {
    let table = sample_source(provider);
    let field = |name: &str| table.get(name).and_then(Item::as_value).map(|value| value.to_string().trim().to_owned());
    let _ = writeln!(text, "\n[sources.{provider}]\nprovider = \"{provider}\"");
    if let Some(rule) = providers::rule_of(provider) {
        let _ = writeln!(text, "# Secret: {}.", plain(rule.facts.secret).trim_end_matches('.'));
    }
    if let Some(secret) = sample_secret(provider) {
        let _ = writeln!(text, "secrets = [{secret}] {REPLACE}");
    }
    for (name, what) in [("webhook_id", ""), ("client_id", ""), ("url", ": the URL that you register")] {
        if let Some(value) = field(name) {
            let _ = writeln!(text, "{name} = {value} {REPLACE}{what}");
        }
    }
    let entity = entity(choices, provider);
    let _ = writeln!(text, "# Key: {}.", entity.what);
    if !keys.is_empty() {
        let _ = writeln!(text, "# Its samples have the key {}.", keys.join(", "));
    }
    let templates: Vec<String> = entity.templates.iter().map(|template| quoted(template)).collect();
    let _ = match &templates[..] {
        [one] => writeln!(text, "entity = {one}"),
        several => writeln!(text, "entity = [{}]", several.join(", ")),
    };
    handler(choices, text);
    if let Some(options) = table.get("generic").and_then(Item::as_table) {
        let _ =
            write!(text, "\n{REPLACE}: what the sender's documentation says\n[sources.{provider}.generic]\n{options}");
    }
}

/// Returns the samples' own source of the provider, which has development secrets.
fn sample_source(provider: &str) -> Table {
    let document: DocumentMut = samples::SOURCES.parse().expect("the samples' own document is TOML");
    let sources = document["sources"].as_table().expect("it has sources");
    let is_its = |source: &&Table| source.get("provider").and_then(Item::as_str) == Some(provider);
    let found = sources.iter().filter_map(|(_, source)| source.as_table()).find(is_its);
    found.cloned().expect("each provider has samples")
}

/// Returns the secret of the provider's samples, in quotes.
pub(super) fn sample_secret(provider: &str) -> Option<String> {
    let table = sample_source(provider);
    let secret = table.get("secrets").and_then(Item::as_array)?.get(0)?;
    Some(secret.to_string().trim().to_owned())
}

struct Entity {
    templates: Vec<String>,
    /// A description of the key, for a comment of one line.
    what: String,
}

/// Returns the provider of `choices` whose order ids are the shop's.
pub(super) fn shop(choices: &StarterChoices) -> Option<&str> {
    let is_shop = |provider: &&String| shop_order(provider) == ShopOrder::Own;
    choices.providers.iter().find(is_shop).map(String::as_str)
}

pub(super) fn shop_order(provider: &str) -> ShopOrder {
    providers::rule_of(provider).map_or(ShopOrder::Absent, |rule| rule.reads.shop_order)
}

fn entity(choices: &StarterChoices, provider: &str) -> Entity {
    let own = || "{source}/{entity}".to_owned();
    if choices.providers.len() == 1 {
        let what = "the source's name, and what the provider's own rule finds".to_owned();
        return Entity { templates: vec![own()], what };
    }
    let key = &choices.key;
    match shop_order(provider) {
        ShopOrder::Own if shop(choices) == Some(provider) => Entity {
            templates: vec![format!("{key}/{{entity}}")],
            what: format!("{key}/order/ID, with the shop's own id of the order; the others name it by this id"),
        },
        ShopOrder::Own => Entity {
            templates: vec![own()],
            what: "its own; this shop may give the same ids to other orders".to_owned(),
        },
        ShopOrder::Copied { to, fields } => Entity {
            templates: fields.iter().map(|field| format!("{key}/order/{{{field}}}")).chain([own()]).collect(),
            what: format!("{key}/order/ID, if you write the order's id into {}; otherwise its own", plain(to)),
        },
        ShopOrder::Absent if relay::is_relayed(choices, provider) => {
            Entity { templates: vec![own()], what: relay::key_comment() }
        }
        ShopOrder::Absent => Entity {
            templates: vec![own()],
            what: "its own; its events do not name the shop's order (docs/one-order.md)".to_owned(),
        },
    }
}

pub(super) fn handler(choices: &StarterChoices, text: &mut String) {
    let _ = match &choices.handler {
        StarterHandler::Log => writeln!(text, "handler = \"log\""),
        StarterHandler::Forward { url } => {
            let private = if super::programs::local_port(url).is_some() { ", allow_private = true" } else { "" };
            let url = quoted(url);
            let secret = quoted(&choices.secret);
            writeln!(text, "handler = \"forward\"\nforward = {{ url = {url}, secret = {secret}{private} }}")
        }
        StarterHandler::Invoke { function, qualifier } => {
            let qualifier = qualifier.as_ref().map(|qualifier| format!(", qualifier = {}", quoted(qualifier)));
            let function = quoted(function);
            let qualifier = qualifier.unwrap_or_default();
            writeln!(text, "handler = \"invoke\"\ninvoke = {{ function = {function}{qualifier} }}")
        }
    };
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Removes the marks of Markdown from a fact.
fn plain(text: &str) -> String {
    text.replace(['*', '`'], "")
}
