//! Certificate authorities that are loaded only if no compiled-in authority issued a certificate. For
//! example, only the operating system of a company's machines knows the authority of its proxy.

use std::{
    fmt,
    sync::{Arc, Once, OnceLock},
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// Returns a TLS configuration that trusts the authorities in `first`. At the first certificate of
/// another issuer, the configuration loads `others`, and trusts them too. It logs a warning when it
/// first accepts such a certificate.
pub(super) fn trusting(
    first: RootCertStore,
    others: impl Fn() -> RootCertStore + Send + Sync + 'static,
) -> ClientConfig {
    let first = verifier(first).expect("the authorities that are compiled in");
    let verifier = Fallback { first, load: Box::new(others), others: OnceLock::new(), warned: Once::new() };
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has what the default versions need")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth()
}

fn verifier(roots: RootCertStore) -> Option<Arc<WebPkiServerVerifier>> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider())).build().ok()
}

struct Fallback {
    first: Arc<WebPkiServerVerifier>,
    load: Box<dyn Fn() -> RootCertStore + Send + Sync>,
    others: OnceLock<Option<Arc<WebPkiServerVerifier>>>,
    warned: Once,
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Fallback {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let by =
            |verifier: &WebPkiServerVerifier| verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        match by(&self.first) {
            Err(unknown @ Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                let others = self.others.get_or_init(|| verifier((self.load)())).as_ref().ok_or(unknown)?;
                let verified = by(others)?;
                self.warned.call_once(|| {
                    tracing::warn!(
                        server = %name.to_str(),
                        "the server's certificate is not from Amazon's authorities, but from one that this machine \
                         trusts, such as a proxy's. Set AWS_CA_BUNDLE to a file with that authority to avoid a second \
                         check"
                    );
                });
                Ok(verified)
            }
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.first.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.first.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.first.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;

    use crate::tls::{
        Roots,
        endpoint::{Endpoint, EndpointReply},
    };

    use super::*;

    fn certificate() -> rcgen::CertifiedKey<rcgen::KeyPair> {
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap()
    }

    fn store(certificate: &rcgen::CertifiedKey<rcgen::KeyPair>) -> RootCertStore {
        Roots::in_pem(certificate.cert.pem().as_bytes()).unwrap().store
    }

    async fn believes(config: &Arc<ClientConfig>, server: &Endpoint) -> bool {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(config.clone()).connect(name, stream).await.is_ok()
    }

    /// Promise: behind a proxy, a program falls back to its machine's authorities.
    #[tokio::test]
    async fn unknown_issuer_loads_fallback_roots_once() {
        let own = certificate();
        let strange = certificate();
        let proxy = Endpoint::start_tls(&own, |_| EndpointReply::status(200)).await;
        let stranger = Endpoint::start_tls(&strange, |_| EndpointReply::status(200)).await;
        let loads = Arc::new(AtomicUsize::new(0));
        let counted = loads.clone();
        let known = store(&own);
        let others = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            known.clone()
        };
        let config = Arc::new(trusting(Roots::amazon().store, others));
        assert_eq!(loads.load(Ordering::SeqCst), 0);
        for (server, is_believed) in [(&proxy, true), (&stranger, false), (&proxy, true)] {
            assert_eq!(believes(&config, server).await, is_believed);
        }
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn known_issuer_loads_no_fallback_roots() {
        let own = certificate();
        let server = Endpoint::start_tls(&own, |_| EndpointReply::status(200)).await;
        let config = Arc::new(trusting(store(&own), || panic!("the others are asked")));
        assert!(believes(&config, &server).await);
    }

    #[tokio::test]
    async fn certificate_for_other_name_loads_no_fallback_roots() {
        let elsewhere = rcgen::generate_simple_self_signed(["aws.example".to_owned()]).unwrap();
        let server = Endpoint::start_tls(&elsewhere, |_| EndpointReply::status(200)).await;
        let config = Arc::new(trusting(store(&elsewhere), || panic!("the others are asked")));
        assert!(!believes(&config, &server).await);
    }
}
