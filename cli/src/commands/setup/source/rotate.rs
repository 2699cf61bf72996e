//! `serializer source rotate`: replaces a secret in two steps; in between, both secrets are accepted.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::json;
use serializer::{
    document::{DocumentPlace, DocumentText},
    output::{self, command_line},
};
use webhook_serializer::{
    protocol::entity::SourceName,
    providers,
    sources::{CredentialField, REFRESH, Source},
};

use super::{
    ChangeOptions, known_by, late, refuse_guessable, secret,
    whereabouts::{DocumentLocation, sources, unknown},
};

#[derive(Debug, Args)]
#[command(
    after_help = "Rotation takes two steps; in between, both secrets are accepted and no webhook is refused:\n\n  \
                       serializer source rotate shopify <new-secret.txt\n  \
                       serializer source rotate shopify --finish\n\n\
                       Run the second command once the sender signs everything with the new secret, retries included."
)]
pub(super) struct Rotate {
    /// The source's name
    #[arg(value_name = "NAME", value_parser = SourceName::parse)]
    name: SourceName,
    /// Remove the old secret
    #[arg(long)]
    finish: bool,
    /// The number of the secret to remove, counted from 1, if there are more than two
    #[arg(long, value_name = "NUMBER", requires = "finish")]
    drop: Option<usize>,
    #[command(flatten)]
    manner: ChangeOptions,
    #[command(flatten)]
    whereabouts: DocumentLocation,
}

impl Rotate {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let place = self.whereabouts.place().await?;
        let (found, sources) = sources(&place).await?;
        let name = self.name.as_str();
        let source = sources.get(name).ok_or_else(|| unknown(&place, &sources, name))?;
        let field = known_by(source)?;
        let held = DocumentText::parse(&found.text)?.texts(name, field.name());
        if self.finish {
            self.finish(&place, source, field, &held).await
        } else {
            self.begin(&place, source, field).await
        }
    }

    async fn begin(&self, place: &DocumentPlace, source: &Source, field: CredentialField) -> Result<ExitCode> {
        let name = self.name.as_str();
        let word = word(field);
        let what = format!("the new {word} of {name}");
        let new = secret::read(&what)?;
        refuse_guessable(&what, field, &new)?;
        let done = self.manner.apply(place, name, |text| {
            ensure!(
                !text.texts(name, field.name()).contains(&new),
                "nothing was written: `{name}` has this secret already. To remove an old one, add --finish"
            );
            text.put_first(name, field.name(), &new)
        });
        let Some(done) = done.await? else { return Ok(ExitCode::FAILURE) };
        let wait = output::duration(REFRESH);
        if source.missing_field().is_some() {
            let words = [format!("running functions accept webhooks signed with it within {wait}")];
            let more = json!({ "wait_seconds": 0, "next": null });
            self.manner.report(place, &done, ("set", &format!("has its first {word} in")), name, &words, more);
            return Ok(ExitCode::SUCCESS);
        }
        let words = [
            format!("running functions accept webhooks signed with the old or the new {word} within {wait}"),
            format!("next: wait {wait}, then let the sender sign with the new {word}"),
            match old_webhooks(source) {
                Some(until) => format!("then wait {until}, and run:\n  {}", self.second_step()),
                None => format!("then run this; {}:\n  {}", never_retries(source), self.second_step()),
            },
        ];
        let more = json!({ "wait_seconds": REFRESH.as_secs(), "next": self.second_step() });
        self.manner.report(
            place,
            &done,
            ("rotated", &format!("has a new {word} beside the old one in")),
            name,
            &words,
            more,
        );
        Ok(ExitCode::SUCCESS)
    }

    async fn finish(
        &self,
        place: &DocumentPlace,
        source: &Source,
        field: CredentialField,
        seen: &[String],
    ) -> Result<ExitCode> {
        let name = self.name.as_str();
        let word = word(field);
        let held = seen.len();
        let number = match (held, self.drop) {
            (0 | 1, _) => bail!(
                "`{field}` of `{name}` has fewer than two entries, so there is no old one to remove. Run this without \
                 --finish to add a new one"
            ),
            (_, Some(number)) if (1..=held).contains(&number) => number,
            (_, Some(number)) => {
                bail!(
                    "`{field}` of `{name}` has {held} entries, and none with the number {number}: --drop counts from 1"
                )
            }
            (2, None) => 2,
            (_, None) => bail!(
                "`{field}` of `{name}` has {held} entries: give the number of the old one with --drop NUMBER. \
                 `rotate` puts the new one first"
            ),
        };
        if !self.manner.json {
            output::complain(format_args!(
                "this removes {word} {number} of {held}. The command cannot see whether a sender still signs with it: \
                 {}",
                old_webhooks(source).map_or_else(|| never_retries(source), |until| format!("wait {until}"))
            ));
        }
        let done = self.manner.apply(place, name, |text| {
            ensure!(
                text.texts(name, field.name()) == seen,
                "somebody else changed `{field}` of `{name}` just now: check it with `{} source list`, then run this \
                 again",
                output::this_command()
            );
            text.take_out(name, field.name(), number - 1).context("it is gone")
        });
        let Some(done) = done.await? else { return Ok(ExitCode::FAILURE) };
        let words = [format!(
            "running functions refuse webhooks signed with the old {word} within {}, idle functions within {}",
            output::duration(REFRESH),
            late()
        )];
        self.manner.report(
            place,
            &done,
            ("finished", &format!("no longer has the old {word} in")),
            name,
            &words,
            json!({ "taken_out": number }),
        );
        Ok(ExitCode::SUCCESS)
    }

    fn second_step(&self) -> String {
        command_line("source rotate", &self.whereabouts.option(), &["--finish", self.name.as_str()])
    }
}

fn word(field: CredentialField) -> &'static str {
    match field {
        CredentialField::Secrets => "secret",
        CredentialField::RecipientId(name) => name,
    }
}

/// Returns how long webhooks come that the old secret signed, as the words after "wait". `None` if the provider never
/// retries.
fn old_webhooks(source: &Source) -> Option<String> {
    let provider = &source.provider_name;
    let until = format!("until {provider} no longer retries webhooks that the old one signed");
    match providers::rule_of(provider).and_then(|rule| rule.reads.horizon) {
        Some(Duration::ZERO) => None,
        Some(horizon) => Some(format!("{until}, {} at most", output::duration(horizon))),
        None => Some(until),
    }
}

fn never_retries(source: &Source) -> String {
    let provider = &source.provider_name;
    format!("{provider} never retries, so there is nothing to wait for once it signs with the new one")
}
