//! A webhook as somebody has it at hand, with what they believe it was signed
//! with: whether its provider's rules believe it, what of it the signature
//! covers, and why not.
//!
//! What is tried to find out why stands here and not beside the providers'
//! rules, so that no function carries it.

mod bodies;
mod covered;
mod diagnosis;
mod keys;
mod secrets;
mod signatures;

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value, json};
use webhook_serializer::{
    functions::ingest::keys::PublishedKeys,
    protocol::entity::EntityKey,
    providers::{self, Described, Headers, Request, Unverified, Verified},
    sources::{InvalidSources, Source, Sources},
    time::Timestamp,
};

use crate::document::reference;
use keys::Held;

/// A webhook and what it is held against.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The provider's name.
    pub provider: String,
    /// Secrets as a sources document has them.
    pub secrets: Vec<String>,
    /// Fields of the sources document; one that is given several times is a
    /// list.
    pub options: Vec<(String, String)>,
    /// Files that stand in for what the sender publishes, by what they are
    /// called: `cert_file`, `jwks_file`, `public_key_file`. Of several of one
    /// name each is tried.
    pub files: Vec<(String, Vec<u8>)>,
    /// What was fetched of what the sender publishes.
    pub keys: PublishedKeys,
    /// The URL that the sender calls, as it knows it.
    pub url: Option<String>,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
    /// The time at which it is verified.
    pub now: Timestamp,
}

/// Why there is nothing to verify by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// A secret is none of this provider's.
    #[error("{0}")]
    Secret(String),
    /// An option is unknown, missing or wrong.
    #[error("{0}")]
    Option(String),
    /// The sender's key cannot be had.
    #[error("{0}")]
    Key(String),
}

/// How long a key is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many keys one webhook may need, and one more.
const MOST_FETCHES: usize = 3;

/// What is known of a webhook that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// What it is about.
    pub described: Described,
    /// Its entity, as the provider's rule or the option `entity` says it.
    pub entity: Option<String>,
    /// Which of `topic`, `id`, `time` and `body` its signature covers.
    pub signed: Vec<&'static str>,
    /// Which of the secrets it is signed with, from 1; `None`: with none.
    pub secret: Option<usize>,
    /// It only asks whether anybody is there.
    pub is_ping: bool,
}

impl Claim {
    /// The source that a sources document with these secrets and options has.
    ///
    /// # Errors
    ///
    /// The document would be refused.
    pub fn source(&self) -> Result<Arc<Source>, Unusable> {
        // What stands in it is not shown by the reader's errors, nor here.
        let document = json!({ "sources": { self.provider.as_str(): self.entry() } }).to_string();
        let sources = Sources::parse(&document).map_err(|error| match error {
            InvalidSources::Source { reason, .. } if reason.starts_with("`secrets`") => {
                Unusable::Secret(reason.replacen("`secrets`", "`--secret`", 1))
            }
            InvalidSources::Source { reason, .. } => Unusable::Option(reason),
            InvalidSources::Document(reason) => {
                Unusable::Option(reason.split(" at line ").next().unwrap_or_default().to_owned())
            }
        })?;
        sources.get(&self.provider).cloned().ok_or_else(|| Unusable::Option("there is no such provider".into()))
    }

    fn entry(&self) -> Value {
        let mut entry = Map::new();
        let mut generic = Map::new();
        for (name, text) in &self.options {
            let is_generic = self.provider == "generic" && reference::is_of_generic(name);
            let table = if is_generic { &mut generic } else { &mut entry };
            // A duration: the document asks for its unit.
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

    /// The headers and the query, for providers.
    pub fn headers(&self) -> Headers {
        let query = self.url.as_deref().and_then(|url| url.split_once('?')).map(|(_, query)| query);
        let headers: Headers = self.headers.iter().map(|(name, value)| (name, value.trim())).collect();
        headers.with_query(query.and_then(|query| query.split('#').next()).unwrap_or_default())
    }

    /// Whether the URL makes any difference to its provider, which may sign it
    /// or stand in it with a secret.
    pub fn reads_url(&self) -> bool {
        let refused = |query: &str| {
            let request = Request { headers: &Headers::default().with_query(query), body: &[] };
            providers::by_name(&self.provider).map(|provider| provider.verify(request, &[], self.now))
        };
        self.signs_url() || refused("") != refused("token=any")
    }

    fn signs_url(&self) -> bool {
        providers::rule_of(&self.provider).is_some_and(|rule| rule.facts.signed.url)
    }

    /// Whether its sender signs with a key of its own, so that a secret is of no
    /// use.
    pub fn is_published(&self) -> bool {
        providers::by_name(&self.provider).is_some_and(|provider| provider.published().is_some())
    }

    /// Whether `source` believes it.
    fn verified_by(&self, source: &Source) -> Result<Verified, Unverified> {
        let headers = self.headers();
        let webhook = Request { headers: &headers, body: &self.body };
        let verify = |number| {
            let held = Held { files: &self.files, number, fetched: &self.keys };
            source.verify_with(webhook, &held, self.now)
        };
        let first = verify(0);
        let others = (1..self.files.len()).map(verify);
        if first.is_ok() { first } else { others.into_iter().find(Result::is_ok).unwrap_or(first) }
    }

    /// Fetches what its sender publishes, where no file stands in for it.
    ///
    /// # Errors
    ///
    /// It cannot be fetched, or there is nothing to verify by.
    pub async fn fetch(&self) -> Result<(), Unusable> {
        let source = self.source()?;
        for _ in 0..MOST_FETCHES {
            let Err(Unverified::Unfetched(at)) = self.verified_by(&source) else { break };
            self.keys.fetch(&at, PATIENCE).await.map_err(|reason| {
                Unusable::Key(format!(
                    "the sender's key at {at} cannot be fetched: {reason}. A file stands in for it with --option {}=FILE",
                    at.file()
                ))
            })?;
        }
        Ok(())
    }

    /// What `source` says that it is about.
    fn described_by(&self, source: &Source) -> Described {
        source.describe(Request { headers: &self.headers(), body: &self.body })
    }

    /// Whether somebody with one of the secrets signed it, at whatever time.
    fn is_signed(&self) -> bool {
        let Ok(source) = self.source() else { return false };
        matches!(self.verified_by(&source), Ok(Verified::Delivery) | Err(Unverified::Stale(_)))
    }

    /// What is known of it, or in a few sentences why it is not believed.
    ///
    /// # Errors
    ///
    /// There is nothing to verify it by.
    pub fn verify(&self) -> Result<Result<Known, String>, Unusable> {
        let source = self.source()?;
        let verified = match self.verified_by(&source) {
            Ok(verified) => verified,
            Err(refusal) => return Ok(Err(diagnosis::of(self, &source, &refusal))),
        };
        let described = self.described_by(&source);
        let is_ping = verified == Verified::Ping;
        let alone = |secret: &&String| Self { secrets: vec![(*secret).clone()], ..self.clone() }.is_signed();
        Ok(Ok(Known {
            entity: self.entity(&source, &described),
            signed: if is_ping { Vec::new() } else { covered::by(self, &source, &described) },
            secret: self.secrets.iter().position(|secret| alone(&secret)).map(|index| index + 1),
            is_ping,
            described,
        }))
    }

    fn entity(&self, source: &Source, described: &Described) -> Option<String> {
        let has_template = self.provider != "generic" && self.options.iter().any(|(name, _)| name == "entity");
        if !has_template {
            return described.entity.clone();
        }
        let headers = self.headers();
        let entity = source.delivery(Request { headers: &headers, body: &self.body }, self.now).entity;
        (entity != EntityKey::unrouted(&source.name)).then(|| entity.to_string())
    }
}
