//! Verifies and describes a source's webhooks. Only builds with the feature `verify` contain
//! this code.

use crate::{
    protocol::{
        delivery::Incoming,
        entity::{EntityKey, Identity},
    },
    providers::{self, Described, Keys, NoKeys, Provider, Request, Unverified, Verified},
    sources::{OnOutage, Source, template::Template},
    time::Timestamp,
};

impl Source {
    /// Returns whether the source has the secret or id with which its webhooks are verified, or needs none.
    /// Many senders create a secret only for a URL that exists, so a source may be deployed before its secret
    /// is known.
    pub fn has_secret(&self) -> bool {
        self.missing_field().is_none()
    }

    /// Returns the name of the field that must get a value before a webhook can be verified. Returns `None` if
    /// no value is missing.
    pub fn missing_field(&self) -> Option<&'static str> {
        self.credential_field().filter(|field| match *field {
            "secrets" => self.secrets.is_empty(),
            _ => self.recipients.is_empty(),
        })
    }

    /// Returns the name of the field that holds the secrets or the recipient's id. Returns `None` if the
    /// provider's published key suffices.
    pub fn credential_field(&self) -> Option<&'static str> {
        self.provider().published().map_or(Some("secrets"), |published| published.recipient())
    }

    pub fn challenge(&self) -> Option<&'static str> {
        self.provider().challenge()
    }

    pub fn failure_limit(&self) -> Option<u32> {
        self.provider().failure_limit()
    }

    /// Returns what happens to a delivery that cannot be stored. By default, the delivery is queued if its
    /// provider does not retry, and otherwise refused.
    pub fn on_outage(&self) -> OnOutage {
        let default = if self.provider().has_retries() { OnOutage::Refuse } else { OnOutage::Queue };
        self.on_outage.unwrap_or(default)
    }

    fn provider(&self) -> &dyn Provider {
        self.provider.as_dyn().expect("builds with this method have every provider")
    }

    pub fn verify(&self, request: Request<'_>, now: Timestamp) -> Result<Verified, Unverified> {
        self.verify_with(request, &NoKeys, now)
    }

    pub fn verify_with(&self, request: Request<'_>, keys: &dyn Keys, now: Timestamp) -> Result<Verified, Unverified> {
        let verify_at = |now| match self.provider().published() {
            None => self.provider().verify(request, &self.secrets, now),
            Some(published) => published.verify(request, &self.recipients, keys, now),
        };
        let verified = verify_at(now);
        if self.tolerance == providers::TOLERANCE {
            return verified;
        }
        // At the latest possible time, every signed time is stale, and the error `Stale` holds it.
        // Other errors are ignored, because no certificate is valid at that time.
        match verify_at(Timestamp::from_millis(u64::MAX)) {
            Err(Unverified::Stale(signed_at)) if providers::is_near(signed_at, now, self.tolerance) => {
                verify_at(signed_at)
            }
            Err(stale @ Unverified::Stale(_)) => Err(stale),
            _ => verified,
        }
    }

    pub fn describe(&self, request: Request<'_>) -> Described {
        self.provider().describe(request)
    }

    pub fn sign(&self, headers: &providers::Headers, body: &[u8], now: Timestamp) -> Vec<(String, String)> {
        self.secrets.first().map(|secret| self.provider().sign(headers, body, secret, now)).unwrap_or_default()
    }

    pub fn query(&self) -> Option<String> {
        self.secrets.first().and_then(|secret| self.provider().query(secret))
    }

    pub fn answer(&self) -> Option<&'static str> {
        self.provider().answer()
    }

    /// Creates the delivery for a verified request. If the request names no entity, or none with a valid key, the
    /// delivery goes to [`EntityKey::unrouted`].
    pub fn delivery(&self, request: Request<'_>, now: Timestamp) -> Incoming {
        let described = self.provider().describe(request);
        let entity = self.entity(request, &described);
        let delivery_id = match described.repeated_within {
            None => described.delivery_id,
            Some(retried_for) => described.delivery_id.received(now, retried_for),
        };
        Incoming {
            entity: entity.unwrap_or_else(|| EntityKey::unrouted(&self.name)),
            identity: Identity { source: self.name.clone(), delivery_id, redrive: 0 },
            provider: Some(self.provider_name.clone()),
            topic: described.topic,
            family: described.family,
            event_time: described.event_time,
            received_at: now,
            content_type: request.headers.get("content-type").map(str::to_owned),
            body: request.body.to_vec().into(),
        }
    }

    fn entity(&self, request: Request<'_>, described: &Described) -> Option<EntityKey> {
        if self.entity.is_empty() {
            let own = described.entity.as_deref()?;
            return EntityKey::parse(&format!("{}/{own}", self.name)).ok();
        }
        let filled = |template: &Template| {
            let text = template.fill(&described.topic, |field| match field {
                "source" => Some(self.name.as_str().into()),
                "provider" => Some(self.provider_name.as_str().into()),
                "topic" => Some(described.topic.as_str().into()),
                "entity" => described.entity.as_deref().map(Into::into),
                "account" => described.account.as_deref().map(Into::into),
                pointer if pointer.starts_with('/') => providers::pointer(request.body, pointer),
                header => request.headers.get(header.strip_prefix("header:")?).map(Into::into),
            })?;
            // The sender controls the fields, and must not reach a job's key under `cron/`.
            EntityKey::parse(&text).ok().filter(|key| !key.is_kept_forever())
        };
        self.entity.iter().find_map(filled)
    }
}
