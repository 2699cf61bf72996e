//! The deployment that a command works on: a local run, or one in AWS.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use aws_config::Region;
use aws_credential_types::provider::ProvideCredentials;
use clap::{Args, value_parser};
use console::style;
use serializer::{
    console::MeteredConnection,
    local::sender::Sender,
    output::{LOCAL, command_line, local_address, local_of_environment, local_option, quoted, this_command},
    say,
    stack::{Stack, api::Services},
    view::{order_status::NextCommand, position::Named},
};
use webhook_serializer::{
    aws::{Account, Parts, bundle, endpoints::Variant, meter::Meter},
    config::{DEFAULT_RETENTION_DAYS, Environment, MAX_RETENTION_DAYS, StoreConfig, fair_queue, parked_retention},
    engine::append::Inbox,
    operator::Operator,
    protocol::entity::{EntityKey, Sequence},
    telemetry::TracingLog,
    time::Env,
    tls::Roots,
};

/// The deployment's options. In AWS, `--stack` reads the names of tables and queue from the stack's outputs, and
/// ignores the variables that name them. Credentials and region come from environment, profile or single sign-on.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which deployment")]
pub struct Target {
    /// Use the `serializer local` on this machine; give its URL if it is not http://127.0.0.1:9000. Or set
    /// SERIALIZER_LOCAL to the URL
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = local_address(), value_name = "URL")]
    local: Option<String>,
    /// Use this stack in AWS; its outputs name tables, queue and sources
    #[arg(long, value_name = "NAME", conflicts_with = "local")]
    stack: Option<String>,
    #[command(flatten)]
    who: AwsOptions,
    /// The table with one row per order
    #[arg(long, env = "ENTITIES_TABLE", value_name = "NAME")]
    entities_table: Option<String>,
    /// The table with deliveries and receipts
    #[arg(long, env = "INBOX_TABLE", value_name = "NAME")]
    inbox_table: Option<String>,
    /// The queue of wake-ups
    #[arg(long, env = "QUEUE_URL", value_name = "URL")]
    queue_url: Option<String>,
    /// Send wake-ups with their account's group; should equal the stack's parameter FairQueue
    #[arg(long, env = "FAIR_QUEUE")]
    fair_queue: bool,
    /// Retention of deliveries and receipts, in days
    #[arg(
        long,
        env = "RETENTION_DAYS",
        default_value_t = DEFAULT_RETENTION_DAYS,
        value_parser = value_parser!(u64).range(1..=MAX_RETENTION_DAYS),
        value_name = "DAYS"
    )]
    retention_days: u64,
    /// Retention of parked deliveries, in days; 0 keeps them until an operator decides
    #[arg(
        long,
        env = "PARKED_RETENTION_DAYS",
        default_value_t = 0,
        value_parser = value_parser!(u64).range(..=MAX_RETENTION_DAYS),
        value_name = "DAYS"
    )]
    parked_retention_days: u64,
}

/// AWS credentials and region.
#[derive(Debug, Clone, Default, Args)]
pub struct AwsOptions {
    /// The profile of ~/.aws/config with credentials and region; or set AWS_PROFILE
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The AWS region; or set AWS_REGION
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
}

#[derive(Debug, Clone, Copy)]
pub struct DeploymentName<'a> {
    pub local: Option<&'a str>,
    pub stack: Option<&'a str>,
    pub who: &'a AwsOptions,
}

#[derive(Debug)]
pub struct Deployment {
    pub parts: Parts,
    pub config: StoreConfig,
    pub retention: Duration,
    pub env: Env,
    /// The command-line options that name this deployment, such as ` --local` or ` --stack …`. Without such options,
    /// the text is empty.
    pub option: String,
    pub environment: BTreeMap<String, String>,
    pub account: Account,
    pub stack: Option<Stack>,
    is_local: bool,
}

impl Target {
    pub async fn connect(&self) -> Result<Deployment> {
        let env = Env::system();
        let mut stack = None;
        let DeploymentName { local, stack: stack_name, .. } = self.deployment_name();
        let (account, environment) = match (local, stack_name) {
            (Some(url), _) => {
                let environment = environment_of(url).await?;
                let named = |name: &str| {
                    environment.get(name).cloned().with_context(|| {
                        format!("{url} gives no value for {name}: start a `serializer local` of this version")
                    })
                };
                (Account::local(named("AWS_ENDPOINT_URL_DYNAMODB")?, named("AWS_ENDPOINT_URL_SQS")?), environment)
            }
            (None, Some(name)) => {
                let account = account_of(&self.who).await?;
                let found = Stack::find(&Services::of(&account), name).await?;
                let environment = found.variables()?;
                stack = Some(found);
                (account, environment)
            }
            (None, None) => {
                self.config()?;
                (account_of(&self.who).await?, BTreeMap::new())
            }
        };
        let is_named = local.is_some() || stack.is_some();
        let config = if is_named { self.named_by(&environment)? } else { self.config()? };
        let parts = Parts::connect(&account, &config, &env, None);
        let option = self.option();
        let is_local = local.is_some();
        let retention = config.retention;
        Ok(Deployment { parts, config, retention, env, option, environment, account, stack, is_local })
    }

    fn option(&self) -> String {
        let DeploymentName { local, stack, .. } = self.deployment_name();
        let local = local.map(local_option);
        let stack = stack.map(|name| format!(" --stack {}", quoted(name)));
        local.unwrap_or_else(|| stack.unwrap_or_default() + &self.who.option())
    }

    fn config(&self) -> Result<StoreConfig> {
        let needed = |value: &Option<String>, name: &str| {
            value.clone().with_context(|| {
                format!(
                    "name the deployment: --local for the `serializer local` on this machine, or --stack NAME for a \
                     stack in AWS. For a stack without outputs, give --entities-table, --inbox-table and \
                     --queue-url instead; {name} is missing (docs/operating.md)"
                )
            })
        };
        Ok(StoreConfig {
            entities_table: needed(&self.entities_table, "--entities-table")?,
            inbox_table: needed(&self.inbox_table, "--inbox-table")?,
            queue_url: needed(&self.queue_url, "--queue-url")?,
            fair_queue: self.fair_queue,
            retention: Duration::from_secs(self.retention_days * 86_400),
            parked_retention: parked_retention(self.parked_retention_days),
        })
    }

    fn named_by(&self, environment: &BTreeMap<String, String>) -> Result<StoreConfig> {
        let DeploymentName { local, stack, .. } = self.deployment_name();
        let stack = stack.map(|name| format!("the stack `{name}`"));
        let deployment_name = local.map(str::to_owned).or(stack).unwrap_or_default();
        let named = |name: &str| {
            environment.get(name).cloned().with_context(|| format!("{deployment_name} gives no value for {name}"))
        };
        let days = |name: &str, days: &str| {
            days.parse().with_context(|| format!("{name} of {deployment_name}: {days} is not a number"))
        };
        // Stacks of earlier templates set neither this variable nor FAIR_QUEUE, and keep parked deliveries.
        let parked = environment.get("PARKED_RETENTION_DAYS").map_or("0", String::as_str);
        Ok(StoreConfig {
            entities_table: named("ENTITIES_TABLE")?,
            inbox_table: named("INBOX_TABLE")?,
            queue_url: named("QUEUE_URL")?,
            fair_queue: fair_queue(environment).with_context(|| format!("{deployment_name} has a wrong value"))?,
            retention: Duration::from_secs(86_400 * days("RETENTION_DAYS", &named("RETENTION_DAYS")?)?),
            parked_retention: parked_retention(days("PARKED_RETENTION_DAYS", parked)?),
        })
    }

    pub fn deployment_name(&self) -> DeploymentName<'_> {
        DeploymentName::of(self.local.as_deref(), self.stack.as_deref(), &self.who)
    }

    pub fn name(&self) -> String {
        match (self.deployment_name().local, &self.entities_table) {
            (Some(url), _) => format!("the local run at {url}"),
            (None, Some(table)) => format!("the stack in AWS with the table {table}"),
            (None, None) => "a stack in AWS".to_owned(),
        }
    }

    pub fn is_named(&self) -> bool {
        let DeploymentName { local, stack, .. } = self.deployment_name();
        local.is_some() || stack.is_some() || self.config().is_ok()
    }
}

impl<'a> DeploymentName<'a> {
    /// Returns the deployment that the options name. Without such options, the variable SERIALIZER_LOCAL names it.
    pub fn of(local: Option<&'a str>, stack: Option<&'a str>, who: &'a AwsOptions) -> Self {
        let local = if stack.is_some() { local } else { local.or(local_of_environment()) };
        Self { local, stack, who }
    }
}

impl AwsOptions {
    pub fn option(&self) -> String {
        let named = [("--profile", &self.profile), ("--region", &self.region)];
        let given = named.into_iter().filter_map(|(option, value)| Some((option, value.as_ref()?)));
        given.map(|(option, value)| format!(" {option} {}", quoted(value))).collect()
    }
}

pub async fn account_of(who: &AwsOptions) -> Result<Account> {
    // The machine's roots include a company proxy's. Loading them takes time, which does not matter here.
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
    let region = loaded
        .region()
        .context("no AWS region is set: give --region, or set AWS_REGION or a region in your profile")?;
    let credentials = loaded.credentials_provider().context(NO_CREDENTIALS)?;
    // Without this check, missing credentials would look like an unavailable store at the first request.
    let found = credentials.provide_credentials().await;
    found.context(NO_CREDENTIALS)?;
    // A profile may set FIPS and dual-stack endpoints too.
    let variant = Variant {
        fips: loaded.use_fips().unwrap_or_default(),
        dual_stack: loaded.use_dual_stack().unwrap_or_default(),
    };
    Ok(Account { variant, ..Account::of(region.clone(), credentials, roots) })
}

pub async fn environment_of(url: &str) -> Result<BTreeMap<String, String>> {
    ensure!(
        url.starts_with("http://"),
        "{url} does not begin with http://; write --local={LOCAL}, with the port that `serializer local` printed, or set \
         SERIALIZER_LOCAL to that URL"
    );
    let answer = Sender::new(url).request("GET", "/local", &[], Vec::new()).await.with_context(|| {
        format!(
            "no `serializer local` answers at {url}: start it with `{} local`, or give the URL of another with \
             --local=http://127.0.0.1:PORT or in SERIALIZER_LOCAL",
            this_command()
        )
    })?;
    serde_json::from_str(&answer.body).with_context(|| format!("{url} is not a `serializer local`"))
}

const NO_CREDENTIALS: &str = "no AWS credentials were found: run `aws login`, `aws sso login` or `aws configure`";

impl Deployment {
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    pub fn command(&self, command: &str, key: &str) -> String {
        command_line(command, &self.option, &[key])
    }

    pub fn line(&self, command: &str, arguments: &[&str]) -> String {
        command_line(command, &self.option, arguments)
    }

    pub fn print_next(&self, order: &EntityKey, next: &[NextCommand]) {
        let lines: Vec<String> = next.iter().map(|next| next.line(&self.option, order)).collect();
        let width = lines.iter().map(String::len).max().unwrap_or_default();
        for (line, next) in lines.iter().zip(next) {
            say!("  {line:width$}  {}", style(format_args!("# {}", next.purpose)).dim());
        }
    }

    pub async fn sequence(&self, order: &EntityKey, named: Named) -> Result<Sequence> {
        Ok(named.of_order(order, &self.parts.store).await?)
    }

    pub fn operator(&self) -> Operator {
        self.operator_over(self.parts.clone())
    }

    /// Connects again, and counts what this connection reads.
    pub fn metered(&self) -> MeteredConnection {
        let meter = Arc::new(Meter::default());
        let parts = Parts::connect(&self.account, &self.config, &self.env, Some(meter.clone()));
        let store = parts.store.clone();
        MeteredConnection { operator: self.operator_over(parts), store, meter }
    }

    fn operator_over(&self, Parts { store, waker, .. }: Parts) -> Operator {
        let inbox = Inbox::new(store.clone(), waker.clone(), self.retention, Arc::new(TracingLog));
        let operator = Operator::new(store, waker, inbox, self.retention).parked_for(self.config.parked_retention);
        if self.is_local { operator.in_one_part() } else { operator }
    }
}
