//! Options that describe a webhook and its sender, shared by `sign` and `verify`.

use std::{
    io::{IsTerminal, Read},
    path::PathBuf,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, builder::PossibleValuesParser};
use serializer::{output, signature::SignatureClaim};
use webhook_serializer::{
    functions::ingest::keys::PublishedKeys,
    providers,
    time::{Env, Timestamp},
};

/// A webhook and its sender.
#[derive(Debug, Args)]
pub struct Webhook {
    /// The provider whose rules apply
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(providers::webhook_senders()))]
    provider: String,
    /// A secret: text as the sender shows it, or `hex:` or `base64:` and the key's bytes; may be repeated
    #[arg(long = "secret", value_name = "SECRET", allow_hyphen_values = true)]
    secrets: Vec<String>,
    /// The URL exactly as it is configured at the sender; needed if the sender signs the URL, or if the URL has a token
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The time to verify or sign at, in seconds since 1970; now by default
    #[arg(long, value_name = "UNIX_SECONDS")]
    now: Option<u64>,
    /// A field of the sources document, such as tolerance=600 (seconds), webhook_id=… for PayPal, or for `generic`
    /// header, hash, encoding, prefix, separator, signed, …; may be repeated. To use a key from a file
    /// instead of fetching it: cert_file=FILE, jwks_file=FILE, public_key_file=FILE
    #[arg(long = "option", value_name = "K=V", value_parser = option)]
    options: Vec<(String, String)>,
    /// A header as it arrived; may be repeated
    #[arg(long = "header", short = 'H', value_name = "K: V", value_parser = header)]
    headers: Vec<(String, String)>,
    /// The body, byte for byte; standard input by default
    #[arg(value_name = "FILE")]
    body: Option<PathBuf>,
}

fn option(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write --option NAME=VALUE, such as --option tolerance=600")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write --header 'NAME: VALUE', such as --header 'X-Topic: a/b'")?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

/// Joins the values of each header that came several times by a comma, as Lambda does.
fn joined(headers: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for (name, value) in headers {
        match all.iter_mut().find(|(held, _)| *held == name) {
            Some((_, held)) => *held = format!("{held},{value}"),
            None => all.push((name, value)),
        }
    }
    all
}

impl Webhook {
    pub fn claim(self) -> Result<SignatureClaim> {
        let body = match &self.body {
            Some(path) if path.as_os_str() != "-" => {
                std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?
            }
            _ => {
                let mut input = std::io::stdin();
                ensure!(!input.is_terminal(), "the body is missing: name its FILE, or pass it on standard input");
                let mut body = Vec::new();
                input.read_to_end(&mut body).context("standard input cannot be read")?;
                body
            }
        };
        let now = self.now.map_or_else(|| Env::system().now(), Timestamp::from_secs);
        let Self { provider, secrets, url, options, headers, .. } = self;
        let headers = joined(headers);
        let (named, options): (Vec<_>, Vec<_>) = options.into_iter().partition(|(name, _)| name.ends_with("_file"));
        let mut files = Vec::new();
        for (name, path) in named {
            let bytes = std::fs::read(&path).with_context(|| format!("{name}: {path} cannot be read"))?;
            files.push((name, bytes));
        }
        let keys = PublishedKeys::new(Env::system());
        let claim = SignatureClaim { provider, secrets, options, files, keys, url, headers, body, now };
        if claim.url.is_some() && !claim.reads_url() {
            output::complain(format_args!(
                "note: --url has no effect, because {} does not sign the URL",
                claim.provider
            ));
        }
        Ok(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_or_option_is_split_at_first_separator() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(header("X-Time: 10:30 "), pair("x-time", "10:30"));
        assert_eq!(option("signed=a={body}"), pair("signed", "a={body}"));
        assert!(header("X-Time").is_err() && option("tolerance").is_err());
    }
}
