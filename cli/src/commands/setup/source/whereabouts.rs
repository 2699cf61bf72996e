//! Finds and reads the sources document that options, a deployment or the variable SOURCES name.

use std::{collections::BTreeMap, fmt::Display, path::PathBuf, sync::Arc};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serializer::{
    document::{self, DocumentPlace, FoundDocument},
    local::{local_queue_url, samples},
    output::{self, local_address, local_option, quoted, this_command},
    stack::{Stack, api::Services},
    view::order_status::{KnownSources, SourceDelay, SourceDelays},
};
use webhook_serializer::{
    aws::Account,
    config::{Environment, SourcesOrigin, Variables},
    nearest,
    protocol::{entity::SourceName, state::EntityState},
    sources::{QueueArn, Sources},
};

use crate::commands::target::{AwsOptions, Deployment, DeploymentName, account_of, environment_of};

/// Options that name a sources document. Without them, the variable SOURCES names it: a parameter's name, a secret's
/// ARN, or file:PATH. A stack's output CommandLine sets SOURCES.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which document")]
pub(super) struct DocumentOptions {
    /// The document's file
    #[arg(long, value_name = "FILE", group = "document")]
    sources: Option<PathBuf>,
    /// The SSM parameter's name
    #[arg(long, value_name = "NAME", group = "document")]
    sources_parameter: Option<String>,
    /// The ARN of the secret in Secrets Manager
    #[arg(long, value_name = "ARN", group = "document")]
    sources_secret: Option<String>,
}

/// Options that name a sources document, a local run or a stack.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which document")]
pub struct DocumentLocation {
    #[command(flatten)]
    document: DocumentOptions,
    /// Use the document of the `serializer local` on this machine; give its URL if it is not http://127.0.0.1:9000. Or
    /// set SERIALIZER_LOCAL to the URL
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = local_address(), value_name = "URL", conflicts_with = "document")]
    local: Option<String>,
    /// Use the document of this stack in AWS, which the stack's outputs name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["document", "local"])]
    stack: Option<String>,
    #[command(flatten)]
    who: AwsOptions,
}

impl DocumentLocation {
    pub async fn place(&self) -> Result<DocumentPlace> {
        self.document.place(self.deployment_name()).await
    }

    pub(super) fn deployment_name(&self) -> DeploymentName<'_> {
        match self.document.is_given() {
            true => DeploymentName { local: None, stack: None, who: &self.who },
            false => DeploymentName::of(self.local.as_deref(), self.stack.as_deref(), &self.who),
        }
    }

    /// Returns the URL to which senders post, without the source's name at its end. Returns `None` if the URL is not
    /// known.
    pub(super) async fn webhooks(&self) -> Result<Option<String>> {
        let DeploymentName { local, stack, .. } = self.deployment_name();
        match (local, stack) {
            (Some(url), _) => Ok(Some(format!("{url}/webhooks/"))),
            (None, Some(name)) => Ok(said_by_stack(name, &self.who).await?.1.remove("WEBHOOK_URL")),
            (None, None) => Ok(Environment.value("WEBHOOK_URL")),
        }
    }

    pub(super) fn option(&self) -> String {
        self.document.option(&self.deployment_name())
    }
}

impl DocumentOptions {
    fn is_given(&self) -> bool {
        self.sources.is_some() || self.sources_parameter.is_some() || self.sources_secret.is_some()
    }

    /// Returns the options that name this document again, with a space in front.
    pub(super) fn option(&self, deployment_name: &DeploymentName<'_>) -> String {
        match (&self.sources, &self.sources_parameter, &self.sources_secret) {
            (Some(path), _, _) => format!(" --sources {}", quoted(&path.to_string_lossy())),
            (_, Some(name), _) => format!(" --sources-parameter {}{}", quoted(name), deployment_name.who.option()),
            (_, _, Some(arn)) => format!(" --sources-secret {}{}", quoted(arn), deployment_name.who.option()),
            _ => match deployment_name {
                DeploymentName { local: Some(url), .. } => local_option(url),
                DeploymentName { stack, who, .. } => {
                    let stack = stack.map(|name| format!(" --stack {}", quoted(name)));
                    stack.unwrap_or_default() + &who.option()
                }
            },
        }
    }

    pub(super) async fn place(&self, deployment_name: DeploymentName<'_>) -> Result<DocumentPlace> {
        let origin = match (&self.sources, &self.sources_parameter, &self.sources_secret) {
            (Some(path), _, _) => SourcesOrigin::File(path.clone()),
            (_, Some(name), _) => SourcesOrigin::Parameter(name.clone()),
            (_, _, Some(arn)) => {
                ensure!(arn.starts_with("arn:"), "--sources-secret needs the secret's ARN");
                SourcesOrigin::Secret(arn.clone())
            }
            _ => match (deployment_name.local, deployment_name.stack) {
                (Some(url), _) => of_local(url).await?,
                (None, Some(name)) => {
                    let (account, said) = said_by_stack(name, deployment_name.who).await?;
                    return DocumentPlace::at(SourcesOrigin::read(&DeploymentVariables(&said))?, Some(&account));
                }
                (None, None) => set()?,
            },
        };
        let account =
            if matches!(origin, SourcesOrigin::File(_)) { None } else { Some(account_of(deployment_name.who).await?) };
        DocumentPlace::at(origin, account.as_ref())
    }
}

async fn said_by_stack(name: &str, who: &AwsOptions) -> Result<(Account, BTreeMap<String, String>)> {
    let account = account_of(who).await?;
    let said = Stack::find(&Services::of(&account), name).await?.variables()?;
    Ok((account, said))
}

/// Neither an option nor the environment names the sources document.
#[derive(Debug, thiserror::Error)]
#[error(
    "name the sources document: --sources FILE, --local for the `serializer local` on this machine, --stack NAME for a \
     stack in AWS, --sources-parameter NAME, or --sources-secret ARN (docs/operating.md)"
)]
pub struct Unnamed;

fn set() -> Result<SourcesOrigin> {
    if Environment.value(SourcesOrigin::VARIABLE).is_none() {
        return Err(Unnamed.into());
    }
    Ok(SourcesOrigin::read(&Environment)?)
}

async fn of_local(url: &str) -> Result<SourcesOrigin> {
    let said = environment_of(url).await?;
    let origin = said
        .get(SourcesOrigin::VARIABLE)
        .with_context(|| format!("{url} runs with the samples' built-in sources: start it with --sources FILE"))?;
    Ok(origin.clone().into())
}

/// Returns the URL of a source's queue in the local run at `url`. Returns the queue's ARN if the run has ended.
pub(super) async fn local_queue(url: &str, queue: &QueueArn) -> String {
    let environment = environment_of(url).await.unwrap_or_default();
    let endpoint = environment.get("AWS_ENDPOINT_URL_SQS");
    endpoint.map_or_else(|| queue.to_string(), |endpoint| local_queue_url(endpoint, queue))
}

pub async fn configured(deployment: &Deployment) -> Result<Sources> {
    let variables = &deployment.environment;
    let origin = match variables.contains_key(SourcesOrigin::VARIABLE) {
        false if deployment.is_local() => return Ok(Sources::parse(samples::SOURCES)?),
        _ if variables.is_empty() => set()?,
        _ => SourcesOrigin::read(&DeploymentVariables(variables))?,
    };
    Ok(sources(&DocumentPlace::at(origin, Some(&deployment.account))?).await?.1)
}

struct DeploymentVariables<'a>(&'a BTreeMap<String, String>);

impl Variables for DeploymentVariables<'_> {
    fn value(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }
}

pub async fn sources(place: &DocumentPlace) -> Result<(FoundDocument, Sources)> {
    let found = place.read().await?.with_context(|| {
        format!(
            "{place} does not exist: `{} source add` makes a file or a parameter, with its first source",
            this_command()
        )
    })?;
    let sources = document::accepted(place, &found)?;
    Ok((found, sources))
}

/// Returns an error if the deployment has no source `name`. Returns `None` if the source exists, or if the sources
/// document cannot be read.
pub async fn unknown_in(deployment: &Deployment, name: &SourceName) -> Option<anyhow::Error> {
    let sources = configured(deployment).await.ok()?;
    let is_unknown = sources.get(name.as_str()).is_none();
    is_unknown.then(|| unknown(&"the sources document", &sources, name.as_str()))
}

/// Reads the sources for a command or page that can do without them.
pub async fn known(deployment: &Deployment) -> KnownSources {
    match configured(deployment).await {
        Ok(sources) => Ok(Some(Arc::new(sources))),
        Err(error) if error.is::<Unnamed>() => Ok(None),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// Reads the sources as [`known`]. If the document cannot be read, says so.
pub async fn known_or_complained(deployment: &Deployment) -> KnownSources {
    let sources = known(deployment).await;
    if let Err(reason) = &sources {
        output::complain(format_args!("paused and removed sources are not known: {reason}"));
    }
    sources
}

/// Reads what may delay orders. Outages that cannot be read count as ended. If the sources document cannot be read, says
/// so.
pub async fn delays(deployment: &Deployment) -> SourceDelays {
    let sources = known_or_complained(deployment).await;
    SourceDelays { sources, outages: deployment.operator().outages().await.unwrap_or_default() }
}

/// Returns what delays the deliveries of the source `name`. If the sources document cannot be read, returns `None`.
pub async fn delay(deployment: &Deployment, name: &SourceName, state: &EntityState) -> Option<SourceDelay> {
    delays(deployment).await.of_order(name, state, deployment.env.now())
}

pub(super) fn unknown(place: &impl Display, sources: &Sources, name: &str) -> anyhow::Error {
    let names: Vec<String> = sources.iter().map(|source| format!("`{}`", source.name)).collect();
    let hint = nearest::hint(name, sources.iter().map(|source| source.name.as_str()));
    anyhow::anyhow!("{place} has no source `{name}`{hint}; its sources are {}", names.join(", "))
}
