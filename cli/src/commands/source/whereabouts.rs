//! Which document is meant.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serializer::{
    document::{self, Found, Place},
    samples,
};
use webhook_serializer::{
    config::{Environment, SourcesOrigin, Variables},
    sources::Sources,
};

use super::super::target::{LOCAL, Target, account, local_option, quoted, said_by};

/// A stack's output CommandLine sets SOURCES_PARAMETER or SOURCES_SECRET.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which document")]
pub(super) struct Document {
    /// The file that it stands in; or set SOURCES_FILE
    #[arg(long, value_name = "FILE", group = "document")]
    sources: Option<PathBuf>,
    /// The SSM parameter, by name; or set SOURCES_PARAMETER
    #[arg(long, value_name = "NAME", group = "document")]
    sources_parameter: Option<String>,
    /// The secret in Secrets Manager, by ARN; or set SOURCES_SECRET
    #[arg(long, value_name = "ARN", group = "document")]
    sources_secret: Option<String>,
}

/// The same, or that of a local run.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which document")]
pub(super) struct Whereabouts {
    #[command(flatten)]
    document: Document,
    /// The document of the `serializer local` on this machine; with its URL where that is not http://127.0.0.1:9000
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = LOCAL, value_name = "URL", conflicts_with = "document")]
    pub(super) local: Option<String>,
}

impl Whereabouts {
    pub(super) async fn place(&self) -> Result<Place> {
        self.document.place(self.local.as_deref()).await
    }

    /// What says on a command line that it is this one.
    pub(super) fn option(&self) -> String {
        let Document { sources, sources_parameter, sources_secret } = &self.document;
        match (sources, sources_parameter, sources_secret) {
            (Some(path), _, _) => format!(" --sources {}", quoted(&path.to_string_lossy())),
            (_, Some(name), _) => format!(" --sources-parameter {}", quoted(name)),
            (_, _, Some(arn)) => format!(" --sources-secret {}", quoted(arn)),
            _ => self.local.as_deref().map(local_option).unwrap_or_default(),
        }
    }
}

impl Document {
    /// Where it stands. What is said on the command line counts before what is
    /// set in the environment.
    pub(super) async fn place(&self, local: Option<&str>) -> Result<Place> {
        let origin = match (&self.sources, &self.sources_parameter, &self.sources_secret) {
            (Some(path), _, _) => SourcesOrigin::File(path.clone()),
            (_, Some(name), _) => SourcesOrigin::Parameter(name.clone()),
            (_, _, Some(arn)) => {
                ensure!(arn.starts_with("arn:"), "--sources-secret is to be the secret's ARN");
                SourcesOrigin::Secret(arn.clone())
            }
            _ => match local {
                Some(url) => of_local(url).await?,
                None => set()?,
            },
        };
        let account = if matches!(origin, SourcesOrigin::File(_)) { None } else { Some(account().await?) };
        Place::at(origin, account.as_ref())
    }
}

fn set() -> Result<SourcesOrigin> {
    let names = ["SOURCES_FILE", "SOURCES_PARAMETER", "SOURCES_SECRET"];
    if names.iter().all(|name| Environment.value(name).is_none()) {
        bail!(
            "which document? Give --sources FILE, or --local for that of the `serializer local` on this machine; for a \
             stack --sources-parameter NAME or --sources-secret ARN, or set them with its output CommandLine \
             (docs/operating.md)"
        );
    }
    Ok(SourcesOrigin::read(&Environment)?)
}

async fn of_local(url: &str) -> Result<SourcesOrigin> {
    let said = said_by(url).await?;
    let file = said.get("SOURCES_FILE").with_context(|| {
        format!("{url} runs with the samples' own sources, which stand in no file: start it with --sources FILE")
    })?;
    Ok(SourcesOrigin::File(file.into()))
}

/// The sources of the deployment that is meant, or those in `file`: for whoever
/// reads them only.
///
/// # Errors
///
/// Nothing says where they stand, or they cannot be read.
pub async fn configured(target: &Target, file: Option<&Path>) -> Result<Sources> {
    let origin = match (file, target.local()) {
        (Some(file), _) => SourcesOrigin::File(file.to_owned()),
        (None, Some(url)) => match said_by(url).await?.get("SOURCES_FILE") {
            Some(file) => SourcesOrigin::File(file.into()),
            None => return Ok(Sources::parse(samples::SOURCES)?),
        },
        (None, None) => set()?,
    };
    let account = if matches!(origin, SourcesOrigin::File(_)) { None } else { Some(account().await?) };
    Ok(sources(&Place::at(origin, account.as_ref())?).await?.1)
}

/// The document and its sources.
pub(super) async fn sources(place: &Place) -> Result<(Found, Sources)> {
    let found = place.read().await?.with_context(|| {
        format!("{place} is not there: `serializer source add` makes a file or a parameter, with its first source")
    })?;
    let sources = document::accepted(place, &found)?;
    Ok((found, sources))
}

/// Why there is no source of that name.
pub(super) fn unknown(place: &Place, sources: &Sources, name: &str) -> anyhow::Error {
    let names: Vec<String> = sources.iter().map(|source| format!("`{}`", source.name)).collect();
    anyhow::anyhow!("{place} has no source `{name}`; it has {}", names.join(", "))
}
