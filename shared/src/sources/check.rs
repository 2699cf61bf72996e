//! Reads the document as written, and checks single fields.

use std::time::Duration;

use serde::{Deserialize, de::IgnoredAny};

#[cfg(any(test, feature = "scheduler"))]
use super::alerts::AlertsEntry;
use super::{
    origin::OriginEntry,
    provider::{AnyProvider, Registry},
    queue::{self, QueueArn},
    source::SourceEntry,
    table::{ByName, Secrets, StrictTable, one_or_more},
    template::{InvalidTemplate, Template},
};
use crate::{
    nearest::nearest,
    protocol::entity::{EntityKey, SourceName},
    providers::{self, Generic, Provider, Secret},
};

#[cfg(any(test, feature = "scheduler"))]
type AlertsForm = Option<StrictTable<AlertsEntry>>;
/// Only the scheduler sends alerts; the other functions accept the table and ignore it.
#[cfg(not(any(test, feature = "scheduler")))]
type AlertsForm = IgnoredAny;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourcesForm {
    /// The URL of the document's JSON schema, which editors use.
    #[serde(rename = "$schema", default)]
    _schema: IgnoredAny,
    pub(super) origin: Option<StrictTable<OriginEntry>>,
    #[serde(default)]
    #[cfg_attr(not(any(test, feature = "scheduler")), allow(dead_code, reason = "it is only accepted"))]
    pub(super) alerts: AlertsForm,
    pub(super) sources: ByName<StrictTable<SourceEntry>>,
}

one_or_more!(
    pub(super) Templates(String),
    "`entity` is a template such as `{source}/{entity}`, or a list of templates"
);

one_or_more!(
    /// The ids of the recipient, for a sender with a published key.
    pub(super) RecipientIds(String),
    "an id is a text; several are a list of texts"
);

impl Templates {
    pub(super) fn check(self, source: &SourceName, provider: &str) -> Result<Vec<Template>, String> {
        let texts = Vec::from(self);
        let unrouted = EntityKey::unrouted(source);
        let mut templates: Vec<Template> = Vec::new();
        for (text, number) in texts.iter().zip(1..) {
            let wrong = |error: InvalidTemplate| format!("entity template {number}: {error}");
            let template = Template::parse(text).map_err(wrong)?;
            if let Some(constant) = template.constant(source, provider) {
                let key = EntityKey::parse(&constant).map_err(|error| wrong(error.into()))?;
                if key == unrouted {
                    let reason =
                        format!("the key `{unrouted}` is reserved for deliveries without an order, which are parked");
                    return Err(format!("entity template {number}: {reason}; choose another key"));
                }
            }
            if let Some(before) = templates.iter().position(Template::always_has_a_value) {
                let before = before + 1;
                let reason = format!("is never used, because template {before} always has a value");
                return Err(format!("entity template {number} {reason}; put template {before} last or remove one"));
            }
            templates.push(template);
        }
        Ok(templates)
    }
}

pub(super) fn provider(
    name: &str,
    generic: Option<Generic>,
    url: Option<&str>,
    queue: Option<&QueueArn>,
    registry: Registry,
) -> Result<AnyProvider, String> {
    let provider = match (name, generic) {
        (name, _) if !providers::NAMES.contains(&name) => {
            let names = providers::NAMES.join(", ");
            // A name that is similar to no provider's is hidden, because it may be a secret.
            return Err(match nearest(name, providers::NAMES) {
                Some(nearest) => {
                    format!("there is no provider `{name}`; did you mean `{nearest}`? The providers are {names}")
                }
                None => format!("no such provider exists; the providers are {names}"),
            });
        }
        ("generic", Some(generic)) => match generic.objection_in_source(queue.is_some()) {
            Some(objection) => return Err(objection),
            None => (registry.by_options)(generic),
        },
        ("generic", None) => return Err("provider \"generic\" needs a table `generic` with its options".into()),
        (_, Some(_)) => {
            return Err("a table `generic` needs provider = \"generic\"; write that, or remove the table".into());
        }
        (name, None) => (registry.by_name)(name).map_or(AnyProvider::NotInThisBuild, AnyProvider::BuiltIn),
    };
    let inlet = provider.as_dyn().map(Provider::inlet);
    if let Some(objection) = inlet.and_then(|inlet| queue::objection_to_inlet(name, inlet, queue.is_some())) {
        return Err(objection);
    }
    let configured = provider.as_dyn().map(|provider| provider.with_url(url)).transpose()?.flatten();
    Ok(configured.map(AnyProvider::Configured).unwrap_or(provider))
}

pub(super) fn secrets(secrets: Secrets, provider: Option<&dyn Provider>) -> Result<Vec<Secret>, String> {
    let checked = |(number, secret): (usize, Secret)| {
        let objected = |objection: &str| format!("`secrets`, number {number}: {objection}");
        let secret = secret.decoded().map_err(objected)?;
        match provider.and_then(|provider| provider.objection(&secret)) {
            Some(objection) => Err(objected(objection)),
            None => Ok(secret),
        }
    };
    (1..).zip(Vec::from(secrets)).map(checked).collect()
}

pub(super) fn recipients(
    webhook_id: RecipientIds,
    client_id: RecipientIds,
    provider: Option<&dyn Provider>,
) -> Result<Vec<String>, String> {
    let expected = provider.map(|provider| provider.published().and_then(|published| published.recipient()));
    let mut recipients = Vec::new();
    for (field, ids) in [("webhook_id", webhook_id), ("client_id", client_id)] {
        let ids = Vec::from(ids);
        if !ids.is_empty() && expected.is_some_and(|expected| expected != Some(field)) {
            return Err(format!("this provider has no `{field}`; remove it"));
        }
        if ids.iter().any(String::is_empty) {
            return Err(format!("`{field}` is empty"));
        }
        recipients.extend(ids);
    }
    Ok(recipients)
}

pub(super) fn positive(field: &str, duration: Duration) -> Result<Duration, String> {
    if duration.is_zero() { Err(format!("`{field}` must be more than zero")) } else { Ok(duration) }
}

/// Checks a TOML table with the settings of the built-in handler `name`. A source that uses this handler
/// must have the table. Any other source must not have it.
pub(super) fn handler_table<T>(name: &str, fields: &str, handler: &str, table: Option<T>) -> Result<Option<T>, String> {
    match (handler == name, table) {
        (true, None) => Err(format!("handler = \"{name}\" needs a table `{name}` with {fields}")),
        (false, Some(_)) => {
            Err(format!("a table `{name}` needs handler = \"{name}\"; write that, or remove the table"))
        }
        (_, table) => Ok(table),
    }
}
