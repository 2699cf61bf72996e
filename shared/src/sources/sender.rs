//! What a source's sender does: in builds that verify webhooks, and in no
//! other, so that nobody can ask a worker for rules that it does not have.

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
    /// Whether it has what its webhooks are verified by. One without was
    /// configured before its sender made the secret, which many do only for a URL
    /// that exists; until then none of its webhooks can be verified.
    pub fn has_secret(&self) -> bool {
        self.awaited().is_none()
    }

    /// The field that is still to be filled in before a webhook can be verified;
    /// `None`: it is.
    pub fn awaited(&self) -> Option<&'static str> {
        self.known_by().filter(|field| match *field {
            "secrets" => self.secrets.is_empty(),
            _ => self.recipients.is_empty(),
        })
    }

    /// The field that its webhooks are verified by; `None`: none of its own is
    /// needed.
    pub fn known_by(&self) -> Option<&'static str> {
        self.provider().published().map_or(Some("secrets"), |published| published.recipient())
    }

    /// The parameter of a GET's query whose value is to be answered.
    pub fn challenge(&self) -> Option<&'static str> {
        self.provider().challenge()
    }

    /// So many failures in a row make its provider switch the endpoint off; `None`:
    /// no such number is known.
    pub fn failures_in_a_row(&self) -> Option<u32> {
        self.provider().failures_in_a_row()
    }

    /// What is done with a delivery that the store does not take. Where the
    /// document does not say, what would be lost otherwise is put on the queue.
    pub fn on_outage(&self) -> OnOutage {
        let default = if self.provider().tries_again() { OnOutage::Refuse } else { OnOutage::Queue };
        self.on_outage.unwrap_or(default)
    }

    fn provider(&self) -> &dyn Provider {
        self.provider.as_dyn().expect("a build that has this has every provider's rules")
    }

    /// Whether the sender signed the request, if that can be told without a key
    /// that it publishes.
    pub fn verify(&self, request: Request<'_>, now: Timestamp) -> Result<Verified, Unverified> {
        self.verify_with(request, &NoKeys, now)
    }

    /// Whether the sender signed the request, by its secrets or by those of its
    /// keys that were fetched.
    pub fn verify_with(&self, request: Request<'_>, keys: &dyn Keys, now: Timestamp) -> Result<Verified, Unverified> {
        let verify_at = |now| match self.provider().published() {
            None => self.provider().verify(request, &self.secrets, now),
            Some(published) => published.verify(request, &self.recipients, keys, now),
        };
        let verified = verify_at(now);
        if self.tolerance == providers::TOLERANCE {
            return verified;
        }
        // `Stale` carries the signed time, and no signed time is near this one. Nothing else is asked of that call:
        // a certificate is not valid then.
        match verify_at(Timestamp::from_millis(u64::MAX)) {
            Err(Unverified::Stale(signed_at)) if providers::is_near(signed_at, now, self.tolerance) => {
                verify_at(signed_at)
            }
            Err(stale @ Unverified::Stale(_)) => Err(stale),
            _ => verified,
        }
    }

    /// What a request that was verified is about, by the provider's own rule.
    pub fn describe(&self, request: Request<'_>) -> Described {
        self.provider().describe(request)
    }

    /// The headers that the sender would sign `body` with, by the first of its
    /// secrets: for samples, local runs and tests. None if it has no secret.
    pub fn sign(&self, headers: &providers::Headers, body: &[u8], now: Timestamp) -> Vec<(String, String)> {
        self.secrets.first().map(|secret| self.provider().sign(headers, body, secret, now)).unwrap_or_default()
    }

    /// The query of the URL that the sender calls, by the first of its secrets,
    /// where it signs nothing and is known by that.
    pub fn query(&self) -> Option<String> {
        self.secrets.first().and_then(|secret| self.provider().query(secret))
    }

    /// The body, JSON, that the sender demands in the answer to a delivery that
    /// was taken; `None`: it looks at the status alone.
    pub fn answer(&self) -> Option<&'static str> {
        self.provider().answer()
    }

    /// A verified request as a delivery. One whose entity cannot be found is
    /// kept under [`EntityKey::unrouted`].
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

    /// The first of the source's templates that can be filled, else the
    /// provider's own rule.
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
            // A field that the sender fills may say `cron/`: no delivery is of a job.
            EntityKey::parse(&text).ok().filter(|key| !key.is_kept_forever())
        };
        self.entity.iter().find_map(filled)
    }
}
