//! Verifies and describes a source's webhooks. Only builds with the feature `verify` contain
//! this code.

use std::{borrow::Cow, fmt};

use crate::{
    protocol::{
        delivery::{Incoming, NO_ENTITY},
        entity::{DeliveryId, EntityKey, Identity},
    },
    providers::{self, Described, Keys, NoKeys, Provider, Request, Unverified, Verified},
    sources::{
        Credentials, OnOutage, Source,
        filter::IgnoredBy,
        template::{Template, first_key},
    },
    time::Timestamp,
};

impl Credentials {
    pub(super) fn usable(&self) -> Self {
        let secrets = self.secrets.iter().filter(|secret| secret.guessable().is_none());
        let recipients = self.recipients.iter().filter(|id| !providers::is_placeholder_id(id));
        Self { secrets: secrets.cloned().collect(), recipients: recipients.cloned().collect() }
    }
}

/// The field of the sources document with which a source's webhooks are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialField {
    Secrets,
    /// The recipient's id, in the field of this name. The provider's published key verifies the webhooks.
    RecipientId(&'static str),
}

impl CredentialField {
    pub fn name(self) -> &'static str {
        match self {
            Self::Secrets => "secrets",
            Self::RecipientId(name) => name,
        }
    }
}

impl fmt::Display for CredentialField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Source {
    /// Returns whether the source has the secret or id with which its webhooks are verified, or needs none.
    /// Many senders create a secret only for a URL that exists, so a source may be deployed before its secret
    /// is known.
    pub fn has_secret(&self) -> bool {
        self.missing_field().is_none()
    }

    /// Returns the field that must get a value before a webhook can be verified. Returns `None` if no value
    /// is missing.
    pub fn missing_field(&self) -> Option<CredentialField> {
        self.credential_field().filter(|field| match field {
            CredentialField::Secrets => self.usable.secrets.is_empty(),
            CredentialField::RecipientId(_) => self.usable.recipients.is_empty(),
        })
    }

    /// Returns the credentials that a forger can guess, each with the reason. Webhooks are verified as if the
    /// document lacked them.
    pub fn guessable(&self) -> impl Iterator<Item = (String, &'static str)> {
        let Credentials { secrets, recipients } = &self.credentials;
        let secrets = (1..)
            .zip(secrets)
            .filter_map(|(number, secret): (usize, _)| Some((format!("secret number {number}"), secret.guessable()?)));
        let field = self.credential_field().map_or("", CredentialField::name);
        let ids = (1..).zip(recipients).filter(|(_, id)| providers::is_placeholder_id(id));
        secrets
            .chain(ids.map(move |(number, _): (usize, _)| (format!("`{field}` number {number}"), "is a placeholder")))
    }

    /// Returns whether the sources have a secret or a recipient's id in common.
    pub fn shares_credentials(&self, other: &Self) -> bool {
        let Credentials { secrets, recipients } = &self.credentials;
        secrets.iter().any(|secret| other.credentials.secrets.contains(secret))
            || recipients.iter().any(|id| other.credentials.recipients.contains(id))
    }

    /// Returns `None` if the provider's published key suffices, and for a source without webhooks.
    pub fn credential_field(&self) -> Option<CredentialField> {
        if !self.is_door() {
            return None;
        }
        match self.provider().published() {
            Some(published) => published.recipient().map(CredentialField::RecipientId),
            None => Some(CredentialField::Secrets),
        }
    }

    /// Returns whether the provider's published key verifies the webhooks.
    pub fn has_published_key(&self) -> bool {
        self.provider().published().is_some()
    }

    pub fn challenge(&self) -> Option<&str> {
        self.provider().challenge()
    }

    /// Returns the value that the answer to a verified test request must repeat as `challenge`.
    pub fn posted_challenge<'a>(&self, request: Request<'a>) -> Option<Cow<'a, str>> {
        self.provider().posted_challenge(request)
    }

    pub fn failure_limit(&self) -> Option<u32> {
        Some(self.provider().reads()?.failure_limit?.number())
    }

    /// Returns what happens to a delivery that cannot be stored. By default, the delivery is queued if its
    /// provider does not retry, and otherwise refused.
    pub fn on_outage(&self) -> OnOutage {
        let default = if self.provider().has_retries() { OnOutage::Refuse } else { OnOutage::Queue };
        self.on_outage.unwrap_or(default)
    }

    /// Returns whether two events may have equal bodies, and the second would count as a repeat of the first.
    pub fn may_mistake_events_for_repeats(&self) -> bool {
        self.is_door() && self.provider().may_mistake_events_for_repeats()
    }

    fn provider(&self) -> &dyn Provider {
        self.provider.as_dyn().expect("builds with this method have every provider")
    }

    pub fn verify(&self, request: Request<'_>, now: Timestamp) -> Result<Verified, Unverified> {
        self.verify_with(request, &NoKeys, now)
    }

    pub fn verify_with(&self, request: Request<'_>, keys: &dyn Keys, now: Timestamp) -> Result<Verified, Unverified> {
        let proof = match self.provider().published() {
            None => self.provider().verify(request, &self.usable.secrets),
            Some(published) => published.verify(request, &self.usable.recipients, keys, now),
        };
        let proof = proof.map_err(|refusal| refusal.explained_by(request.headers))?;
        proof.near(now, self.tolerance)
    }

    pub fn describe(&self, request: Request<'_>) -> Described {
        self.provider().describe(request)
    }

    pub fn sign(&self, headers: &providers::Headers, body: &[u8], now: Timestamp) -> Vec<(String, String)> {
        self.credentials
            .secrets
            .first()
            .map(|secret| self.provider().sign(headers, body, secret, now))
            .unwrap_or_default()
    }

    /// Returns `body` with signatures under the first secret, if the provider signs inside the body.
    pub fn signed_body(&self, body: &[u8]) -> Option<Vec<u8>> {
        self.provider().signed_body(body, self.credentials.secrets.first()?)
    }

    /// Returns the first of the recipient's ids, for a sender with a published key.
    pub fn recipient(&self) -> Option<&str> {
        self.credentials.recipients.first().map(String::as_str)
    }

    pub fn query(&self) -> Option<String> {
        self.credentials.secrets.first().and_then(|secret| self.provider().query(secret))
    }

    pub fn answer(&self) -> Option<&str> {
        self.provider().answer()
    }

    /// Creates the delivery for a verified request.
    pub fn delivery(&self, request: Request<'_>, now: Timestamp) -> Incoming {
        self.receive(request, now).incoming
    }

    /// Describes a verified request as a delivery. If the request names no entity, or none with a valid key, the
    /// delivery goes to [`EntityKey::unrouted`].
    ///
    /// A delivery without a topic is never ignored: its body may be unreadable. If the source does not take the topic
    /// `unknown`, such a delivery goes to [`EntityKey::unrouted`] too.
    pub fn receive(&self, request: Request<'_>, now: Timestamp) -> ReceivedWebhook {
        self.received(request, self.provider().describe(request), now)
    }

    /// Describes a message of the source's queue as [`receive`](Self::receive) does a webhook. An event in an envelope
    /// that the provider knows is taken out of it, so that the delivery is the same as by HTTP. Without a sender's id, the
    /// delivery's id is that of the message: two messages are two events, even if their bodies are equal.
    pub fn receive_message(&self, message: Request<'_>, message_id: &str, now: Timestamp) -> ReceivedWebhook {
        let (body, headers) = self.provider().inlet().open(message.body);
        let request = Request { headers: headers.as_ref().unwrap_or(message.headers), body };
        let mut described = self.provider().describe(request);
        if described.repeated_within.take().is_some() {
            described.delivery_id = DeliveryId::new(message_id);
        }
        self.received(request, described, now)
    }

    fn received(&self, request: Request<'_>, described: Described, now: Timestamp) -> ReceivedWebhook {
        let is_taken = self.takes(&described.topic);
        let ignored = self.ignores(&described.topic, request.body);
        let entity = match is_taken || described.has_topic() {
            true => self.entity(request, &described),
            false => Err(self.without_topic().to_owned()),
        };
        let (entity, unrouted) = match entity {
            Ok(entity) => (entity, None),
            Err(reason) => (EntityKey::unrouted(&self.name), Some(unreadable(request, reason))),
        };
        let delivery_id = match described.repeated_within {
            None => described.delivery_id,
            Some(retried_for) => described.delivery_id.received(now, retried_for),
        };
        let incoming = Incoming {
            entity,
            identity: Identity { source: self.name.clone(), delivery_id, redrive: 0 },
            provider: Some(self.provider_name.clone()),
            topic: described.topic,
            family: described.family,
            event_time: described.event_time,
            received_at: now,
            content_type: request.headers.get("content-type").map(str::to_owned),
            body: request.body.to_vec().into(),
        };
        ReceivedWebhook { incoming, unrouted, ignored }
    }

    /// Returns the entity's key. An error says why there is none, and quotes nothing of the request.
    fn entity(&self, request: Request<'_>, described: &Described) -> Result<EntityKey, String> {
        let filled = |template: &Template| {
            template.fill(&described.topic, |field| match field {
                "source" => Some(self.name.as_str().into()),
                "provider" => Some(self.provider_name.as_str().into()),
                "topic" => Some(described.topic.as_str().into()),
                "entity" => described.entity.as_deref().map(Into::into),
                "account" => described.account.as_deref().map(Into::into),
                pointer if pointer.starts_with('/') => providers::pointer(request.body, pointer),
                named => match named.strip_prefix("header:") {
                    Some(header) => request.headers.first(header).map(Into::into),
                    None => providers::parameter(request, named),
                },
            })
        };
        let own = described.entity.as_deref().filter(|_| self.entity.is_empty());
        let own = own.map(|own| format!("{}/{own}", self.name));
        first_key(self.entity.iter().filter_map(filled).chain(own)).map_err(|invalid| {
            invalid.unwrap_or_else(|| match described.has_topic() {
                true => NO_ENTITY.to_owned(),
                false => format!("{NO_ENTITY}, which has no topic"),
            })
        })
    }
}

/// Returns why no order is found in a request: because nothing of its body can be read, or by `reason`.
fn unreadable(request: Request<'_>, reason: String) -> String {
    let is_form =
        |value: &str| value.trim_start().to_ascii_lowercase().starts_with("application/x-www-form-urlencoded");
    if request.headers.get("content-type").is_some_and(is_form) {
        let is_json = providers::parameter(request, "form:payload").is_some_and(|text| text.starts_with('{'));
        return match is_json {
            true => {
                format!(
                    "{reason}; its JSON is in the form's field `payload`: let the sender send application/json, if it can"
                )
            }
            false => format!("{reason}; the body is a form, and `{{form:NAME}}` reads a field of it"),
        };
    }
    providers::unreadable(request.body).unwrap_or_else(|| match providers::has_lone_surrogate(request.body) {
        true => {
            format!("{reason}; a text in the body has half of a surrogate pair, such as `\\ud800`, and cannot be read")
        }
        false => reason,
    })
}

/// A verified webhook as a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedWebhook {
    pub incoming: Incoming,
    /// Why the delivery belongs to no entity. `None` if it belongs to one.
    pub unrouted: Option<String>,
    /// The field by which the source ignores the delivery. `None` if the source takes it.
    pub ignored: Option<IgnoredBy>,
}
