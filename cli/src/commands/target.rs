//! Which deployment a command speaks to: a local run, or one in AWS.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use aws_config::Region;
use aws_credential_types::provider::ProvideCredentials;
use clap::Args;
use serializer::{
    local::sender::Sender,
    stack::{Stack, api::Services},
};
use webhook_serializer::{
    aws::{Account, Parts, bundle, endpoints::Variant},
    config::{Environment, StoreConfig, parked_retention},
    engine::append::Inbox,
    operator::Operator,
    protocol::entity::EntityKey,
    telemetry::Log,
    time::{Env, Timestamp},
    tls::Roots,
};

/// Where `serializer local` serves by default.
pub const LOCAL: &str = "http://127.0.0.1:9000";

/// In AWS, the names are outputs of the stack; credentials and region come
/// from the usual places (environment, profile, single sign-on). With --stack,
/// what the environment says of tables and queue is not looked at.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which deployment")]
pub struct Target {
    /// The `serializer local` on this machine; with its URL where that is not http://127.0.0.1:9000
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = LOCAL, value_name = "URL")]
    local: Option<String>,
    /// The stack in AWS: its outputs name tables, queue and sources
    #[arg(long, value_name = "NAME", conflicts_with = "local")]
    stack: Option<String>,
    #[command(flatten)]
    who: Who,
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
    /// How long what is parked is kept, in days; 0: until somebody decides
    #[arg(long, env = "PARKED_RETENTION_DAYS", default_value_t = 0, value_name = "DAYS")]
    parked_retention_days: u64,
}

/// Whose credentials, and in which region.
#[derive(Debug, Clone, Default, Args)]
pub struct Who {
    /// The profile of ~/.aws/config whose credentials and region are used; or set AWS_PROFILE
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The AWS region; or set AWS_REGION
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
}

/// A deployment by name: a local run's URL, a stack, or what is set.
#[derive(Debug, Clone, Copy)]
pub struct Whose<'a> {
    pub local: Option<&'a str>,
    pub stack: Option<&'a str>,
    pub who: &'a Who,
}

/// A deployment, connected.
#[derive(Debug)]
pub struct Deployment {
    /// Store and queue.
    pub parts: Parts,
    /// The names of tables and queue.
    pub config: StoreConfig,
    /// How long rows are kept.
    pub retention: Duration,
    /// Its clock.
    pub env: Env,
    /// The table of the handler `orders`, where it is known.
    pub orders_table: Option<String>,
    /// What says on a command line that it is this one: ` --local`, ` --stack …`,
    /// or nothing.
    pub option: String,
    /// What it says of itself, as a function's environment has it; empty where
    /// only tables and queue were named.
    pub said: BTreeMap<String, String>,
    /// Who asks, and where; in a local run, nobody in particular.
    pub account: Account,
    /// Its stack, where one was named.
    pub stack: Option<Stack>,
    is_local: bool,
}

impl Target {
    /// Connects.
    pub async fn connect(&self) -> Result<Deployment> {
        let env = Env::system();
        let mut stack = None;
        let (account, said) = match (&self.local, &self.stack) {
            (Some(url), _) => {
                let said = said_by(url).await?;
                let named =
                    |name: &str| said.get(name).cloned().with_context(|| format!("{url} does not name its {name}"));
                (Account::local(named("AWS_ENDPOINT_URL_DYNAMODB")?, named("AWS_ENDPOINT_URL_SQS")?), said)
            }
            (None, Some(name)) => {
                let account = account_of(&self.who).await?;
                let found = Stack::find(&Services::of(&account), name).await?;
                let said = found.variables()?;
                stack = Some(found);
                (account, said)
            }
            (None, None) => {
                self.config()?;
                (account_of(&self.who).await?, BTreeMap::new())
            }
        };
        let is_named = self.local.is_some() || stack.is_some();
        let config = if is_named { self.named_by(&said)? } else { self.config()? };
        let orders_table = if is_named { said.get("ORDERS_TABLE").cloned() } else { self.orders_table.clone() };
        let parts = Parts::connect(&account, &config, &env, None);
        let (option, is_local) = (self.option(), self.local.is_some());
        let retention = config.retention;
        Ok(Deployment { parts, config, retention, env, orders_table, option, said, account, stack, is_local })
    }

    /// What says on a command line that it is this one.
    fn option(&self) -> String {
        let local = self.local.as_deref().map(local_option);
        let stack = self.stack.as_deref().map(|name| format!(" --stack {}", quoted(name)));
        local.unwrap_or_else(|| stack.unwrap_or_default() + &self.who.option())
    }

    fn config(&self) -> Result<StoreConfig> {
        let needed = |value: &Option<String>, name: &str| {
            value.clone().with_context(|| {
                format!(
                    "which deployment? Give --local for the `serializer local` on this machine, or --stack NAME for \
                     one in AWS; without a stack's outputs, {name} and the other names (docs/operating.md)"
                )
            })
        };
        Ok(StoreConfig {
            entities_table: needed(&self.entities_table, "--entities-table")?,
            inbox_table: needed(&self.inbox_table, "--inbox-table")?,
            queue_url: needed(&self.queue_url, "--queue-url")?,
            retention: Duration::from_secs(self.retention_days * 86_400),
            parked_retention: parked_retention(self.parked_retention_days),
        })
    }

    /// The names of tables and queue, as the deployment says them.
    fn named_by(&self, said: &BTreeMap<String, String>) -> Result<StoreConfig> {
        let whose = self.stack.as_ref().map(|name| format!("the stack `{name}`"));
        let whose = self.local.clone().or(whose).unwrap_or_default();
        let named = |name: &str| said.get(name).cloned().with_context(|| format!("{whose} does not name its {name}"));
        let days =
            |name: &str, days: &str| days.parse().with_context(|| format!("{name} of {whose}: {days} is no number"));
        // A stack of an earlier template says nothing of what is parked: it keeps it.
        let parked = said.get("PARKED_RETENTION_DAYS").map_or("0", String::as_str);
        Ok(StoreConfig {
            entities_table: named("ENTITIES_TABLE")?,
            inbox_table: named("INBOX_TABLE")?,
            queue_url: named("QUEUE_URL")?,
            retention: Duration::from_secs(86_400 * days("RETENTION_DAYS", &named("RETENTION_DAYS")?)?),
            parked_retention: parked_retention(days("PARKED_RETENTION_DAYS", parked)?),
        })
    }

    /// Which deployment's document is meant.
    pub fn whose(&self) -> Whose<'_> {
        Whose { local: self.local.as_deref(), stack: self.stack.as_deref(), who: &self.who }
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
        self.local.is_some() || self.stack.is_some() || self.config().is_ok()
    }
}

impl Who {
    /// The same on a command line.
    pub fn option(&self) -> String {
        let named = [("--profile", &self.profile), ("--region", &self.region)];
        let given = named.into_iter().filter_map(|(option, value)| Some((option, value.as_ref()?)));
        given.map(|(option, value)| format!(" {option} {}", quoted(value))).collect()
    }
}

/// Who runs this in AWS, and in which region.
pub async fn account_of(who: &Who) -> Result<Account> {
    // In no hurry to start: a company's proxy is known to its machines.
    let roots = bundle(&Environment)?.unwrap_or_else(Roots::machine);
    let http = Account { roots: Some(roots.clone()), ..Account::local("", "") }.http_client();
    let mut loader = aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http);
    if let Some(profile) = &who.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(region) = &who.region {
        loader = loader.region(Region::new(region.clone()));
    }
    let loaded = loader.load().await;
    let region = loaded.region().context("no AWS region: give --region, set AWS_REGION, or one in your profile")?;
    let credentials =
        loaded.credentials_provider().context("no AWS credentials: `aws login`, `aws sso login` or `aws configure`")?;
    // Now: with the first request it would look like a store that is out.
    let found = credentials.provide_credentials().await;
    found.context("no AWS credentials: `aws login`, `aws sso login` or `aws configure`")?;
    // A profile may say so too.
    let variant = Variant {
        fips: loaded.use_fips().unwrap_or_default(),
        dual_stack: loaded.use_dual_stack().unwrap_or_default(),
    };
    Ok(Account { variant, ..Account::of(region.clone(), credentials, roots) })
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

impl Deployment {
    /// Whether it is a `serializer local` on this machine.
    pub fn is_local(&self) -> bool {
        self.is_local
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

    /// Why nothing could be done to an order whose lease somebody kept.
    pub fn contended(&self, order: &EntityKey, by: &str, until: Timestamp) -> anyhow::Error {
        let (hold, release) = (self.command("hold", order.as_str()), self.command("lease release", order.as_str()));
        anyhow::anyhow!(
            "{order} is held by {by} until {until}; nothing was changed. Try again; where it is always at work, `{hold} \
             --why TEXT` first lets it start nothing else. `{release} --why TEXT` takes the lease away"
        )
    }

    /// An operator of it.
    pub fn operator(&self) -> Operator {
        let Parts { store, waker, .. } = self.parts.clone();
        let inbox = Inbox::new(store.clone(), waker.clone(), self.retention, Arc::new(Log));
        let operator = Operator::new(store, waker, inbox, self.retention).parked_for(self.config.parked_retention);
        if self.is_local { operator.in_one_part() } else { operator }
    }
}

/// What says on a command line that the deployment is the `serializer local` at `url`.
pub fn local_option(url: &str) -> String {
    if url == LOCAL { " --local".to_owned() } else { format!(" --local={url}") }
}

/// A command line of `command` about `key`, in the deployment that `option` says.
pub fn command_line(command: &str, option: &str, key: &str) -> String {
    format!("{} {command}{option} {}", this_command(), quoted(key))
}

/// This command on a command line: by its name, or as `./serializer` where it was called
/// like that, which is on nobody's PATH.
pub fn this_command() -> String {
    called(std::env::args_os().next().and_then(|first| first.into_string().ok()))
}

/// cargo calls what it has built by another path, without `./`.
fn called(first: Option<String>) -> String {
    first.filter(|first| first.starts_with("./")).map_or("serializer".to_owned(), |first| quoted(&first))
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
    fn the_command_is_called_as_it_was_where_its_name_is_not_enough() {
        let called = |first: &str| super::called(Some(first.into()));
        assert_eq!(called("./serializer"), "./serializer");
        for by_name in ["serializer", "target/debug/serializer", "/home/you/target/debug/serializer"] {
            assert_eq!(called(by_name), "serializer");
        }
        assert_eq!(super::called(None), "serializer");
    }

    #[test]
    fn a_key_is_one_word_for_a_shell() {
        assert_eq!(super::quoted("shopify/order/1001"), "shopify/order/1001");
        assert_eq!(super::quoted("shop/it's #1"), r"'shop/it'\''s #1'");
    }
}
