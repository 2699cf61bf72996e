//! TLS with rustls and ring, and the certificate authorities that connections trust.

#[cfg(test)]
pub(crate) mod endpoint;
mod fallback;

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

/// The root certificates of Amazon Trust Services. They sign the certificates of every AWS endpoint
/// (<https://www.amazontrust.com/repository/>), except perhaps in China, the isolated partitions and the
/// European Sovereign Cloud. The files are in DER, because decoding PEM would take longer than using the
/// certificates.
const AMAZON: [&[u8]; 5] = [
    include_bytes!("tls/amazon/amazon-root-ca-1.der"),
    include_bytes!("tls/amazon/amazon-root-ca-2.der"),
    include_bytes!("tls/amazon/amazon-root-ca-3.der"),
    include_bytes!("tls/amazon/amazon-root-ca-4.der"),
    include_bytes!("tls/amazon/starfield-services-root-ca-g2.der"),
];

#[derive(Debug, Clone)]
pub struct Roots {
    store: RootCertStore,
    /// Creates the TLS configuration. The field is a function pointer, so that the linker can leave out the variants
    /// that a program does not use.
    trusting: fn(RootCertStore) -> ClientConfig,
}

impl Roots {
    fn of(store: RootCertStore) -> Self {
        Self { store, trusting }
    }

    pub fn amazon() -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in AMAZON {
            roots.add(CertificateDer::from_slice(certificate)).expect("a test adds each of them");
        }
        Self::of(roots)
    }

    /// Returns Amazon's authorities. A connection also trusts the operating system's authorities, but loads
    /// them, with a warning, only for a certificate of another issuer.
    #[cfg(feature = "aws")]
    pub fn amazon_or_machine() -> Self {
        Self { trusting: |first| fallback::trusting(first, || Self::machine().store), ..Self::amazon() }
    }

    /// Returns Amazon's authorities and the operating system's. The operating system often has more than a
    /// hundred, and loading them takes longer than the rest of a start.
    #[cfg(feature = "aws")]
    pub fn machine() -> Self {
        let mut roots = Self::amazon();
        // Certificates that cannot be parsed are skipped. A connection that needs one of them
        // fails.
        roots.store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    }

    #[cfg(any(feature = "forward", feature = "ingest", feature = "otel"))]
    pub fn mozilla() -> Self {
        Self::of(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
    }

    pub fn in_pem(pem: &[u8]) -> Result<Self, String> {
        let mut roots = Self::of(RootCertStore::empty());
        roots.add(pem)?;
        Ok(roots)
    }

    pub fn add(&mut self, pem: &[u8]) -> Result<(), String> {
        let mut found = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| format!("is not PEM: {error}"))?;
            self.store.add(certificate).map_err(|error| format!("holds a certificate that cannot be used: {error}"))?;
            found += 1;
        }
        if found == 0 { Err("holds no certificate".into()) } else { Ok(()) }
    }

    pub(crate) fn store(&self) -> &RootCertStore {
        &self.store
    }

    pub fn trusted(self) -> ClientConfig {
        (self.trusting)(self.store)
    }
}

fn trusting(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has what the default versions need")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn amazon_roots_have_published_fingerprints() {
        // The fingerprints listed at <https://www.amazontrust.com/repository/>.
        let published = [
            "8ecde6884f3d87b1125ba31ac3fcb13d7016de7f57cc904fe1cb97c6ae98196e",
            "1ba5b2aa8c65401a82960118f80bec4f62304d83cec4713a19c39c011ea46db4",
            "18ce6cfe7bf14e60b2e347b8dfe868cb31d02ebb3ada271569f50343b46db3a4",
            "e35d28419ed02025cfa69038cd623962458da5c695fbdea3c22b0bfb25897092",
            "568d6905a2c88708a4b3025190edcfedb1974a606a13c6e5290fcb2ae63edab5",
        ];
        let fingerprint = |certificate: &[u8]| {
            Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(AMAZON.map(fingerprint), published);
        assert_eq!(Roots::amazon().store.len(), AMAZON.len());
    }

    #[test]
    fn pem_without_certificate_is_refused() {
        assert_eq!(Roots::in_pem(b"").unwrap_err(), "holds no certificate");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(Roots::amazon().add(broken.as_bytes()).is_err());
    }
}
