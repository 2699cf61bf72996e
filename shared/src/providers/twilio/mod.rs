//! Twilio sends `X-Twilio-Signature`, a base64 HMAC-SHA1 of the URL that it calls and the fields of the form, sorted by
//! name. If the body is not a form, the URL's parameter `bodySHA256` has the body's hash.
//!
//! The source's option `url` is that URL without its query. The query is the request's own; the signature covers it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sha2::{Digest, Sha256};

use super::{
    Encoding, HashName, Headers, Proof, Provider, Request, Secret, Unverified, describe,
    facts::{Facts, IdPart, Payload, Reads, ShopOrder, SignedParts},
    rule::{EntityKind, Example, Rule, RuleLine},
    signature::{self, HmacKey},
    token::unescaped,
};
use crate::time::Timestamp;

/// Twilio's rules for one URL. With an empty URL, no webhook is accepted.
#[derive(Debug)]
pub(super) struct Twilio {
    pub(super) url: String,
}

pub(super) static WITHOUT_URL: Twilio = Twilio { url: String::new() };

const SIGNATURE: &str = "x-twilio-signature";
const BODY_HASH: &str = "query:bodySHA256";

const LINES: &[RuleLine] = &[
    RuleLine {
        families: &[],
        places: &["{form:MessageSid}", "{form:SmsMessageSid}", "{form:SmsSid}"],
        kind: EntityKind::Named("message"),
    },
    RuleLine { families: &[], places: &["{form:CallSid}"], kind: EntityKind::Named("call") },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new("AccountSid=AC1&MessageSid=SM7&MessageStatus=sent&SmsSid=SM7", "message/SM7"),
        Example::new("AccountSid=AC1&MessageSid=SM7&MessageStatus=delivered&SmsSid=SM7", "message/SM7"),
        Example::new("AccountSid=AC1&CallSid=CA7&CallStatus=completed", "call/CA7"),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["i-twilio-idempotency-token"])],
    topic: &["{form:MessageStatus}", "{form:SmsStatus}", "{form:CallStatus}"],
    account: &["{form:AccountSid}"],
    lines: LINES,
    horizon: Some(Duration::ZERO),
    answer: Some("<Response/>"),
    shop_order: ShopOrder::Copied { to: "the callback's URL, as `?order=ID`", fields: &["query:order"] },
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the account's primary auth token: *Console → Account Info*",
    signing: None,
    signature: "`x-twilio-signature`: base64 HMAC-SHA1 of the URL that is called and the form's fields, sorted by name",
    signed: SignedParts { url: true, ..SignedParts::BODY },
    payload: Payload::Snapshot,
    resolution: None,
    deadline: Some(Duration::from_secs(15)),
    retries: None,
    switches_off: "not documented",
    checks: "none. The answer is the empty TwiML `<Response/>`, which does nothing",
    care: "The source needs `url`: what you give Twilio, without the query. Let Twilio call it by POST: a GET gets 405, and \
           is not repeated. Twilio repeats only failed connections, within 15 s. Events have no time, and `sent` may come \
           after `delivered`. Twilio knows no order: write it into the callback's URL, `?order=7`, and use \
           `entity = \"{source}/order/{query:order}\"`. The idempotency token is from a secondary source.",
    sources: &[
        "https://www.twilio.com/docs/usage/webhooks/webhooks-security",
        "https://www.twilio.com/docs/usage/webhooks/webhooks-connection-overrides",
        "https://www.twilio.com/docs/messaging/guides/track-outbound-message-status",
        "https://github.com/twilio/twilio-python/blob/main/twilio/request_validator.py",
    ],
};

impl Twilio {
    fn key(&self, secret: &Secret) -> Option<HmacKey> {
        HmacKey::of(secret).filter(|_| !self.url.is_empty())
    }

    /// Returns the URLs that Twilio may sign: without and with the port, or the scheme's, and without and with user and
    /// password.
    fn urls(&self, query: &str) -> [String; 4] {
        let base = self.url.split(['?', '#']).next().unwrap_or_default();
        let usual = if base.starts_with("https:") { ":443" } else { ":80" };
        let (scheme, rest) = base.split_once("://").unwrap_or(("", base));
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let (user, host) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let is_port = |at: &usize| host[at + 1..].bytes().all(|byte| byte.is_ascii_digit());
        let (host, port) = match host.rfind(':').filter(is_port) {
            Some(colon) => host.split_at(colon),
            None => (host, usual),
        };
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        let url = |(user, port)| format!("{scheme}://{user}{host}{port}{path}{query}");
        [("", ""), ("", port), (user, ""), (user, port)].map(url)
    }
}

/// Returns what is signed after the URL: each field's name and value, sorted and without duplicates. They stay bytes,
/// because texts would not tell invalid UTF-8 apart.
fn fields(body: &[u8]) -> Vec<u8> {
    let decoded =
        |text: &[u8]| unescaped(text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect::<Vec<_>>());
    let mut fields = BTreeMap::<_, BTreeSet<_>>::new();
    for field in body.split(|byte| *byte == b'&') {
        let mut parts = field.splitn(2, |byte| *byte == b'=').map(decoded);
        let name = parts.next().unwrap_or_default();
        let value = parts.next().unwrap_or_default();
        fields.entry(name).or_default().insert(value);
    }
    let values = fields.iter().flat_map(|(name, values)| values.iter().map(move |value| [&name[..], value].concat()));
    values.collect::<Vec<_>>().concat()
}

impl Provider for Twilio {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        signature::objection(secret, &["AC", "SK"], "it is the SID of an account or key; use the account's auth token")
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        let claimed = [Encoding::Base64.read(SIGNATURE, request.headers.required(SIGNATURE)?)?];
        let fields = match describe::parameter(request, BODY_HASH) {
            None => fields(request.body),
            Some(hash) if hash == Encoding::Hex.encode(&Sha256::digest(request.body)) => Vec::new(),
            Some(_) => return Err(Unverified::Mismatch),
        };
        let tried = self.urls(request.headers.query()).map(|url| {
            let keys = secrets.iter().filter_map(|secret| self.key(secret));
            signature::check(HashName::Sha1, keys, &[url.as_bytes(), &fields], &claimed)
        });
        if tried.iter().any(Result::is_ok) { Ok(Proof::DELIVERY) } else { Err(Unverified::Mismatch) }
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&READS)
    }

    fn sign(&self, headers: &Headers, body: &[u8], secret: &Secret, _now: Timestamp) -> Vec<(String, String)> {
        let [url, ..] = self.urls(headers.query());
        let signature = |key| HashName::Sha1.hmac(&key, &[url.as_bytes(), &fields(body)]);
        let signed = |key| (SIGNATURE.to_owned(), Encoding::Base64.encode(&signature(key)));
        self.key(secret).map(signed).into_iter().collect()
    }

    fn with_url(&self, url: Option<&str>) -> Result<Option<Box<dyn Provider>>, String> {
        const NEEDED: &str = "provider = \"twilio\" needs `url`: the URL that you give Twilio, without its query, because \
                              Twilio signs it";
        let url = url.filter(|url| url.contains("://")).ok_or(NEEDED)?;
        Ok(Some(Box::new(Self { url: url.to_owned() })))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow {
            name: "twilio",
            url: Some("https://hooks.example.com/webhooks/twilio"),
            header: Some(SIGNATURE.into()),
            ..PLAIN
        }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("twilio-message-delivered.json", "5f0c1f0e-6d1b-4a57-9a63-0c7f7c2b1e11", "delivered", "delivered", Some("AC0123456789abcdef0123456789abcdef"), None, "message/SM1234567890abcdef1234567890abcdef"),
    ];

    const HASH: &str = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620";

    fn verify(url: &str, query: &str, body: &str, signature: &str) -> Result<Verified, Unverified> {
        let headers = [(SIGNATURE, signature)].into_iter().collect::<Headers>().with_query(query);
        let twilio = Twilio { url: url.into() };
        let request = Request { headers: &headers, body: body.as_bytes() };
        twilio.verify(request, &[Secret::new("12345")]).map(|proof| proof.verified)
    }

    /// The requests are from the tests of Twilio's library for Python (`tests/unit/test_request_validator.py`).
    #[test]
    fn published_twilio_signatures_are_accepted() {
        let form = "CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309&To=%2B18005551212";
        let doubled = "Sid=CA123&SidAccount=AC123&Digits=5678&Digits=1234&Digits=1234";
        let json = r#"{"property": "value", "boolean": true}"#;
        let hashed = format!("foo=1&bar=2&bodySHA256={HASH}");
        for (query, body, signature) in [
            ("foo=1&bar=2", form, "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
            ("foo=1&bar=2", form, "kvajT1Ptam85bY51eRf/AJRuM3w="),
            ("foo=1&bar=2", doubled, "IK+Dwps556ElfBT0I3Rgjkr1wJU="),
            (&hashed, json, "a9nBmqA0ju/hNViExpshrM61xv4="),
        ] {
            for url in ["https://mycompany.com/myapp.php", "https://mycompany.com:443/myapp.php?old=1"] {
                assert_eq!(verify(url, query, body, signature), Ok(Verified::Delivery), "{url} {signature}");
                let changed = format!("{body}&To=other");
                assert_eq!(verify(url, query, &changed, signature), Err(Unverified::Mismatch), "{signature}");
                assert_eq!(verify(url, "foo=1&bar=3", body, signature), Err(Unverified::Mismatch), "{signature}");
            }
            for url in ["https://mycompany.com/myapp", "http://mycompany.com/myapp.php", ""] {
                assert_eq!(verify(url, query, body, signature), Err(Unverified::Mismatch), "{url}");
            }
        }
        let emptied = verify("https://mycompany.com/myapp.php", &hashed, "", "a9nBmqA0ju/hNViExpshrM61xv4=");
        assert_eq!(emptied, Err(Unverified::Mismatch), "the body's hash counts for any body");
    }

    #[test]
    fn url_with_user_or_port_is_verified_with_and_without_them() {
        let signed = |url: &str| {
            let key = HmacKey::of(&Secret::new("12345")).unwrap();
            Encoding::Base64.encode(&HashName::Sha1.hmac(&key, &[url.as_bytes(), b"a1"]))
        };
        let verify = |url: &str, signed_url: &str| verify(url, "", "a=1", &signed(signed_url));
        for (url, signed_url) in [
            ("https://h.example:8443/t", "https://h.example/t"),
            ("https://h.example:8443/t", "https://h.example:8443/t"),
            ("https://user:pass@h.example/t", "https://h.example/t"),
            ("https://user:pass@h.example/t", "https://user:pass@h.example/t"),
            ("https://user:pass@h.example:8443", "https://h.example:8443"),
            ("http://[::1]/t", "http://[::1]:80/t"),
        ] {
            assert_eq!(verify(url, signed_url), Ok(Verified::Delivery), "{url}");
        }
        assert_eq!(verify("https://h.example:8443/t", "https://h.example:443/t"), Err(Unverified::Mismatch));
    }

    #[test]
    fn twilio_source_needs_its_url() {
        for url in [None, Some(""), Some("example.com")] {
            assert!(WITHOUT_URL.with_url(url).unwrap_err().contains("needs `url`"));
        }
    }
}
