//! Tests with signatures that senders or their SDKs have published.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;

use crate::{
    providers::{
        Address, Headers, Keys, Request, RsaKey, TOLERANCE, Uncertified, Unverified, Verified, by_name,
        tests::rows::NOW,
    },
    time::Timestamp,
};

struct KnownKeys(Vec<(&'static str, String)>, Option<RsaKey>);

impl Keys for KnownKeys {
    fn find(&self, at: &Address) -> Option<Bytes> {
        let found = self.0.iter().find(|(path, _)| *path == at.path()).map(|(_, key)| Bytes::from(key.clone()));
        found.or_else(|| self.1.as_ref().map(|_| Bytes::new()))
    }

    fn certified(&self, _: &[u8], _: &[&'static str], _: Timestamp) -> Result<RsaKey, Uncertified> {
        self.1.clone().ok_or(Uncertified::Unreadable)
    }
}

fn verify(
    provider: &str,
    recipient: &str,
    keys: &KnownKeys,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Verified, Unverified> {
    let headers: Headers = headers.iter().copied().collect();
    let webhook = Request { headers: &headers, body: body.as_bytes() };
    let published = by_name(provider).unwrap().published().unwrap();
    published.verify(webhook, &[recipient.to_owned()], keys, NOW)?.near(NOW, TOLERANCE)
}

/// The modulus of the key of PayPal's sandbox in 2015, certificate
/// CERT-360caa42-fca2a594-a5cafa77. The modulus was derived from the two signatures: it is the
/// only number of that size that divides signature^65537 − message for both.
const PAYPAL: &str = "yF4MCY9RPrzzizQO3t5xbEaUKuxtQhXKAjXkYBSBkX3eIrbdowUT3x139Xnlzg0OlcEzD+q1WKyNxwULuUmUWSjt4ACz4gVk3M+R\
     YVaL2A8/3fw7WrAOS+5dcZkTPhhjxHvw9xEz3sspuhkwLiM0dY7tQbkkJVZyK3CCwx6xWaNEcqhR9XjS96GH4M/mQr/lh+ua4Uut\
     FaMIiwG9pbAEXJCdj/MCiKbN2FMQKlRuUifR+PbngQyNNcBMxP/ufSfLPRk4ZmzE6j+seDJ3gHBjdUz4phnfcGZW8MKwmA7QqKhQ\
     3MTFYLw/N7j6yIpxcEyDl8Ot0Er/P/gDbmsAXDSQ6w==";

/// The examples of PayPal's SDKs: `verify_webhook_events.py` in `samples/notification/webhook-events`
/// (Python), and `ValidateCert.java` (Java).
const TRANSMISSIONS: [[&str; 5]; 2] = [
    [
        "dfb3be50-fd74-11e4-8bf3-77339302725b",
        "2015-05-18T15:45:13Z",
        "4JH86294D6297924G",
        r#"{"id":"WH-0G2756385H040842W-5Y612302CV158622M","create_time":"2015-05-18T15:45:13Z","resource_type":"sale","event_type":"PAYMENT.SALE.COMPLETED","summary":"Payment completed for $ 20.0 USD","resource":{"id":"4EU7004268015634R","create_time":"2015-05-18T15:44:02Z","update_time":"2015-05-18T15:44:21Z","amount":{"total":"20.00","currency":"USD"},"payment_mode":"INSTANT_TRANSFER","state":"completed","protection_eligibility":"ELIGIBLE","protection_eligibility_type":"ITEM_NOT_RECEIVED_ELIGIBLE,UNAUTHORIZED_PAYMENT_ELIGIBLE","parent_payment":"PAY-86C81811X5228590KKVNARQQ","transaction_fee":{"value":"0.88","currency":"USD"},"links":[{"href":"https://api.sandbox.paypal.com/v1/payments/sale/4EU7004268015634R","rel":"self","method":"GET"},{"href":"https://api.sandbox.paypal.com/v1/payments/sale/4EU7004268015634R/refund","rel":"refund","method":"POST"},{"href":"https://api.sandbox.paypal.com/v1/payments/payment/PAY-86C81811X5228590KKVNARQQ","rel":"parent_payment","method":"GET"}]},"links":[{"href":"https://api.sandbox.paypal.com/v1/notifications/webhooks-events/WH-0G2756385H040842W-5Y612302CV158622M","rel":"self","method":"GET"},{"href":"https://api.sandbox.paypal.com/v1/notifications/webhooks-events/WH-0G2756385H040842W-5Y612302CV158622M/resend","rel":"resend","method":"POST"}]}"#,
        "thy4/U002quzxFavHPwbfJGcc46E8rc5jzgyeafWm5mICTBdY/8rl7WJpn8JA0GKA+oDTPsSruqusw+XXg5RLAP7ip53Euh9Xu3U\
     bUhQFX7UgwzE2FeYoY6lyRMiiiQLzy9BvHfIzNIVhPad4KnC339dr6y2l+mN8ALgI4GCdIh3/SoJO5wE64Bh/ueWtt8EVuvsvXfd\
     a2Le5a2TrOI9vLEzsm9GS79hAR/5oLexNz8UiZr045Mr5ObroH4w4oNfmkTaDk9Rj0G19uvISs5QzgmBpauKr7Nw++JI0pr/v5mF\
     ctQkoWJSGfBGzPRXawrvIIVHQ9Wer48GR2g9ZiApWg==",
    ],
    [
        "b2384410-f8d2-11e4-8bf3-77339302725b",
        "2015-05-12T18:14:14Z",
        "3RN13029J36659323",
        r#"{"id":"WH-2W7266712B616591M-36507203HX6402335","create_time":"2015-05-12T18:14:14Z","resource_type":"sale","event_type":"PAYMENT.SALE.COMPLETED","summary":"Payment completed for $ 20.0 USD","resource":{"id":"7DW85331GX749735N","create_time":"2015-05-12T18:13:18Z","update_time":"2015-05-12T18:13:36Z","amount":{"total":"20.00","currency":"USD"},"payment_mode":"INSTANT_TRANSFER","state":"completed","protection_eligibility":"ELIGIBLE","protection_eligibility_type":"ITEM_NOT_RECEIVED_ELIGIBLE,UNAUTHORIZED_PAYMENT_ELIGIBLE","parent_payment":"PAY-1A142943SV880364LKVJEFPQ","transaction_fee":{"value":"0.88","currency":"USD"},"links":[{"href":"https://api.sandbox.paypal.com/v1/payments/sale/7DW85331GX749735N","rel":"self","method":"GET"},{"href":"https://api.sandbox.paypal.com/v1/payments/sale/7DW85331GX749735N/refund","rel":"refund","method":"POST"},{"href":"https://api.sandbox.paypal.com/v1/payments/payment/PAY-1A142943SV880364LKVJEFPQ","rel":"parent_payment","method":"GET"}]},"links":[{"href":"https://api.sandbox.paypal.com/v1/notifications/webhooks-events/WH-2W7266712B616591M-36507203HX6402335","rel":"self","method":"GET"},{"href":"https://api.sandbox.paypal.com/v1/notifications/webhooks-events/WH-2W7266712B616591M-36507203HX6402335/resend","rel":"resend","method":"POST"}]}"#,
        "vSOIQFIZQHv8G2vpbOpD/4fSC4/MYhdHyv+AmgJyeJQq6q5avWyHIe/zL6qO5hle192HSqKbYveLoFXGJun2od2zXN3Q45VBXwdX\
     3woXYGaNq532flAtiYin+tQ/0pNwRDsVIufCxa3a8HskaXy+YEfXNnwCSL287esD3HgOHmuAs0mYKQdbR4e8Evk8XOOQaZzGeV7G\
     NXXz19gzzvyHbsbHmDz5VoRl9so5OoHqvnc5RtgjZfG8KA9lXh2MTPSbtdTLQb9ikKYnOGM+FasFMxk5stJisgmxaefpO9Q1qm3r\
     CjaJ29aAOyDNr3Q7WkeN3w4bSXtFMwyRBOF28pJg9g==",
    ],
];

#[test]
fn paypal_sandbox_signature_is_accepted() {
    let key = RsaKey::of_numbers(&STANDARD.decode(PAYPAL).unwrap(), &[1, 0, 1]);
    let keys = KnownKeys(Vec::new(), Some(key));
    for [id, time, webhook_id, body, signature] in TRANSMISSIONS {
        let headers = [
            ("PAYPAL-TRANSMISSION-ID", id),
            ("PAYPAL-TRANSMISSION-TIME", time),
            ("PAYPAL-TRANSMISSION-SIG", signature),
            (
                "PAYPAL-CERT-URL",
                "https://api.sandbox.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-a5cafa77",
            ),
            ("PAYPAL-AUTH-ALGO", "SHA256withRSA"),
        ];
        assert_eq!(verify("paypal", webhook_id, &keys, &headers, body), Ok(Verified::Delivery));
        let longer = format!("{body} ");
        assert_eq!(verify("paypal", webhook_id, &keys, &headers, &longer), Err(Unverified::Mismatch));
        assert_eq!(verify("paypal", "another", &keys, &headers, body), Err(Unverified::Mismatch));
    }
}

/// The vectors are from Adobe's SDK for Java, `EventVerifierTest.java`.
const ADOBE_BODY: &str = r#"{"event_id":"eventId1","event":{"hello":"world"},"recipient_client_id":"client_id1"}"#;
const ADOBE_KEYS: [&str; 2] = [
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAzxbiCd7hyiKbksssNEupSBhnNRHaPFHUVbi44k82GlFrLBF2MbviEWPx\
     xJxRfqRkysHwMaE+3w74sR9oEunFUz3J2vGcXHT4UWfEuKxO/C8dSt7Hex5EoK2R4eld/P7j/p55jp8ODvTW/Yd9ej8qDk9dia8Z\
     bkOOuVht2NJlZW4+4p8OCp4MLnSjprvPLAIHU5pD8sIcS+LFYYA3kAz2pAo/La7W4PFd6f3fuOQrhlBKsL99W6ALyXUOsHHBk0Yr\
     cgoxVeDYWO0N3NZLYIZdaWMxNONoH9kH2mhguidf8MCWwIuYyqO+J+IzsshXVWGyMyn3q7fVZCra9ISEZqWEiwIDAQAB",
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAuyszY9i34MeIfmmaFSUzR0Y4ORhTkwiUafGbRntE0u0wTAKhe9Mewnmr\
     xclh5OrX9jEjWY6lBkxxLYHAa+w2B4jDExTwiz/o1GKHYf0CGlVw0JqGQVfLlvEGFg5lQsVfOBdSdnxXBSH0FOw7ZQUb60MD7YKS\
     bk40PRHKzHEcxlHLiHreoqPAIDn3JZ9A7b6QjKOB4LTR6jb3rUtfxnzljku8atEfdo341WcHSHW2hf/Gx2mazhGg1of6wZVforXo\
     3R1HVqIVMlOk6GMcz4HHiLOuEOURFucux3jm4gF2DF1B627vCqaGDoduvyIjitXQS6KqSx3dzB2dGOBDPpsr8wIDAQAB",
];
const ADOBE_SIGNATURES: [&str; 2] = [
    "IaHo9/8DYt2630pAtjIJeGtsHjB61zOSiAb3S4X1VdPooxikfk79H/t3rgaSbmQMOnjVPRpYVNsHn1fE+l80gjEqmljgNEHt+Btf\
     EH8EsEigwbjQS9opTx/GFnexw3h/sWOt4MGWt3TFK484Dsijijcs1gLwcxTyVUeU2G2XXECpH4dvvEXWQP+1HDFu9nrN+MU/aOR1\
     7cNF5em/D/jKjgTcaPx7jK+W5M57F3qqsmdcPxM1ltQxx1/iAXWaOffOC/nXSda5fLFZL75RKBIoveDjL9zthVkBVY9qKXYyK6S/\
     usc2bW3PpXuRTd5Xv2bFB2Mlzr0Gi6St/iiNYLEl3g==",
    "Xx8uVpZlKIOqAdVBr/6aNrASk6u7i/Bb9kWZttIFOu0Y2JGozZGG7WF9Z6056RdeeBUXLJsV4r8a3ZeEUrOZi3hvhV+Hw7vmK1NI\
     QJVIqdigF9mJ/2gSMGe7K4OPedh+fPNZmbOyNIc6FRmUtTdemNLJeCzM7Zf+niC7Tfsytsz4lW4ebv34TWHxzAA9pZRcJE4a1YYq\
     EYAqn3cHTvCzB/AQ6VdIcP8MsuTGatCk9Vc6dTPOVEcyYkVXTMGgsmzW8RB6mq0m1aqTz3KvnhEYlkspqtxi+jBkTjcYVf1dPa4o\
     fbosmD5rohIef/UwPX5n5ZHM7du86Gf+6S72ee8tbw==",
];

#[test]
fn adobe_test_signature_is_accepted() {
    let pem = |key: &str| format!("-----BEGIN PUBLIC KEY-----\n{key}\n-----END PUBLIC KEY-----\n");
    let paths = ["/junit/pub-key-1.pem", "/junit/pub-key-2.pem"];
    let keys = KnownKeys(paths.into_iter().zip(ADOBE_KEYS.map(pem)).collect(), None);
    let both = [
        ("x-adobe-digital-signature-1", ADOBE_SIGNATURES[0]),
        ("x-adobe-public-key1-path", paths[0]),
        ("x-adobe-digital-signature-2", ADOBE_SIGNATURES[1]),
        ("x-adobe-public-key2-path", paths[1]),
    ];
    for headers in [&both[..], &both[..2], &both[2..]] {
        assert_eq!(verify("adobe-io-events", "client_id1", &keys, headers, ADOBE_BODY), Ok(Verified::Delivery));
        let refused = verify("adobe-io-events", "another_api_key", &keys, headers, ADOBE_BODY);
        assert_eq!(refused, Err(Unverified::Mismatch));
    }
    let swapped = [both[0], ("x-adobe-public-key1-path", paths[1])];
    assert_eq!(verify("adobe-io-events", "client_id1", &keys, &swapped, ADOBE_BODY), Err(Unverified::Mismatch));
}
