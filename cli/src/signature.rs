//! Verifies one webhook against its provider's rules. The result tells what the signature covers, or why the webhook is
//! invalid.
//!
//! The diagnosis is part of the command and not of the providers' rules, so that no Lambda function's binary contains
//! it.

mod bodies;
mod covered;
mod diagnosis;
mod keys;
mod secrets;
mod signatures;

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value, json};
use webhook_serializer::{
    functions::ingest::{self, keys::PublishedKeys},
    protocol::delivery::LARGEST_BODY,
    providers::{self, Described, Headers, Request, Unverified, Verified},
    sources::{InvalidSources, ReceivedWebhook, Source, Sources},
    time::Timestamp,
};

use crate::document::reference;
use keys::HeldKeys;

#[derive(Debug, Clone)]
pub struct SignatureClaim {
    pub provider: String,
    pub secrets: Vec<String>,
    /// Fields of the sources document, as names and values. A name that occurs several times makes a list.
    pub options: Vec<(String, String)>,
    /// Files to use instead of the keys that the sender publishes. Each file is named `cert_file`, `jwks_file` or
    /// `public_key_file`. Several files of one name are tried in turn.
    pub files: Vec<(String, Vec<u8>)>,
    pub keys: PublishedKeys,
    pub url: Option<String>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("{0}")]
    Secret(String),
    #[error("{0}")]
    Option(String),
    #[error("{0}")]
    Key(String),
    /// The options are valid, and the webhook is not.
    #[error("{0}")]
    Webhook(String),
}

const PATIENCE: Duration = Duration::from_secs(10);

/// The largest number of keys that are fetched: one more than a webhook may need.
const MAX_FETCHES: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    pub described: Described,
    pub entity: Option<String>,
    /// The reason that the webhook belongs to no entity. `None` if it belongs to one, or is a ping.
    pub unrouted: Option<String>,
    pub signed: Vec<&'static str>,
    /// The position of the secret that matches, counted from 1. `None` for a ping, or if the provider needs no secret.
    pub secret: Option<usize>,
    pub is_ping: bool,
}

impl SignatureClaim {
    pub fn source(&self) -> Result<Arc<Source>, Unusable> {
        // The parser's errors contain no part of the document.
        let document = json!({ "sources": { self.provider.as_str(): self.entry() } }).to_string();
        let sources = Sources::parse_for_diagnosis(&document).map_err(|error| match error {
            InvalidSources::Source { reason, .. } if reason.starts_with("`secrets`") => {
                Unusable::Secret(reason.replacen("`secrets`", "`--secret`", 1))
            }
            InvalidSources::Source { reason, .. } => Unusable::Option(reason),
            InvalidSources::Document(reason) => {
                Unusable::Option(reason.split(" at line ").next().unwrap_or_default().to_owned())
            }
        })?;
        sources.get(&self.provider).cloned().ok_or_else(|| Unusable::Option("no such provider exists".into()))
    }

    fn entry(&self) -> Value {
        let mut entry = Map::new();
        let mut generic = Map::new();
        for (name, text) in &self.options {
            let is_generic = self.provider == "generic" && reference::is_of_generic(name);
            let table = if is_generic { &mut generic } else { &mut entry };
            // The document requires a unit for durations.
            let is_bare = name == "tolerance" && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let text = Value::from(if is_bare { format!("{text}s") } else { text.clone() });
            match table.get_mut(name) {
                None => _ = table.insert(name.clone(), text),
                Some(Value::Array(list)) => list.push(text),
                Some(one) => *one = json!([one.take(), text]),
            }
        }
        if self.provider == "generic" {
            entry.insert("generic".into(), generic.into());
        }
        if let Some(url) = self.url.as_deref().filter(|_| self.signs_url()) {
            entry.insert("url".into(), url.into());
        }
        entry.insert("provider".into(), self.provider.as_str().into());
        if !self.is_published() {
            entry.insert("secrets".into(), self.secrets.clone().into());
        }
        entry.insert("handler".into(), "verify".into());
        entry.into()
    }

    pub fn headers(&self) -> Headers {
        let query = self.url.as_deref().and_then(|url| url.split_once('?')).map(|(_, query)| query);
        let headers: Headers = self.headers.iter().map(|(name, value)| (name, value.trim())).collect();
        headers.with_query(query.and_then(|query| query.split('#').next()).unwrap_or_default())
    }

    /// Returns whether the provider signs the URL or sends a secret in it, or an option names a part of its query.
    pub fn reads_url(&self) -> bool {
        let names_query = self.options.iter().any(|(_, text)| text.contains("query:"));
        let refused = |query: &str| {
            let request = Request { headers: &Headers::default().with_query(query), body: &[] };
            providers::by_name(&self.provider).map(|provider| provider.verify(request, &[]))
        };
        names_query || self.signs_url() || refused("") != refused("token=any")
    }

    fn signs_url(&self) -> bool {
        providers::rule_of(&self.provider).is_some_and(|rule| rule.facts.signed.url)
    }

    /// Returns whether the sender signs with a private key and publishes the public key.
    pub fn is_published(&self) -> bool {
        providers::by_name(&self.provider).is_some_and(|provider| provider.published().is_some())
    }

    fn verified_by(&self, source: &Source) -> Result<Verified, Unverified> {
        let headers = self.headers();
        let webhook = Request { headers: &headers, body: &self.body };
        let verify = |number| {
            let held = HeldKeys { files: &self.files, number, fetched: &self.keys };
            source.verify_with(webhook, &held, self.now)
        };
        let first = verify(0);
        let others = (1..self.files.len()).map(verify);
        if first.is_ok() { first } else { others.into_iter().find(Result::is_ok).unwrap_or(first) }
    }

    /// Fetches the sender's published keys, except keys that the user gave as files.
    pub async fn fetch(&self) -> Result<(), Unusable> {
        if !self.is_published() {
            return Ok(());
        }
        let source = self.source()?;
        for _ in 0..MAX_FETCHES {
            let Err(Unverified::Unfetched(at)) = self.verified_by(&source) else { break };
            self.keys.fetch(&at, PATIENCE).await.map_err(|reason| {
                Unusable::Key(format!(
                    "the sender's key at {at} cannot be fetched: {reason}. Give it as a file with --option {}=FILE",
                    at.file()
                ))
            })?;
        }
        Ok(())
    }

    /// Returns the compression of the body that the headers name. Ingest refuses such a body.
    fn compression(&self) -> Option<String> {
        let headers = self.headers.iter().cloned().collect();
        ingest::HttpRequest { headers, ..ingest::HttpRequest::default() }.compression().map(str::to_owned)
    }

    fn described_by(&self, source: &Source) -> Described {
        source.describe(Request { headers: &self.headers(), body: &self.body })
    }

    /// Returns whether the signature matches, even if it has expired.
    fn is_signed(&self) -> bool {
        let Ok(source) = self.source() else { return false };
        matches!(self.verified_by(&source), Ok(Verified::Delivery) | Err(Unverified::Stale(_)))
    }

    /// Verifies the webhook. Returns [`Unusable::Webhook`] if the webhook is invalid, and another error if the
    /// options are.
    pub fn verify(&self) -> Result<Verification, Unusable> {
        if let Some(coding) = self.compression() {
            return Err(Unusable::Webhook(diagnosis::of_compressed(&coding)));
        }
        if self.body.len() > LARGEST_BODY {
            return Err(Unusable::Webhook("the body is larger than 6 MB, and ingest answers 413 to it".to_owned()));
        }
        let source = match self.source() {
            Err(Unusable::Secret(reason)) => return Err(Unusable::Webhook(diagnosis::unusable_secret(self, &reason))),
            source => source?,
        };
        let verified = match self.verified_by(&source) {
            Ok(verified) => verified,
            Err(refusal) => return Err(Unusable::Webhook(diagnosis::of(self, &source, &refusal))),
        };
        let described = self.described_by(&source);
        let is_ping = verified == Verified::Ping;
        let alone = |secret: &&String| Self { secrets: vec![(*secret).clone()], ..self.clone() }.is_signed();
        let headers = self.headers();
        let received = source.receive(Request { headers: &headers, body: &self.body }, self.now);
        Ok(Verification {
            entity: self.entity(&described, &received).filter(|_| received.unrouted.is_none()),
            unrouted: received.unrouted.filter(|_| !is_ping),
            signed: if is_ping { Vec::new() } else { covered::by(self, &source, &described) },
            secret: self.secrets.iter().position(|secret| alone(&secret)).map(|index| index + 1),
            is_ping,
            described,
        })
    }

    fn entity(&self, described: &Described, received: &ReceivedWebhook) -> Option<String> {
        let has_template = self.provider != "generic" && self.options.iter().any(|(name, _)| name == "entity");
        if has_template { Some(received.incoming.entity.to_string()) } else { described.entity.clone() }
    }
}
