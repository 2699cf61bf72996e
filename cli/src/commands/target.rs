//! Which deployment a command speaks to: a local run, or one in AWS.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use aws_credential_types::provider::ProvideCredentials;
use clap::Args;
use serializer::sender::Sender;
use webhook_serializer::{
    aws::{Account, Parts, bundle},
    config::{Environment, StoreConfig},
    engine::{append::Inbox, operator::Operator},
    telemetry::Log,
    time::Surroundings,
    tls::Roots,
};

/// Where `serializer local` serves by default.
pub const LOCAL: &str = "http://127.0.0.1:9000";

/// In AWS, the names are outputs of the stack; credentials and region come
/// from the usual places (environment, profile, single sign-on).
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which deployment")]
pub struct Target {
    /// The `serializer local` on this machine; with its URL where that is not http://127.0.0.1:9000
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = LOCAL, value_name = "URL")]
    local: Option<String>,
    /// The table with one row per order
    #[arg(long, env = "ENTITIES_TABLE", value_name = "NAME")]
    entities_table: Option<String>,
    /// The table with deliveries and receipts
    #[arg(long, env = "INBOX_TABLE", value_name = "NAME")]
    inbox_table: Option<String>,
    /// The table of the handler `orders`, where it is used
    #[arg(long, env = "ORDERS_TABLE", value_name = "NAME")]
    orders_table: Option<String>,
    /// The queue of wake-ups
    #[arg(long, env = "QUEUE_URL", value_name = "URL")]
    queue_url: Option<String>,
    /// How long deliveries and receipts are kept, in days
    #[arg(long, env = "RETENTION_DAYS", default_value_t = 30, value_name = "DAYS")]
    retention_days: u64,
}

/// A deployment, connected.
#[derive(Debug)]
pub struct Deployment {
    /// Store and queue.
    pub parts: Parts,
    /// How long rows are kept.
    pub retention: Duration,
    /// Its clock.
    pub surroundings: Surroundings,
    /// The table of the handler `orders`, where it is known.
    pub orders_table: Option<String>,
    /// What says on a command line that it is this one: ` --local`, or nothing.
    pub option: String,
}

impl Target {
    /// Connects.
    pub async fn connect(&self) -> Result<Deployment> {
        let surroundings = Surroundings::system();
        let (account, config, orders_table) = match &self.local {
            Some(url) => local(url).await?,
            None => {
                self.config()?;
                (account().await?, self.config()?, self.orders_table.clone())
            }
        };
        let option = self.local.as_deref().map(local_option).unwrap_or_default();
        let parts = Parts::connect(&account, &config, &surroundings, None);
        Ok(Deployment { parts, retention: config.retention, surroundings, orders_table, option })
    }

    fn config(&self) -> Result<StoreConfig> {
        let needed = |value: &Option<String>, name: &str| {
            value.clone().with_context(|| {
                format!(
                    "which deployment? Give --local for the `serializer local` on this machine; for a stack, {name} \
                     and the other names, or set them with its output CommandLine (docs/operating.md)"
                )
            })
        };
        Ok(StoreConfig {
            entities_table: needed(&self.entities_table, "--entities-table")?,
            inbox_table: needed(&self.inbox_table, "--inbox-table")?,
            queue_url: needed(&self.queue_url, "--queue-url")?,
            retention: Duration::from_secs(self.retention_days * 86_400),
        })
    }

    /// The URL of the local run that is meant, if one is.
    pub fn local(&self) -> Option<&str> {
        self.local.as_deref()
    }

    /// What the deployment is called, for people.
    pub fn name(&self) -> String {
        match (&self.local, &self.entities_table) {
            (Some(url), _) => format!("the local run at {url}"),
            (None, Some(table)) => format!("the stack in AWS with the table {table}"),
            (None, None) => "a stack in AWS".to_owned(),
        }
    }

    /// Whether any deployment is named.
    pub fn is_named(&self) -> bool {
        self.local.is_some() || self.config().is_ok()
    }
}

/// Who runs this in AWS, and in which region.
pub async fn account() -> Result<Account> {
    // In no hurry to start: a company's proxy is known to its machines.
    let roots = bundle(&Environment)?.unwrap_or_else(Roots::machine);
    let http = Account { roots: Some(roots.clone()), ..Account::local("", "") }.http_client();
    let loaded = aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http).load().await;
    let region = loaded.region().context("no AWS region: set AWS_REGION, or one in your profile")?;
    let credentials =
        loaded.credentials_provider().context("no AWS credentials: `aws configure` or `aws sso login`")?;
    // Now: with the first request it would look like a store that is out.
    let found = credentials.provide_credentials().await;
    found.context("no AWS credentials: `aws configure` or `aws sso login`")?;
    Ok(Account::of(region.clone(), credentials, roots))
}

/// What the `serializer local` at `url` says of itself, as a function's
/// environment has it.
pub async fn said_by(url: &str) -> Result<BTreeMap<String, String>> {
    ensure!(url.starts_with("http://"), "{url} is no URL; say --local={LOCAL}, with the port that it printed");
    let answer = Sender::new(url)
        .request("GET", "/local", &[], Vec::new())
        .await
        .context("is `serializer local` running? Start it, or say where it is: --local=http://127.0.0.1:PORT")?;
    serde_json::from_str(&answer.body).with_context(|| format!("{url} is no `serializer local`"))
}

async fn local(url: &str) -> Result<(Account, StoreConfig, Option<String>)> {
    let said = said_by(url).await?;
    let named = |name: &str| said.get(name).cloned().with_context(|| format!("{url} does not name its {name}"));
    let account = Account::local(named("AWS_ENDPOINT_URL_DYNAMODB")?, named("AWS_ENDPOINT_URL_SQS")?);
    let config = StoreConfig {
        entities_table: named("ENTITIES_TABLE")?,
        inbox_table: named("INBOX_TABLE")?,
        queue_url: named("QUEUE_URL")?,
        retention: Duration::from_secs(named("RETENTION_DAYS")?.parse::<u64>()? * 86_400),
    };
    Ok((account, config, said.get("ORDERS_TABLE").cloned()))
}

impl Deployment {
    /// Whether it is a `serializer local` on this machine.
    pub fn is_local(&self) -> bool {
        !self.option.is_empty()
    }

    /// A command line of this command about `key` in this deployment.
    pub fn command(&self, command: &str, key: &str) -> String {
        command_line(command, &self.option, key)
    }

    /// A command line of this command with these options and values.
    pub fn line(&self, command: &str, arguments: &[&str]) -> String {
        let arguments: String = arguments.iter().map(|argument| format!(" {}", quoted(argument))).collect();
        format!("serializer {command}{}{arguments}", self.option)
    }

    /// An operator of it.
    pub fn operator(&self) -> Operator {
        let Parts { store, waker, .. } = self.parts.clone();
        let inbox = Inbox::new(store.clone(), waker.clone(), self.retention, Arc::new(Log));
        Operator::new(store, waker, inbox, self.retention)
    }
}

/// What says on a command line that the deployment is the `serializer local` at `url`.
pub fn local_option(url: &str) -> String {
    if url == LOCAL { " --local".to_owned() } else { format!(" --local={url}") }
}

/// A command line of `command` about `key`, in the deployment that `option` says.
pub fn command_line(command: &str, option: &str, key: &str) -> String {
    format!("serializer {command}{option} {}", quoted(key))
}

/// As a shell takes it for one word.
pub fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.:@%+,-".contains(&byte);
    if text.bytes().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_usual_port_needs_no_url() {
        let line = |url| super::command_line("inspect", &super::local_option(url), "a/b c");
        assert_eq!(line("http://127.0.0.1:9000"), "serializer inspect --local 'a/b c'");
        assert_eq!(line("http://127.0.0.1:9001"), "serializer inspect --local=http://127.0.0.1:9001 'a/b c'");
    }

    #[test]
    fn a_key_is_one_word_for_a_shell() {
        assert_eq!(super::quoted("shopify/order/1001"), "shopify/order/1001");
        assert_eq!(super::quoted("shop/it's #1"), r"'shop/it'\''s #1'");
    }
}
