//! `verify` with keys and certificates from files.

use super::*;

/// Writes a file with the public development key. Its private key made the signatures below:
/// `openssl dgst -sha256 -sign events/keys/private.pem`.
fn key(option: &str, name: &str) -> String {
    format!("{option}={}", crate::running::event(&format!("keys/{name}")))
}

const PAYPAL: &str = r#"{"id":"WH-1","event_type":"CHECKOUT.ORDER.APPROVED","resource":{"id":"O-1","update_time":"2026-01-05T14:00:00Z"}}"#;

/// The signature of [`PAYPAL`] by PayPal's webhook simulator, which signs for the id `WEBHOOK_ID`.
const SIMULATED: &str = "Mg5UGOmnTb37cWLCnuVDjClsV0yLZj7/ZMvdYkDQdynVqRfavw4BM18sTmvBf4WTMI27VyfZ6EGqCjwCpeEMyI2Pu2szZQxgLerH/TpzectcDf7Ogi2BlIBUtWoNj8NYQDK0HeFdYI7Jpj4UF6Hyomz1zJNTsrXYjwHqOom0IgN8Z8Xo5uJPLopkUKi/3NdoBifmUlQCD5tsVfG062diFFryqsfq9juwIejT3DYqVoyJE4XMCOrJZ2ii6/N7Pj+LVCL1KKawaGbMftuA+6YRoKPjMRD5sFOeycJu+DJBsmNbG09zpfNm9mID9d2cZtB7KxvJ6Exf2Ba3zY2B80xq3A==";

fn paypal() -> Vec<String> {
    let signature = "gy9SA+f2TSJOg8ztsOhVZlxyLZc5Y4Q6Qb5gc7ZrKlqJ5WLGYV0XhO3Mah/5n+YvkJTsRvMDruvWbOdJjxqsZPb4toVFQ+0HezM2gGFtl6dWYyK5r6OnRyqog+H1hOl4rmK58XwC4cIHua2tAGPnaO/Qr9RuNVer5hgJfolN3L22av13VfOzpJ6XjMLSFQU8EKVCgiFJNtrzPQfdAs6ygkkuw2tXTC73JciUpfAU+y1re6WLr8soU+ZYDOOvHkFIKOlNozRBs5x2sPTVH9RFKl3jRaGdK0fHaZhNZ76SBGgyQf7/jTFyNKs9YVq8obyhll/AizUDVm2L6dIXeD1I6g==";
    vec![
        "PAYPAL-TRANSMISSION-ID: t-1".into(),
        "PAYPAL-TRANSMISSION-TIME: 2026-01-05T14:00:01Z".into(),
        format!("PAYPAL-TRANSMISSION-SIG: {signature}"),
        "PAYPAL-CERT-URL: https://api.sandbox.paypal.com/v1/notifications/certs/CERT-1".into(),
        "PAYPAL-AUTH-ALGO: SHA256withRSA".into(),
    ]
}

#[test]
fn certificate_file_replaces_paypals_fetched_certificate() {
    let file = key("cert_file", "certificate.pem");
    let verified = |id: &str, headers: &[String], body: &str| {
        verified("paypal", "ignored", headers, &["--option", id, "--option", &file], body.as_bytes())
    };
    let (said, code) = verified("webhook_id=WID", &paypal(), PAYPAL);
    let expected = json!({
        "valid": true, "topic": "CHECKOUT.ORDER.APPROVED", "delivery_id": "WH-1", "entity": "order/O-1",
        "event_time": 1_767_621_600_000_u64, "signed": ["topic", "id", "time", "body"],
    });
    assert_eq!((said, code), (expected, Some(0)));
    let other = reason(verified("webhook_id=OTHER", &paypal(), PAYPAL));
    assert!(other.contains("for another recipient") && other.contains("for the webhook_id OTHER"), "{other}");
    assert!(reason(verified("webhook_id=WID", &paypal(), &format!("{PAYPAL}\n"))).contains("ends with a newline"));
    let mut elsewhere = paypal();
    elsewhere[3] = elsewhere[3].replace("api.sandbox.paypal.com", "api.example.com");
    assert_eq!(reason(verified("webhook_id=WID", &elsewhere, PAYPAL)), "header paypal-cert-url cannot be read");
    let arguments = ["verify", "--provider", "paypal", "--option", &file, "-H", &paypal()[0]];
    let without: Vec<&str> = arguments.into_iter().collect();
    assert!(printed(&with_input(&without, b"")).contains("paypal-transmission-time is missing"));
}

#[test]
fn public_key_file_replaces_adobes_fetched_key() {
    let body = r#"{"id":"e-1","type":"com.adobe.commerce.observer.sales_order_save_commit_after","time":"2026-01-05T14:00:00Z","recipient_client_id":"CID","data":{"value":{"entity_id":"7"}}}"#;
    let signature = "rWXP6LygADgY9sYlRR3hreqzMS4cAUqwt0W+07EfE7IvRdO28XjGbT0XrEWvnz3j6PBc+/J3cMAqrCGr2uFk0N/CITPNomAKfvkOu7r9WhvXkvutVbm22TXPeTunme9AZGwJfcNxQqRE3hl3PVWwp2CVSimkPIDkcOEEF+MV46lUAHNb8hNTUJJ1Jdeu9lldgW1BR3LWKenvgUKlk8IPRTfAJBYRmbxm/7NsTfnAIdNEEPpTGKKc0HjxblWJ/i08MJCkFWsiTngWAIEwusPXrOG4N/sDhiQkyFHo33BFp3dyY5mvF+HmTZbJ6jE+g3Cm1IZdnmZbvl/2rxyk1a3pyA==";
    let headers = [
        "x-adobe-digital-signature-1: AAAA".to_owned(),
        "x-adobe-public-key1-path: /prod/keys/pub-key-1.pem".to_owned(),
        format!("x-adobe-digital-signature-2: {signature}"),
        "x-adobe-public-key2-path: /prod/keys/pub-key-2.pem".to_owned(),
    ];
    let file = key("public_key_file", "public.pem");
    let said =
        |id| verified("adobe-io-events", "ignored", &headers, &["--option", id, "--option", &file], body.as_bytes());
    let valid = said("client_id=CID");
    assert!(is_valid(&valid), "{valid:?}");
    assert_eq!((&valid.0["entity"], &valid.0["signed"]), (&json!("order/7"), &json!(["topic", "id", "time", "body"])));
    assert!(reason(said("client_id=OTHER")).contains("for the client_id OTHER"));
    assert!(reason(said("tolerance=1")).contains("no --option client_id=…"));
    let other = key("public_key_file", "certificate.pem");
    let refused = ["--option", "client_id=CID", "--option", &other];
    let refused = verified("adobe-io-events", "ignored", &headers, &refused, body.as_bytes());
    assert_eq!(reason(refused), "the given public_key_file cannot be used: it is not a public key in PEM");
}

#[test]
fn key_set_file_replaces_shipstations_fetched_keys() {
    let body = r#"{"resource_type":"API_TRACK","data":{"tracking_number":"1Z1"}}"#;
    let signature = "lv/EM8/1x5GCx5aP0+65Op35sT72FUyKAGG2lLhzNqFydgkfovvoHO1AZSmEcV1IyNvRuK9sEl2j2/CmABiN6UM6T+dfAXAvfE19TKirrEH931bySzTQgPmT9iVkxWUp3lS30QuNVBBAOzklYsSm/rHVm4fvRyk8aRw+m8xUD41KHehB8Z8DxrIFQBtRfY1VXytiySwx+8i6sFh1x46gFIA9P2xtCwmi7MmSTUMB7q9r5wPzINYJG9acfmQczj9Ph+zINeQqqad3Dg2DNyfdJHHW3G0FPknrMSUa+5P/TFibtR0pVceMpmz1Ktznu4AI4FNJ2LqyF5ZNBZLOCXxKLA==";
    let headers = |id: &str| {
        [
            format!("x-shipengine-rsa-sha256-key-id: {id}"),
            "x-shipengine-timestamp: 2026-01-05T14:01:00Z".to_owned(),
            format!("x-shipengine-rsa-sha256-signature: {signature}"),
        ]
    };
    let file = key("jwks_file", "jwks.json");
    let said = |id, now: &str| {
        let options = ["--option", &file, "--now", now];
        verified("shipstation-v2", "ignored", &headers(id), &options, body.as_bytes())
    };
    let valid = said("development", AT);
    assert!(is_valid(&valid), "{valid:?}");
    assert_eq!(
        (&valid.0["entity"], &valid.0["signed"]),
        (&json!("tracking/1Z1"), &json!(["topic", "id", "time", "body"]))
    );
    assert!(reason(said("development", "1767622000")).contains("its time, 2026-01-05T14:01:00.000Z, is 340 s"));
    let unknown = reason(said("other", AT));
    assert_eq!(unknown, "the given jwks_file does not contain the key that the webhook names");
}

#[test]
fn missing_key_file_leaves_verify_undecided() {
    let arguments =
        ["verify", "--provider", "paypal", "--option", "webhook_id=1", "--option", "cert_file=no-such-file"];
    let done = with_input(&arguments, b"");
    assert_eq!(done.status.code(), Some(2));
    assert!(complained(&done).contains("cert_file: no-such-file cannot be read"), "{done:?}");
}

#[test]
fn verify_names_paypals_simulator() {
    let file = key("cert_file", "certificate.pem");
    let mut headers = paypal();
    headers[2] = format!("PAYPAL-TRANSMISSION-SIG: {SIMULATED}");
    let options = ["--option", "webhook_id=WID", "--option", &file];
    let said = reason(verified("paypal", "ignored", &headers, &options, PAYPAL.as_bytes()));
    assert!(said.starts_with("PayPal's webhook simulator signed it") && said.contains("WEBHOOK_ID"), "{said}");
}
