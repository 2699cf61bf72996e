//! Verifies the certificates of senders' keys with rustls.

use std::time::Duration;

use rustls::{
    CertificateError, Error,
    client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
    crypto::{WebPkiSupportedAlgorithms, ring},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};

use crate::{
    providers::{RsaKey, Uncertified},
    time::Timestamp,
    tls::Roots,
};

/// The intermediate certificate that has issued PayPal's certificates since 2024: *DigiCert EV
/// RSA CA G2*, issued by *DigiCert Global Root G2*, valid until July 2030. PayPal does not
/// publish it together with its own certificates.
const DIGICERT_EV_G2: &[u8] = include_bytes!("../../../tls/digicert/digicert-ev-rsa-ca-g2.der");

fn algorithms() -> WebPkiSupportedAlgorithms {
    ring::default_provider().signature_verification_algorithms
}

/// Returns the key of the first certificate in `pem`, without verifying the certificate. The caller must already trust
/// the certificate.
pub fn key_in_certificate(pem: &[u8]) -> Option<RsaKey> {
    let certificate = CertificateDer::from_pem_slice(pem).ok()?;
    key(&ParsedCertificate::try_from(&certificate).ok()?)
}

fn key(certificate: &ParsedCertificate<'_>) -> Option<RsaKey> {
    RsaKey::in_info(certificate.subject_public_key_info().as_ref())
}

pub(super) fn certified(
    roots: &Roots,
    pem: &[u8],
    names: &[&'static str],
    now: Timestamp,
) -> Result<RsaKey, Uncertified> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|_| Uncertified::Unreadable)?;
    let (first, behind) = chain.split_first().ok_or(Uncertified::Unreadable)?;
    let certificate = ParsedCertificate::try_from(first).map_err(|_| Uncertified::Unreadable)?;
    let key = key(&certificate).ok_or(Uncertified::Unreadable)?;
    let is_for = |name: &&'static str| {
        ServerName::try_from(*name).is_ok_and(|name| verify_server_name(&certificate, &name).is_ok())
    };
    if !names.iter().any(is_for) {
        return Err(Uncertified::Name);
    }
    let behind: Vec<_> = behind.iter().cloned().chain([CertificateDer::from_slice(DIGICERT_EV_G2)]).collect();
    let time = UnixTime::since_unix_epoch(Duration::from_millis(now.as_millis()));
    let all = algorithms().all;
    match verify_server_cert_signed_by_trust_anchor(&certificate, roots.store(), &behind, time, all) {
        Ok(()) => Ok(key),
        Err(Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )) => Err(Uncertified::Expired),
        Err(_) => Err(Uncertified::Issuer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the bundled certificate, PayPal's signatures could not be verified.
    #[test]
    fn paypals_intermediate_certificate_has_a_trusted_root() {
        let authority = CertificateDer::from_slice(DIGICERT_EV_G2);
        let certificate = ParsedCertificate::try_from(&authority).unwrap();
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let verified = |seconds| {
            let roots = Roots::mozilla();
            verify_server_cert_signed_by_trust_anchor(&certificate, roots.store(), &[], at(seconds), algorithms().all)
        };
        // rustls reports an authority that is used as a server only after it has checked issuer and dates.
        assert_eq!(
            format!("{:?}", verified(1_767_621_700)),
            "Err(InvalidCertificate(Other(OtherError(CaUsedAsEndEntity))))"
        );
        assert!(format!("{:?}", verified(1_956_528_000)).contains("Expired"), "{:?}", verified(1_956_528_000));
    }
}
