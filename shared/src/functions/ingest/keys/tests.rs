//! Tests of fetches over real TLS from a test endpoint. The tests control the clock.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::future::BoxFuture;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_RSA_SHA256, SigningKey};
use tokio::sync::Notify;

use super::*;
use crate::{
    providers::Headers,
    sources::Sources,
    time::{Clock, SeededRandom},
    tls::endpoint::{Endpoint, EndpointReply},
};

/// The current time in these tests: 2026-01-05T14:01:40Z, in seconds.
const NOW: u64 = 1_767_621_700;
const DAY: u64 = 86_400;
const BODY: &[u8] = br#"{"id":"WH-1","event_type":"CHECKOUT.ORDER.APPROVED","recipient_client_id":"ours"}"#;

#[derive(Clone, Default)]
struct Stopped {
    passed: Arc<Mutex<Duration>>,
    over: Arc<Notify>,
}

impl Stopped {
    fn pass(&self, time: Duration) {
        *self.passed.lock().unwrap() += time;
    }
}

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(NOW) + *self.passed.lock().unwrap()
    }

    fn monotonic(&self) -> Duration {
        // A large offset, so that earlier monotonic times exist.
        *self.passed.lock().unwrap() + Duration::from_secs(1_000_000)
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        let over = self.over.clone();
        Box::pin(async move { over.notified().await })
    }
}

fn private() -> KeyPair {
    let pem = include_str!("../../../../../events/keys/private.pem");
    KeyPair::from_pkcs8_pem_and_sign_algo(pem, &PKCS_RSA_SHA256).unwrap()
}

fn public() -> &'static [u8] {
    include_bytes!("../../../../../events/keys/public.pem")
}

fn signature(message: &[u8]) -> String {
    STANDARD.encode(private().sign(message).unwrap())
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Returns a certificate of the development key for `name`. The parameters `from` and `until` count days
/// from 2026-01-05.
fn certificate(issuer: &CertifiedIssuer<'static, KeyPair>, name: &str, from: i32, until: i32) -> Vec<u8> {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    let start = rcgen::date_time_ymd(2026, 1, 5);
    let day = |days: i32| {
        let away = Duration::from_secs(DAY) * days.unsigned_abs();
        if days < 0 { start - away } else { start + away }
    };
    (params.not_before, params.not_after) = (day(from), day(until));
    params.signed_by(&private(), issuer).unwrap().pem().into_bytes()
}

const LIVE: &str = "messageverificationcerts.paypal.com";

struct KeysWorld {
    endpoint: Endpoint,
    keys: PublishedKeys,
    clock: Stopped,
}

fn server() -> rcgen::CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap()
}

impl KeysWorld {
    async fn new(believed: &[&[u8]], reply: impl Fn(usize) -> EndpointReply + Send + Sync + 'static) -> Self {
        let server = server();
        let endpoint = Endpoint::start_tls(&server, reply).await;
        let mut roots = Roots::in_pem(server.cert.pem().as_bytes()).unwrap();
        believed.iter().for_each(|pem| roots.add(pem).unwrap());
        let clock = Stopped::default();
        let env = Env::new(clock.clone(), SeededRandom::new(1));
        let keys = PublishedKeys::standing_in(env, endpoint.url(), roots);
        Self { endpoint, keys, clock }
    }

    async fn verify(&self, source: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Verified, Unverified> {
        let document = format!("[sources.shop]\nhandler = 'h'\n{source}");
        let sources = Sources::parse(&document).unwrap();
        let headers: Headers = headers.iter().copied().collect();
        let webhook = Request { headers: &headers, body };
        self.keys.verify(sources.get("shop").unwrap(), webhook, self.clock.now()).await
    }
}

const PAYPAL: &str = "provider = 'paypal'\nwebhook_id = ['former', 'ours']";
const CERTIFICATE: &str = "https://api.paypal.com/v1/notifications/certs/CERT-1";

fn transmission(id: &str, body: &[u8]) -> [(&'static str, String); 5] {
    // The CRC-32 as computed by zlib.
    let crc = match body {
        BODY => 2_259_714_119_u32,
        other => panic!("what is the CRC of {other:?}?"),
    };
    let signed = format!("t-1|2026-01-05T14:01:40Z|{id}|{crc}");
    [
        ("PayPal-Transmission-Id", "t-1".to_owned()),
        ("PayPal-Transmission-Time", "2026-01-05T14:01:40Z".to_owned()),
        ("PayPal-Transmission-Sig", signature(signed.as_bytes())),
        ("PayPal-Cert-Url", CERTIFICATE.to_owned()),
        ("PayPal-Auth-Algo", "SHA256withRSA".to_owned()),
    ]
}

fn borrowed<'a, const N: usize>(headers: &'a [(&'static str, String); N]) -> [(&'static str, &'a str); N] {
    std::array::from_fn(|index| (headers[index].0, headers[index].1.as_str()))
}

#[tokio::test]
async fn paypal_certificate_is_fetched_once() {
    let issuer = authority("an authority");
    let pem = certificate(&issuer, LIVE, -1, 30);
    let mut world = KeysWorld::new(&[issuer.pem().as_bytes()], move |_| EndpointReply::of(&pem)).await;
    for id in ["ours", "former", "ours"] {
        let headers = transmission(id, BODY);
        assert_eq!(world.verify(PAYPAL, &borrowed(&headers), BODY).await, Ok(Verified::Delivery), "{id}");
    }
    assert_eq!(world.endpoint.posted().await.line, "GET /v1/notifications/certs/CERT-1 HTTP/1.1");
    assert_eq!(world.endpoint.posts(), 1);
}

#[tokio::test]
async fn source_tolerance_does_not_change_certificate_validity() {
    let issuer = authority("an authority");
    for (until, expected) in [(30, Ok(Verified::Delivery)), (-1, Err(Unverified::Certificate(Uncertified::Expired)))] {
        let pem = certificate(&issuer, LIVE, -30, until);
        let world = KeysWorld::new(&[issuer.pem().as_bytes()], move |_| EndpointReply::of(&pem)).await;
        for tolerance in ["10s", "5m", "15m", "10d"] {
            let source = format!("{PAYPAL}\ntolerance = '{tolerance}'");
            let headers = transmission("ours", BODY);
            assert_eq!(world.verify(&source, &borrowed(&headers), BODY).await, expected, "{tolerance}");
        }
    }
}

#[tokio::test]
async fn paypal_webhook_with_any_changed_part_is_refused() {
    let issuer = authority("an authority");
    let pem = certificate(&issuer, LIVE, -1, 30);
    let world = KeysWorld::new(&[issuer.pem().as_bytes()], move |_| EndpointReply::of(&pem)).await;
    let good = transmission("ours", BODY);
    let mut changed = BODY.to_vec();
    changed[10] ^= 1;
    assert_eq!(world.verify(PAYPAL, &borrowed(&good), &changed).await, Err(Unverified::Mismatch));
    let other = transmission("another's", BODY);
    assert_eq!(world.verify(PAYPAL, &borrowed(&other), BODY).await, Err(Unverified::Mismatch));
    assert_eq!(world.verify("provider = 'paypal'", &borrowed(&good), BODY).await, Err(Unverified::Mismatch));
    for (index, value, refusal) in [
        (0, "t-2".to_owned(), Unverified::Mismatch),
        (1, "2026-01-05T14:01:41Z".to_owned(), Unverified::Mismatch),
        (2, signature(b"another text"), Unverified::Mismatch),
        (2, STANDARD.encode([0; 256]), Unverified::Mismatch),
        (2, STANDARD.encode([0; 7]), Unverified::Mismatch),
        (2, "%".to_owned(), Unverified::Malformed("paypal-transmission-sig".into())),
        (2, String::new(), Unverified::Malformed("paypal-transmission-sig".into())),
        (3, CERTIFICATE.replace("api.paypal", "paypal.example"), Unverified::Malformed("paypal-cert-url".into())),
        (3, CERTIFICATE.replace("https", "http"), Unverified::Malformed("paypal-cert-url".into())),
        (4, "SHA1withRSA".to_owned(), Unverified::Malformed("paypal-auth-algo".into())),
    ] {
        let mut headers = good.clone();
        headers[index].1 = value;
        assert_eq!(world.verify(PAYPAL, &borrowed(&headers), BODY).await, Err(refusal), "{:?}", headers[index]);
    }
    for index in 0..4 {
        let headers: Vec<_> = borrowed(&good).into_iter().filter(|(name, _)| *name != good[index].0).collect();
        let missing = Err(Unverified::Missing(good[index].0.to_ascii_lowercase()));
        assert_eq!(world.verify(PAYPAL, &headers, BODY).await, missing);
    }
    assert_eq!(world.endpoint.posts(), 1, "none of them led elsewhere");
}

/// Promise: PayPal's certificate must be PayPal's, valid and of a known authority.
#[tokio::test]
async fn paypal_certificate_needs_right_name_dates_and_trusted_issuer() {
    let known = authority("a known one");
    let unknown = authority("an unknown one");
    let headers = transmission("ours", BODY);
    let other_key = {
        let mut params = CertificateParams::new([LIVE.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 2, 1);
        params.signed_by(&KeyPair::generate().unwrap(), &known).unwrap().pem().into_bytes()
    };
    let refused = |refusal: Unverified| Err(refusal.to_string());
    let unusable = |reason: &str| Err(format!("the sender's key at {CERTIFICATE} cannot be used: {reason}"));
    let no_certificate = || unusable("it is not a certificate with an RSA key");
    for (pem, expected) in [
        (certificate(&known, LIVE, -1, 30), Ok(Verified::Delivery)),
        (certificate(&known, "messageverificationcerts.sandbox.paypal.com", -1, 30), Ok(Verified::Delivery)),
        (certificate(&known, LIVE, -30, -1), refused(Unverified::Certificate(Uncertified::Expired))),
        (certificate(&known, LIVE, 1, 30), refused(Unverified::Certificate(Uncertified::Expired))),
        (certificate(&known, "www.paypal.com", -1, 30), refused(Unverified::Certificate(Uncertified::Name))),
        (certificate(&unknown, LIVE, -1, 30), unusable("no trusted authority issued it")),
        (other_key, no_certificate()),
        (public().to_vec(), no_certificate()),
        (b"<html>".to_vec(), no_certificate()),
        (Vec::new(), no_certificate()),
    ] {
        let shown = String::from_utf8_lossy(&pem).into_owned();
        let world = KeysWorld::new(&[known.pem().as_bytes()], move |_| EndpointReply::of(&pem)).await;
        let verified = world.verify(PAYPAL, &borrowed(&headers), BODY).await.map_err(|refusal| refusal.to_string());
        assert_eq!(verified, expected, "{shown}");
    }
}

const ADOBE: &str = "provider = 'adobe-io-events'\nclient_id = 'ours'";
const ADOBE_HEADERS: [&str; 4] = [
    "X-Adobe-Digital-Signature-1",
    "X-Adobe-Public-Key1-Path",
    "X-Adobe-Digital-Signature-2",
    "X-Adobe-Public-Key2-Path",
];

async fn adobe(world: &KeysWorld, source: &str, values: [&str; 4], body: &[u8]) -> Result<Verified, Unverified> {
    let headers: Vec<_> = ADOBE_HEADERS.into_iter().zip(values).filter(|(_, value)| !value.is_empty()).collect();
    world.verify(source, &headers, body).await
}

/// Promise: either of Adobe's signatures suffices, for our client only.
#[tokio::test]
async fn one_valid_adobe_signature_of_two_suffices() {
    let good = signature(BODY);
    let bad = signature(b"another body");
    let one = "/prod/keys/pub-key-1.pem";
    let two = "/prod/keys/pub-key-2.pem";
    for (values, expected, fetches) in [
        ([good.as_str(), one, bad.as_str(), two], Ok(Verified::Delivery), 1),
        ([&bad, one, &good, two], Ok(Verified::Delivery), 2),
        (["", "", &good, two], Ok(Verified::Delivery), 1),
        (["%", one, &good, two], Ok(Verified::Delivery), 1),
        ([&good, "https://example.com/a.pem", &good, two], Ok(Verified::Delivery), 1),
        ([&bad, one, &bad, two], Err(Unverified::Mismatch), 2),
        ([&bad, one, "", ""], Err(Unverified::Mismatch), 1),
        (["%", one, "", ""], Err(Unverified::Malformed("x-adobe-digital-signature-1".into())), 0),
        ([&good, "", "", ""], Err(Unverified::Malformed("x-adobe-public-key1-path".into())), 0),
        ([&good, "@example.com/a.pem", "", ""], Err(Unverified::Malformed("x-adobe-public-key1-path".into())), 0),
        (["", "", "", ""], Err(Unverified::Missing("x-adobe-digital-signature-1".into())), 0),
    ] {
        let world = KeysWorld::new(&[], |_| EndpointReply::of(public())).await;
        assert_eq!(adobe(&world, ADOBE, values, BODY).await, expected, "{values:?}");
        assert_eq!(world.endpoint.posts(), fetches, "{values:?}");
    }
}

#[tokio::test]
async fn adobe_signature_for_another_client_is_refused() {
    let world = KeysWorld::new(&[], |_| EndpointReply::of(public())).await;
    let path = "/prod/keys/pub-key-1.pem";
    for body in [&br#"{"recipient_client_id":"theirs"}"#[..], b"{}", b"", br#"{"recipient_client_id":"our"}"#] {
        let refused = adobe(&world, ADOBE, [&signature(body), path, "", ""], body).await;
        assert_eq!(refused, Err(Unverified::Mismatch), "{body:?}");
    }
    let refused = adobe(&world, "provider = 'adobe-io-events'", [&signature(BODY), path, "", ""], BODY).await;
    assert_eq!(refused, Err(Unverified::Mismatch), "no client id is configured");
    assert_eq!(world.endpoint.posts(), 0, "no key would help");
    let event = br#"{"recipientclientid":"ours"}"#;
    assert_eq!(adobe(&world, ADOBE, [&signature(event), path, "", ""], event).await, Ok(Verified::Delivery));
}

#[tokio::test]
async fn invalid_key_leaves_adobe_webhook_undecided() {
    let world = KeysWorld::new(&[], |_| EndpointReply::of(b"<html>")).await;
    let refused = adobe(&world, ADOBE, [&signature(BODY), "/prod/keys/a.pem", "", ""], BODY).await;
    assert!(matches!(refused, Err(Unverified::Unusable(..))), "{refused:?}");
}

const SHIPSTATION: &str = "provider = 'shipstation-v2'";

fn set(id: &str) -> Vec<u8> {
    let key = key_in_certificate(&certificate(&authority("any"), LIVE, 0, 1)).unwrap();
    let (modulus, exponent) = key.numbers();
    let letters =
        |bytes: &[u8]| STANDARD.encode(bytes).replace('+', "-").replace('/', "_").trim_end_matches('=').to_owned();
    let keys = serde_json::json!([
        { "kty": "RSA", "kid": "former", "n": letters(&[0xff; 256]), "e": "AQAB" },
        { "kty": "RSA", "kid": id, "alg": "RS256", "n": letters(modulus), "e": letters(exponent) },
    ]);
    serde_json::json!({ "keys": keys }).to_string().into_bytes()
}

fn shipstation(id: &str, time: &str, body: &[u8]) -> [(&'static str, String); 3] {
    let signed = [time.as_bytes(), b".", body].concat();
    [
        ("X-ShipEngine-RSA-SHA256-Key-Id", id.to_owned()),
        ("X-ShipEngine-Timestamp", time.to_owned()),
        ("X-ShipEngine-RSA-SHA256-Signature", signature(&signed)),
    ]
}

/// Promise: ShipStation's key set is followed; keys may come from files.
#[tokio::test]
async fn shipstation_key_is_selected_by_key_id() {
    let mut world = KeysWorld::new(&[], |_| EndpointReply::of(&set("k-1"))).await;
    let good = shipstation("k-1", "2026-01-05T14:01:00Z", BODY);
    assert_eq!(world.verify(SHIPSTATION, &borrowed(&good), BODY).await, Ok(Verified::Delivery));
    assert_eq!(world.endpoint.posted().await.line, "GET /jwks HTTP/1.1");
    assert_eq!(world.verify(SHIPSTATION, &borrowed(&good), b"").await, Err(Unverified::Mismatch));
    for (index, value, refusal) in [
        (0, "former", Unverified::Mismatch),
        (1, "2026-01-05T14:01:01Z", Unverified::Mismatch),
        (1, "today", Unverified::Malformed("x-shipengine-timestamp".into())),
        (2, "%", Unverified::Malformed("x-shipengine-rsa-sha256-signature".into())),
        (2, "AAAA", Unverified::Mismatch),
    ] {
        let mut headers = good.clone();
        headers[index].1 = value.to_owned();
        assert_eq!(world.verify(SHIPSTATION, &borrowed(&headers), BODY).await, Err(refusal), "{value}");
    }
    for time in ["2026-01-05T13:56:39Z", "2026-01-05T14:06:41Z"] {
        let stale = world.verify(SHIPSTATION, &borrowed(&shipstation("k-1", time, BODY)), BODY).await;
        assert!(matches!(stale, Err(Unverified::Stale(_))), "{time}: {stale:?}");
        let patient = format!("{SHIPSTATION}\ntolerance = '302s'");
        let taken = world.verify(&patient, &borrowed(&shipstation("k-1", time, BODY)), BODY).await;
        assert_eq!(taken, Ok(Verified::Delivery), "{time}");
    }
    assert_eq!(world.endpoint.posts(), 1);
}

#[tokio::test]
async fn unknown_key_id_causes_one_key_set_fetch_per_interval() {
    let world = KeysWorld::new(&[], |number| EndpointReply::of(&set(if number == 0 { "k-1" } else { "k-2" }))).await;
    let verify =
        async |id| world.verify(SHIPSTATION, &borrowed(&shipstation(id, "2026-01-05T14:01:00Z", BODY)), BODY).await;
    let outdated = |refused| matches!(refused, Err(Unverified::Outdated(_)));
    assert_eq!(verify("k-1").await, Ok(Verified::Delivery));
    assert!(outdated(verify("k-2").await), "it was fetched just now");
    world.clock.pass(SPACING);
    assert_eq!(verify("k-2").await, Ok(Verified::Delivery));
    // Unknown key ids cause one fetch per SPACING, not one per request.
    for _ in 0..3 {
        assert!(outdated(verify("k-3").await));
    }
    assert_eq!(world.endpoint.posts(), 2);
}

async fn one(world: &KeysWorld) -> Result<Verified, Unverified> {
    world.verify(SHIPSTATION, &borrowed(&shipstation("k-1", "2026-01-05T14:01:00Z", BODY)), BODY).await
}

#[tokio::test]
async fn failed_key_fetch_is_not_repeated_immediately() {
    type Answer = fn() -> EndpointReply;
    let refused: [(&str, Answer); 7] = [
        ("closed", || EndpointReply::Raw(Vec::new())),
        ("not found", || EndpointReply::status(404)),
        ("elsewhere", || EndpointReply::status(302).with("Location", "https://127.0.0.1/jwks")),
        ("unwell", || EndpointReply::status(500).body(30)),
        ("too large", || EndpointReply::of(&vec![b' '; LARGEST + 1])),
        ("never all of it", || EndpointReply::Raw(b"HTTP/1.1 200 \r\nContent-Length: 100\r\n\r\n{".to_vec())),
        ("no HTTP", || EndpointReply::Raw(b"220 mail\r\n".to_vec())),
    ];
    for (name, answer) in refused {
        let world =
            KeysWorld::new(&[], move |number| if number == 0 { answer() } else { EndpointReply::of(&set("k-1")) })
                .await;
        for _ in 0..3 {
            let unfetched = one(&world).await;
            assert!(matches!(unfetched, Err(Unverified::Unfetched(_))), "{name}: {unfetched:?}");
        }
        assert_eq!(world.endpoint.posts(), 1, "{name}");
        world.clock.pass(SPACING);
        assert_eq!(one(&world).await, Ok(Verified::Delivery), "{name}");
    }
    let whole =
        KeysWorld::new(&[], |_| EndpointReply::of(&[set("k-1"), vec![b' '; LARGEST - set("k-1").len()]].concat()))
            .await;
    assert_eq!(one(&whole).await, Ok(Verified::Delivery), "it is just small enough");
}

#[tokio::test]
async fn key_fetch_from_silent_host_times_out() {
    let mut world = KeysWorld::new(&[], |_| EndpointReply::Never).await;
    let keys = world.keys.clone();
    let clock = world.clock.clone();
    let sources = Sources::parse(&format!("[sources.shop]\nhandler = 'h'\n{SHIPSTATION}")).unwrap();
    let asked = tokio::spawn(async move {
        let headers: Headers = shipstation("k-1", "2026-01-05T14:01:00Z", BODY).into_iter().collect();
        keys.verify(sources.get("shop").unwrap(), Request { headers: &headers, body: BODY }, clock.now()).await
    });
    world.endpoint.posted().await;
    assert!(!asked.is_finished());
    world.clock.over.notify_one();
    assert!(matches!(asked.await.unwrap(), Err(Unverified::Unfetched(_))));
    world.endpoint.hung_up().await;
}

#[tokio::test]
async fn host_with_untrusted_certificate_gets_no_request() {
    let endpoint = Endpoint::start_tls(&server(), |_| EndpointReply::of(&set("k-1"))).await;
    let clock = Stopped::default();
    let env = Env::new(clock.clone(), SeededRandom::new(1));
    let mut reasons = Vec::new();
    for origin in [endpoint.url(), endpoint.url().replace("https", "http")] {
        let keys = PublishedKeys::standing_in(env.clone(), origin, Roots::mozilla());
        let world = KeysWorld { endpoint: Endpoint::start(|_| EndpointReply::Never).await, keys, clock: clock.clone() };
        let Err(Unverified::Unfetched(at)) = one(&world).await else { panic!("it is believed") };
        // An immediate second try would only be refused as too soon.
        world.clock.pass(SPACING);
        let refused = world.keys.fetch(&at, PATIENCE).await.unwrap_err().to_string();
        assert!(!refused.is_empty() && !refused.contains("in time"), "{refused}");
        reasons.push(refused);
    }
    assert_ne!(reasons[0], reasons[1], "one is not believed, the other not even asked");
    assert_eq!(endpoint.posts(), 0);
}

#[tokio::test]
async fn key_is_refetched_hourly_and_usable_one_day() {
    let world =
        KeysWorld::new(
            &[],
            |number| if number % 4 == 0 { EndpointReply::of(&set("k-1")) } else { EndpointReply::status(500) },
        )
        .await;
    let verify = async |after: Duration| {
        world.clock.pass(after);
        let time = world.clock.now().to_string();
        world.verify(SHIPSTATION, &borrowed(&shipstation("k-1", &time, BODY)), BODY).await
    };
    assert_eq!(verify(Duration::ZERO).await, Ok(Verified::Delivery));
    assert_eq!(verify(REFRESH - SPACING).await, Ok(Verified::Delivery));
    assert_eq!(world.endpoint.posts(), 1);
    assert_eq!(verify(SPACING).await, Ok(Verified::Delivery), "the copy, as no newer one is to be had");
    assert_eq!(world.endpoint.posts(), 2);
    assert_eq!(verify(Duration::from_secs(1)).await, Ok(Verified::Delivery));
    assert_eq!(world.endpoint.posts(), 2);
    assert_eq!(verify(SPACING).await, Ok(Verified::Delivery));
    assert_eq!(world.endpoint.posts(), 3, "asked again, as what is new must not wait for a day");
    let refused = verify(STALE - REFRESH).await;
    assert!(matches!(refused, Err(Unverified::Unfetched(_))), "{refused:?}");
    assert_eq!(verify(SPACING).await, Ok(Verified::Delivery));
    assert_eq!(world.endpoint.posts(), 5);
}

#[tokio::test]
async fn failed_key_fetches_evict_no_cached_key() {
    let world = KeysWorld::new(
        &[],
        |number| if number == 0 { EndpointReply::of(public()) } else { EndpointReply::status(404) },
    )
    .await;
    let verify = async |path: &str| adobe(&world, ADOBE, [&signature(BODY), path, "", ""], BODY).await;
    assert_eq!(verify("/prod/keys/own.pem").await, Ok(Verified::Delivery));
    for number in 0..2 * MOST {
        let refused = verify(&format!("/prod/keys/{number}.pem")).await;
        assert!(matches!(refused, Err(Unverified::Unfetched(_))), "{refused:?}");
        assert!(world.keys.0.lock().len() <= MOST);
    }
    assert_eq!(verify("/prod/keys/own.pem").await, Ok(Verified::Delivery));
    assert_eq!(world.endpoint.posts(), 1 + 2 * MOST);
}
