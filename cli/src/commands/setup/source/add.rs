//! `serializer source add`: adds a source, and reads its secret from a prompt or standard input.

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, builder::PossibleValuesParser};
use serde_json::{Map, Value, json};
use serializer::{document, output::this_command};
use webhook_serializer::{
    protocol::entity::SourceName,
    providers::{self, NAMES},
    sources::{CredentialField, Intake},
};

use super::{
    ChangeOptions, refuse_guessable, secret, soon,
    whereabouts::{DocumentLocation, local_queue},
};

#[derive(Debug, Args)]
#[command(
    after_help = "Type the secret at the prompt, or pass it on standard input. The command shows the change without \
                       the secret, checks it as `serializer check` does, and asks before it writes.\n\n\
                       Example:\n  \
                       serializer source add shopify --provider shopify --handler forward=https://example.com/hooks <secret.txt"
)]
pub(super) struct Add {
    /// The source's name: its webhooks are posted to /webhooks/NAME
    #[arg(value_name = "NAME", value_parser = SourceName::parse)]
    name: SourceName,
    /// The provider, whose rules verify the webhooks
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(NAMES), required_unless_present = "from")]
    provider: Option<String>,
    /// Instead of a provider: the source whose deliveries this one gets. That source has the handler `fan-out`
    #[arg(long, value_name = "SOURCE", value_parser = SourceName::parse, conflicts_with = "provider")]
    from: Option<SourceName>,
    /// The handler: `log`, `forward=URL`, `invoke=FUNCTION`, or a handler of your own worker
    #[arg(long, value_name = "HANDLER")]
    handler: String,
    /// With forward: allow a URL on this machine or in a private network
    #[arg(long)]
    allow_private: bool,
    /// The key of an order, as a template such as {source}/{entity}; may be repeated
    #[arg(long, value_name = "TEMPLATE")]
    entity: Vec<String>,
    /// Topics to take, such as orders/*; may be repeated. All others are ignored
    #[arg(long, value_name = "TOPIC")]
    take: Vec<String>,
    /// Topics to ignore; may be repeated
    #[arg(long, value_name = "TOPIC")]
    ignore: Vec<String>,
    /// Any other field of the document, such as handler_timeout=30s, retry.attempts=3, url=… for Square, webhook_id=…
    /// for PayPal, generic.header=x-acme-signature; may be repeated
    #[arg(long = "option", value_name = "K=V")]
    options: Vec<String>,
    /// Add the source without a secret for now, if its sender makes the secret only for an existing URL
    #[arg(long)]
    no_secret: bool,
    #[command(flatten)]
    manner: ChangeOptions,
    #[command(flatten)]
    whereabouts: DocumentLocation,
}

impl Add {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let place = self.whereabouts.place().await?;
        let name = self.name.as_str();
        // An existing name is refused before the user types a secret.
        if let Some(found) = place.read().await? {
            let is_new = document::accepted(&place, &found)?.get(name).is_none();
            ensure!(
                is_new,
                "{place} already has a source `{name}`: choose another name, or give that source another secret with \
                 `{} source rotate {name}`",
                this_command()
            );
        }
        let fields = self.fields()?;
        let done = self.manner.apply(&place, name, |text| {
            ensure!(
                !text.has(name),
                "{place} already has a source `{name}`: choose another name, or remove that source first"
            );
            text.insert(name, &fields)
        });
        let Some(done) = done.await? else { return Ok(ExitCode::FAILURE) };
        let source = done.change.sources.get(name).context("it is there")?;
        let is_preset = self.provider.as_deref().is_some_and(|name| providers::by_name(name).is_some());
        let query = if is_preset && source.query().is_some() { "?token=…" } else { "" };
        let base = self.whereabouts.webhooks().await?.unwrap_or_else(|| "…/webhooks/".to_owned());
        let url = format!("{base}{name}{query}");
        let mut words = match source.intake() {
            Intake::Url => vec![
                format!("{}; until then, ingest may answer the source's webhooks 404", soon()),
                format!("its webhooks go to {url}"),
            ],
            Intake::Queue(queue) => vec![match self.whereabouts.deployment_name().local {
                Some(url) => format!("{}; `local` then makes the queue {}", soon(), local_queue(url, queue).await),
                None => format!(
                    "{}; until then, messages stay in {queue}: let that queue start ingest (docs/queues.md)",
                    soon()
                ),
            }],
            Intake::CopiesOf(from) => vec![format!(
                "{}; until then, it may get some of the webhooks of `{from}` and not others (docs/several-handlers.md)",
                soon()
            )],
        };
        if source.forward().is_some() {
            words.push(format!(
                "the command made a signing secret, `sources.{name}.forward.secret`: let the endpoint verify requests \
                 with it (docs/forward.md)"
            ));
        }
        self.manner.report(
            &place,
            &done,
            ("added", "is added to"),
            name,
            &words,
            json!({ "url": source.is_door().then_some(url) }),
        );
        Ok(ExitCode::SUCCESS)
    }

    fn fields(&self) -> Result<Vec<(String, Value)>> {
        let provider = self.provider.iter().map(|name| ("provider".to_owned(), name.as_str().into()));
        let from = self.from.iter().map(|name| ("from".to_owned(), name.as_str().into()));
        let mut fields: Vec<(String, Value)> = provider.chain(from).collect();
        let mut options = Map::new();
        for option in &self.options {
            let (path, value) =
                option.split_once('=').context("write --option NAME=VALUE, such as --option retry.attempts=3")?;
            set(&mut options, path, read(path, value))
                .with_context(|| format!("--option {path} is given twice: leave one out"))?;
        }
        ensure!(
            !options.contains_key("secrets"),
            "a secret cannot be given as an option: type it at the prompt, or pass it on standard input"
        );
        let has_no_secret = |name: &str| {
            let provider = providers::by_name(name);
            provider.is_some_and(|provider| provider.published().is_some() || !provider.inlet().has_webhooks())
        };
        let needs_none = self.no_secret || options.contains_key("queue");
        if let Some(provider) = self.provider.as_deref().filter(|name| !needs_none && !has_no_secret(name)) {
            let what = format!("the secret of {provider}");
            let secret = secret::read(&what)?;
            refuse_guessable(&what, CredentialField::Secrets, &secret)?;
            fields.push(("secrets".into(), json!([secret])));
        }
        let (handler, url) = match self.handler.split_once('=') {
            Some((handler, url)) => (handler, Some(url)),
            None => (self.handler.as_str(), None),
        };
        fields.push(("handler".into(), handler.into()));
        match self.entity.as_slice() {
            [] => {}
            [one] => fields.push(("entity".into(), one.as_str().into())),
            several => fields.push(("entity".into(), json!(several))),
        }
        let listed = [("take", &self.take), ("ignore", &self.ignore)];
        let topics: Map<String, Value> = listed
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(field, list)| (field.into(), json!(list)))
            .collect();
        if !topics.is_empty() {
            fields.push(("topics".into(), topics.into()));
        }
        match (handler, url) {
            ("forward", Some(url)) => {
                let mut forward = json!({ "url": url, "secret": secret::random() });
                if self.allow_private {
                    forward["allow_private"] = true.into();
                }
                fields.push(("forward".into(), forward));
            }
            ("forward", None) => {
                bail!("forward needs a URL: --handler forward=https://example.com/webhooks")
            }
            // Lambda's notation: a name or an ARN, and a qualifier after a colon.
            ("invoke", Some(function)) => fields.push(("invoke".into(), invoke(function))),
            ("invoke", None) => {
                bail!("invoke needs a function: --handler invoke=orders, or with an alias invoke=orders:live")
            }
            (other, Some(_)) => {
                bail!("--handler {other}=… is invalid: only `forward` takes a URL, and only `invoke` a function")
            }
            (_, None) => {}
        }
        fields.extend(options);
        Ok(fields)
    }
}

/// Parses the value of an option. A value is a boolean, a list, or, for `retry.attempts`, a number. Any other value is
/// text, even an id that consists of digits.
fn read(path: &str, value: &str) -> Value {
    match serde_json::from_str(value) {
        Ok(value @ (Value::Bool(_) | Value::Array(_))) => value,
        Ok(value @ Value::Number(_)) if path == "retry.attempts" => value,
        _ => value.into(),
    }
}

fn set(fields: &mut Map<String, Value>, path: &str, value: Value) -> Option<()> {
    match path.split_once('.') {
        None if fields.contains_key(path) => None,
        None => {
            fields.insert(path.to_owned(), value);
            Some(())
        }
        Some((table, rest)) => {
            let table = fields.entry(table).or_insert_with(|| Value::Object(Map::new()));
            set(table.as_object_mut()?, rest, value)
        }
    }
}

/// Returns the value of the field `invoke`. The qualifier follows the seventh colon of an ARN, or the first colon of a
/// name.
pub fn invoke(function: &str) -> Value {
    let own = if function.starts_with("arn:") { 6 } else { 0 };
    match function.match_indices(':').nth(own) {
        Some((at, _)) => json!({ "function": function[..at], "qualifier": function[at + 1..] }),
        None => json!({ "function": function }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_names_and_arns_are_parsed() {
        const ARN: &str = "arn:aws:lambda:eu-central-1:123456789012:function:orders";
        for name in ["orders", ARN] {
            assert_eq!(invoke(name), json!({ "function": name }));
            assert_eq!(invoke(&format!("{name}:live")), json!({ "function": name, "qualifier": "live" }));
        }
    }
}
