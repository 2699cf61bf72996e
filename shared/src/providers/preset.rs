//! Providers that data alone describes.

use super::{
    Headers, Proof, Provider, Reads, Request, Secret, Signing, Unverified,
    signature::{self, HmacKey},
    token::TokenPlace,
};
use crate::time::Timestamp;

/// A provider that signs with an HMAC and is described by a table.
#[derive(Debug)]
pub(super) struct Preset {
    pub(super) signing: Signing,
    pub(super) reads: Reads,
    /// Derives the key from a secret.
    pub(super) key: fn(&Secret) -> Option<HmacKey>,
    /// Returns why a secret is a credential of another kind.
    pub(super) objection: fn(&Secret) -> Option<&'static str>,
    /// Returns whether a verified request is a test request of the sender.
    pub(super) is_ping: fn(Request<'_>) -> bool,
}

impl Preset {
    /// A provider whose key is the secret's text, without test requests. `signing` and `reads` are still to be given.
    pub(super) const PLAIN: Self = Self {
        signing: Signing::BODY,
        reads: Reads::DEFAULT,
        key: HmacKey::of,
        objection: |_| None,
        is_ping: |_| false,
    };
}

impl Provider for Preset {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        (self.objection)(secret).or_else(|| (self.key)(secret).is_none().then(|| signature::no_key(secret)))
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        let proof = self.signing.verify(request, secrets.iter().filter_map(self.key))?;
        Ok(if (self.is_ping)(request) { Proof { signed_at: proof.signed_at, ..Proof::PING } } else { proof })
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&self.reads)
    }

    fn sign(&self, headers: &Headers, body: &[u8], secret: &Secret, now: Timestamp) -> Vec<(String, String)> {
        (self.key)(secret).map(|key| self.signing.sign(headers, body, &key, now)).unwrap_or_default()
    }
}

/// A provider that sends no webhooks, and is described by a table. Its events come by a queue.
#[derive(Debug)]
pub(super) struct QueuePreset {
    pub(super) reads: Reads,
}

impl Provider for QueuePreset {
    fn reads(&self) -> Option<&Reads> {
        Some(&self.reads)
    }
}

/// A provider that sends a secret instead of a signature, and is described by a table.
#[derive(Debug)]
pub(super) struct TokenPreset {
    pub(super) token: TokenPlace,
    pub(super) reads: Reads,
}

impl Provider for TokenPreset {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        self.token.objection(secret)
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        self.token.verify(request.headers, secrets)
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&self.reads)
    }

    fn sign(&self, _headers: &Headers, _body: &[u8], secret: &Secret, _now: Timestamp) -> Vec<(String, String)> {
        self.token.headers(secret)
    }

    fn query(&self, secret: &Secret) -> Option<String> {
        self.token.query(secret)
    }
}
