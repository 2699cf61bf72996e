//! `serializer verify`: checks a webhook's signature, and says why it is invalid.

use std::{io::IsTerminal, process::ExitCode};

use anyhow::Result;
use clap::Args;
use serde_json::json;
use serializer::{
    output, say,
    signature::{SignatureClaim, Unusable, Verification},
};
use webhook_serializer::providers::Secret;

use crate::commands::{print_json, tryout::webhook::Webhook};

#[derive(Debug, Args)]
#[command(
    after_help = "The exit code is 0 if the signature is valid, 1 if it is not, and 2 if that cannot be determined.\n\
                       The command verifies as the function `ingest` does. For an invalid webhook, it looks for the usual\n\
                       mistakes: a newline at the end, JSON that was parsed and serialised again, another encoding,\n\
                       another secret.\n\n\
                       Example:\n  \
                       serializer verify --provider shopify --secret \"$SECRET\" --header \"X-Shopify-Hmac-Sha256: $HMAC\" body.json"
)]
pub struct Verify {
    #[command(flatten)]
    webhook: Webhook,
    /// Print a JSON object; the default unless standard output is a terminal
    #[arg(long)]
    json: bool,
}

/// The exit code if the signature could not be checked.
const CANNOT_TELL: u8 = 2;

impl Verify {
    pub async fn run(self) -> Result<ExitCode> {
        let is_json = self.json || !std::io::stdout().is_terminal();
        let claim = match self.webhook.claim() {
            Ok(claim) => claim,
            Err(error) => return Ok(cannot_tell(&format!("{error:#}"))),
        };
        if claim.is_published() && !claim.secrets.is_empty() {
            output::complain(format_args!(
                "note: --secret has no effect, because {} signs with its own key",
                claim.provider
            ));
        }
        let verdict = match claim.fetch().await.and_then(|()| claim.verify()) {
            Ok(known) => Ok(known),
            Err(Unusable::Secret(reason) | Unusable::Webhook(reason)) => Err(reason),
            Err(Unusable::Option(reason) | Unusable::Key(reason)) => return Ok(cannot_tell(&reason)),
        };
        Ok(match verdict {
            Ok(known) => {
                let secret =
                    known.secret.filter(|_| !claim.is_published()).and_then(|number| claim.secrets.get(number - 1));
                if let Some(what) = secret.and_then(|secret| Secret::new(secret).decoded().ok()?.guessable()) {
                    output::complain(format_args!(
                        "note: the secret {what}, so the function ingest does not use it, and answers 503"
                    ));
                }
                if is_json {
                    print_json(&as_json(&known));
                } else {
                    print(&claim, &known);
                }
                ExitCode::SUCCESS
            }
            Err(reason) => {
                if is_json {
                    print_json(&json!({ "valid": false, "reason": reason }));
                } else {
                    say!("{} {reason}", console::style("not valid:").red().bold());
                }
                ExitCode::FAILURE
            }
        })
    }
}

fn cannot_tell(reason: &str) -> ExitCode {
    output::complain(format_args!("{} {reason}", console::style("error:").red().bold()));
    ExitCode::from(CANNOT_TELL)
}

fn as_json(known: &Verification) -> serde_json::Value {
    let mut said = json!({
        "valid": true, "topic": known.described.topic, "delivery_id": known.described.delivery_id,
        "entity": known.entity, "event_time": known.described.event_time, "signed": known.signed,
    });
    if let Some(reason) = &known.unrouted {
        said["unrouted"] = reason.as_str().into();
    }
    said
}

fn print(claim: &SignatureClaim, known: &Verification) {
    let valid = console::style("valid:").green().bold();
    match known.secret {
        _ if known.is_ping => {
            return say!("{valid} an unsigned ping of {}; ingest answers it 200", claim.provider);
        }
        Some(number) if claim.secrets.len() > 1 && !known.signed.is_empty() => {
            say!("{valid} signed by {} with --secret, number {number}", claim.provider);
        }
        _ if known.signed.is_empty() => say!("{valid} the URL holds the secret of {}", claim.provider),
        _ => say!("{valid} signed by {}", claim.provider),
    }
    let described = &known.described;
    let time = described.event_time.map(|time| time.to_string());
    let lines = [
        ("topic", "topic", Some(described.topic.as_str())),
        ("delivery id", "id", Some(described.delivery_id.as_str())),
        ("entity", "", known.entity.as_deref()),
        ("event time", "time", time.as_deref()),
    ];
    for (name, covered, value) in lines {
        let is_open = value.is_some() && !covered.is_empty() && !known.signed.contains(&covered);
        let note = if is_open { "  (not covered by the signature)" } else { "" };
        say!("{name:<12} {}{note}", value.unwrap_or("not found"));
    }
    if let Some(reason) = &known.unrouted {
        say!("{:<12} without an order: {reason}", "parked");
    }
    let signed = match known.signed.as_slice() {
        [] => "nothing: anybody who knows the URL can send anything".to_owned(),
        signed => signed.join(", "),
    };
    say!("{:<12} {signed}", "signed");
}
