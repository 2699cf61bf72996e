//! The algorithms, by `ring`.

use ring::{
    rand::SystemRandom,
    rsa,
    signature::{
        self, ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED, ED25519, EcdsaKeyPair,
        Ed25519KeyPair, KeyPair, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaPublicKeyComponents,
        UnparsedPublicKey,
    },
};

/// Returns the public key, in PKCS #1, of a private key in DER. `label` is that of the key's PEM block.
pub(super) fn public_rsa(label: &str, der: &[u8]) -> Option<Vec<u8>> {
    Some(pair(label, der)?.public().as_ref().to_vec())
}

pub(super) fn rsa_verifies(modulus: &[u8], exponent: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let key = RsaPublicKeyComponents { n: modulus, e: exponent };
    key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok()
}

pub(super) fn sign_by_rsa(label: &str, der: &[u8], message: &[u8]) -> Option<Vec<u8>> {
    let pair = pair(label, der)?;
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).ok()?;
    Some(signature)
}

fn pair(label: &str, der: &[u8]) -> Option<rsa::KeyPair> {
    match label {
        "PRIVATE KEY" => rsa::KeyPair::from_pkcs8(der).ok(),
        "RSA PRIVATE KEY" => rsa::KeyPair::from_der(der).ok(),
        _ => None,
    }
}

/// Returns the public key of a private P-256 key in PKCS #8.
pub(super) fn public_p256(der: &[u8]) -> Option<Vec<u8>> {
    Some(p256_pair(der)?.public_key().as_ref().to_vec())
}

/// Returns whether `signature` is valid, in DER or as the two numbers of 32 bytes each.
pub(super) fn p256_verifies(point: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let is_by = |form| UnparsedPublicKey::new(form, point).verify(message, signature).is_ok();
    is_by(&ECDSA_P256_SHA256_ASN1) || is_by(&ECDSA_P256_SHA256_FIXED)
}

pub(super) fn sign_by_p256(der: &[u8], message: &[u8]) -> Option<Vec<u8>> {
    Some(p256_pair(der)?.sign(&SystemRandom::new(), message).ok()?.as_ref().to_vec())
}

fn p256_pair(der: &[u8]) -> Option<EcdsaKeyPair> {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der, &SystemRandom::new()).ok()
}

pub(in crate::providers) enum Ed25519 {
    Public(Vec<u8>),
    Private(Box<Ed25519KeyPair>),
}

impl Ed25519 {
    pub(in crate::providers) fn public(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() == signature::ED25519_PUBLIC_KEY_LEN).then_some(Self::Public(bytes))
    }

    /// Creates a signing key from a seed of 32 bytes. The public key may follow the seed. Returns `None`
    /// if the public key does not belong to the seed.
    pub(in crate::providers) fn private(bytes: &[u8]) -> Option<Self> {
        let pair = match bytes.split_at_checked(32)? {
            (seed, []) => Ed25519KeyPair::from_seed_unchecked(seed),
            (seed, public) => Ed25519KeyPair::from_seed_and_public_key(seed, public),
        };
        pair.ok().map(|pair| Self::Private(Box::new(pair)))
    }

    /// Reads a private key in PKCS #8. The public key may be missing, as in openssl's files.
    pub(in crate::providers) fn in_pkcs8(der: &[u8]) -> Option<Self> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(|pair| Self::Private(Box::new(pair)))
    }

    pub(in crate::providers) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let public = match self {
            Self::Public(key) => key,
            Self::Private(pair) => pair.public_key().as_ref(),
        };
        UnparsedPublicKey::new(&ED25519, public).verify(message, signature).is_ok()
    }

    pub(in crate::providers) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Public(_) => None,
            Self::Private(pair) => Some(pair.sign(message).as_ref().to_vec()),
        }
    }
}
