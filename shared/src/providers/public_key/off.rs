//! The algorithms without `ring`: no key can be read, and no signature is valid.

pub(super) fn public_rsa(_: &str, _: &[u8]) -> Option<Vec<u8>> {
    None
}

pub(super) fn rsa_verifies(_: &[u8], _: &[u8], _: &[u8], _: &[u8]) -> bool {
    false
}

pub(super) fn sign_by_rsa(_: &str, _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    None
}

pub(super) fn public_p256(_: &[u8]) -> Option<Vec<u8>> {
    None
}

pub(super) fn p256_verifies(_: &[u8], _: &[u8], _: &[u8]) -> bool {
    false
}

pub(super) fn sign_by_p256(_: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    None
}

pub(in crate::providers) enum Ed25519 {}

impl Ed25519 {
    pub(in crate::providers) fn public(_: Vec<u8>) -> Option<Self> {
        None
    }

    pub(in crate::providers) fn private(_: &[u8]) -> Option<Self> {
        None
    }

    pub(in crate::providers) fn in_pkcs8(_: &[u8]) -> Option<Self> {
        None
    }

    pub(in crate::providers) fn verifies(&self, _: &[u8], _: &[u8]) -> bool {
        match *self {}
    }

    pub(in crate::providers) fn sign(&self, _: &[u8]) -> Option<Vec<u8>> {
        match *self {}
    }
}
