//! `serializer sign`: prints the signed headers that a sender would send with a body.

use std::process::ExitCode;

use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;
use serde_json::{Map, Value};
use serializer::say;

use crate::commands::{print_json, tryout::webhook::Webhook};

#[derive(Debug, Args)]
#[command(
    after_help = "Prints a line `name: value` for each header, as curl reads them. The first --secret signs. With\n\
                       --header, give further headers that the signature covers, such as an id.\n\n\
                       Example:\n  \
                       serializer sign --provider stripe --secret \"$SECRET\" body.json |\n      \
                       curl -H @- --data-binary @body.json https://example.com/webhooks/stripe"
)]
pub struct Sign {
    #[command(flatten)]
    webhook: Webhook,
    /// Print the headers as one JSON object
    #[arg(long)]
    json: bool,
}

impl Sign {
    pub fn run(self) -> Result<ExitCode> {
        let claim = self.webhook.claim()?;
        let source = claim.source().map_err(|reason| anyhow!("{reason}"))?;
        let private = format!("this command cannot sign for {0}, because only {0} has its private key", claim.provider);
        ensure!(!claim.is_published(), private);
        ensure!(!claim.secrets.is_empty(), "there is no secret to sign with; give a --secret");
        let headers = source.sign(&claim.headers(), &claim.body, claim.now);
        if let Some(query) = source.query().filter(|_| headers.is_empty()) {
            bail!("{} does not sign. The token in the URL identifies it: ?{query}", claim.provider);
        }
        ensure!(!headers.is_empty(), private);
        if self.json {
            let headers: Map<String, Value> = headers.into_iter().map(|(name, value)| (name, value.into())).collect();
            print_json(&headers.into());
        } else {
            for (name, value) in headers {
                say!("{name}: {value}");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
