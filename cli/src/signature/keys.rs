//! Finds a provider's published key: first in files that the user gave, then among the fetched keys.

use axum::body::Bytes;
use webhook_serializer::{
    functions::ingest::keys::{PublishedKeys, key_in_certificate},
    providers::{Address, Keys, RsaKey, Uncertified},
    time::Timestamp,
};

pub(super) struct HeldKeys<'a> {
    pub(super) files: &'a [(String, Vec<u8>)],
    /// Selects one of several key files that were given for one name, counted from 0. A larger number selects the last.
    pub(super) number: usize,
    pub(super) fetched: &'a PublishedKeys,
}

impl Keys for HeldKeys<'_> {
    fn find(&self, at: &Address) -> Option<Bytes> {
        let named = self.files.iter().filter(|(name, _)| name == at.file()).map(|(_, bytes)| bytes);
        let file = named.take(self.number + 1).last();
        file.map(|bytes| Bytes::copy_from_slice(bytes)).or_else(|| self.fetched.find(at))
    }

    /// Returns the key in a certificate. Files that the user gave are trusted without a check of the certificate chain.
    fn certified(&self, pem: &[u8], names: &[&'static str], now: Timestamp) -> Result<RsaKey, Uncertified> {
        if self.files.iter().any(|(_, bytes)| bytes == pem) {
            return key_in_certificate(pem).ok_or(Uncertified::Unreadable);
        }
        self.fetched.certified(pem, names, now)
    }
}
