//! The configured senders of webhooks, from one TOML or JSON document.
//!
//! The document is checked as a whole when it is read. An error names the source and never shows a value, which may be
//! a secret. [`LiveSources`] reads the document again while a Lambda function runs.

#[cfg(any(test, feature = "scheduler"))]
pub mod alerts;
mod check;
pub mod deliver;
pub mod destination;
mod filter;
pub mod invocation;
mod live;
mod message;
mod origin;
mod provider;
mod queue;
pub mod reference;
mod retry;
#[cfg(any(test, feature = "verify"))]
mod sender;
mod source;
mod subscriber;
mod table;
pub mod template;
mod topics;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

#[cfg(any(test, feature = "scheduler"))]
use alerts::Alerts;
use check::SourcesForm;
use provider::Registry;
use serde::Deserialize;
use table::StrictTable;

use crate::{protocol::entity::SourceName, providers::Secret};

pub use filter::{Filter, FilterValue, IgnoredBy};
pub use live::{LiveSources, NewestDocument, PATIENCE, REFRESH, SPACING, STALE, SourceLookup, SourcesDocument};
pub use origin::{HEADER as ORIGIN_HEADER, Origin};
pub use queue::QueueArn;
pub use retry::LONGEST_RETRIED;
#[cfg(any(test, feature = "verify"))]
pub use sender::{CredentialField, ReceivedWebhook};
pub use source::{Intake, Source};
pub use subscriber::{CopyOrder, SubscriberCopy};
pub use topics::{Pattern, Patterns, Topics};

#[derive(Debug, Clone, Default)]
pub struct Sources {
    by_name: BTreeMap<SourceName, Arc<Source>>,
    origin: Origin,
    #[cfg(any(test, feature = "scheduler"))]
    alerts: Option<Alerts>,
}

#[derive(Debug, thiserror::Error)]
pub enum InvalidSources {
    #[error("the sources document cannot be read: {0}")]
    Document(String),
    #[error("source `{source_name}`: {reason}")]
    Source {
        source_name: String,
        /// A sentence that contains no value of the document.
        reason: String,
    },
}

/// What happens to a verified delivery that cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnOutage {
    /// The delivery is put on the queue and answered 202, or 200 if its provider demands a body in the answer.
    /// A worker appends it when the store is back, behind the deliveries that arrived in the meantime.
    Queue,
    /// The delivery is answered 503, so that its sender sends it again.
    Refuse,
}

/// The values by which a source's webhooks are verified.
#[derive(Debug, Clone)]
struct Credentials {
    secrets: Vec<Secret>,
    /// The ids of the recipient, for a sender with a published key.
    recipients: Vec<String>,
}

pub const DEFAULT_HANDLER_TIMEOUT: Duration = Duration::from_secs(10);

/// The name of the built-in handler that posts to an endpoint. The TOML table with the settings of this
/// handler has the same name.
pub const FORWARD: &str = "forward";

/// The name of the built-in handler that calls a Lambda function. The TOML table with the settings of this
/// handler has the same name.
pub const INVOKE: &str = "invoke";

/// The name of the built-in handler that appends deliveries to the sources whose field `from` names their source.
pub const FAN_OUT: &str = "fan-out";

const MARKED: &str = "it begins with a byte-order mark, which JSON does not allow; save it as UTF-8 without one";

/// Decodes a file's bytes. An error says how to save the file, and quotes nothing of it.
pub fn text(bytes: Vec<u8>) -> Result<String, String> {
    if let Some(encoding) = crate::providers::wide(&bytes) {
        return Err(format!("it is {encoding}; save it as UTF-8"));
    }
    String::from_utf8(bytes)
        .map_err(|error| format!("it is not UTF-8 at byte {}; save it as UTF-8", error.utf8_error().valid_up_to() + 1))
}

impl Sources {
    /// Parses a sources document. A document that starts with a brace is JSON; any other is TOML.
    pub fn parse(text: &str) -> Result<Self, InvalidSources> {
        Self::parse_with(text, Registry::THIS_BUILD)
    }

    fn parse_with(text: &str, registry: Registry) -> Result<Self, InvalidSources> {
        let unmarked = text.trim_start_matches('\u{feff}');
        let document: SourcesForm = if unmarked.trim_start().starts_with('{') {
            if unmarked.len() < text.len() {
                return Err(InvalidSources::Document(MARKED.into()));
            }
            serde_json::from_str(text).map_err(|error| message::of_json(text, &error))
        } else {
            toml::from_str(text).map_err(|error| message::of_toml(text, &error))
        }
        .map_err(InvalidSources::Document)?;
        let origin = document
            .origin
            .map(|StrictTable(origin)| Origin::check(origin))
            .transpose()
            .map_err(InvalidSources::Document)?;
        let entries = document.sources.0.into_iter().map(|(name, StrictTable(entry))| (name, entry));
        let (subscribers, doors): (BTreeMap<_, _>, BTreeMap<_, _>) =
            entries.partition(|(_, entry)| entry.from.is_some());
        // A source that wrongly names a subscriber is checked after it, so that the error can say whose it is.
        let names: BTreeSet<String> = subscribers.keys().cloned().collect();
        let mut subscribers: Vec<_> = subscribers.into_iter().collect();
        subscribers.sort_by_key(|(_, entry)| entry.from.as_ref().is_some_and(|from| names.contains(from)));
        #[cfg(any(test, feature = "scheduler"))]
        let alerts = document
            .alerts
            .map(|StrictTable(alerts)| Alerts::check(alerts))
            .transpose()
            .map_err(InvalidSources::Document)?;
        let mut sources = BTreeMap::new();
        for (name, entry) in doors.into_iter().chain(subscribers) {
            let invalid = |reason: String| InvalidSources::Source { source_name: name.clone(), reason };
            let parsed = SourceName::parse(&name).map_err(|error| invalid(error.to_string()))?;
            let source = Source::check(parsed.clone(), entry, &sources, registry).map_err(invalid)?;
            sources.insert(parsed, Arc::new(source));
        }
        if let Some((name, reason)) = queue::objection(&sources).or_else(|| subscriber::objection(&sources)) {
            return Err(InvalidSources::Source { source_name: name.to_string(), reason });
        }
        if sources.is_empty() {
            return Err(InvalidSources::Document("it contains no source".into()));
        }
        Ok(Self {
            by_name: sources,
            origin: origin.unwrap_or_default(),
            #[cfg(any(test, feature = "scheduler"))]
            alerts,
        })
    }

    /// Parses a document for a command that explains signatures. Its sources verify with guessable secrets, too.
    #[cfg(any(test, feature = "verify"))]
    pub fn parse_for_diagnosis(text: &str) -> Result<Self, InvalidSources> {
        let mut sources = Self::parse(text)?;
        for source in sources.by_name.values_mut().filter_map(Arc::get_mut) {
            source.usable = source.credentials.clone();
        }
        Ok(sources)
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Source>> {
        self.by_name.get(&SourceName::parse(name).ok()?)
    }

    /// Returns the source of this name, if webhooks can be sent to it: it has neither `from` nor `queue`.
    pub fn door(&self, name: &str) -> Option<&Arc<Source>> {
        self.get(name).filter(|source| source.is_door())
    }

    /// Returns the sources that webhooks can be sent to.
    pub fn doors(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.iter().filter(|source| source.is_door())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.by_name.values()
    }

    pub fn paused(&self) -> BTreeSet<SourceName> {
        self.iter().filter(|source| source.is_paused).map(|source| source.name.clone()).collect()
    }

    /// Returns the first secret of the proxy in front of the ingest function, if the document has one.
    pub fn origin_secret(&self) -> Option<&str> {
        self.origin.first()
    }

    #[cfg(any(test, feature = "verify"))]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns where alerts are sent, if the document has the table `alerts`.
    #[cfg(any(test, feature = "scheduler"))]
    pub fn alerts(&self) -> Option<&Alerts> {
        self.alerts.as_ref()
    }

    pub fn longest_handler_timeout(&self) -> Duration {
        self.iter().map(|source| source.handler_timeout).max().unwrap_or(DEFAULT_HANDLER_TIMEOUT)
    }
}

#[cfg(test)]
fn shop(fields: &str) -> Result<Arc<Source>, String> {
    let document = format!("[sources.shop]\nprovider = 'shopify'\nhandler = 'h'\n{fields}");
    let sources = Sources::parse(&document).map_err(|error| error.to_string())?;
    Ok(sources.get("shop").expect("it is configured").clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        providers::{self, Request, Unverified, Verified},
        time::Timestamp,
    };

    #[test]
    fn misplaced_secret_is_not_shown_in_errors() {
        let document = |field: &str| format!("[sources.shop]\nprovider='shopify'\nsecrets=['s']\nhandler='h'\n{field}");
        for field in ["on_failure = 'hush'", "retry = 'hush'", "retry = 'a\"hush'", "handler_timeout = 'a\"hush'"] {
            let error = Sources::parse(&document(field)).unwrap_err().to_string();
            assert!(error.contains("line 5") && !error.contains("hush"), "{field}: {error}");
        }
        let json = r#"{"sources":{"shop":{"provider":"shopify","secrets":["s"],"handler":"h","on_failure":"hush"}}}"#;
        let error = Sources::parse(json).unwrap_err().to_string();
        assert!(error.contains("expected `park` or `block`") && !error.contains("hush"), "{error}");
        for origin in ["origin = 'hush'", "origin = { secret = 7, x = 'hush' }", "origin = { secret = 'hush' }"] {
            let error = Sources::parse(origin).unwrap_err().to_string();
            assert!(!error.contains("hush"), "{origin}: {error}");
        }
    }

    const SHOP: &str = "provider='standard-webhooks'\nsecrets=['whsec_Zk93bTR6S2dRcTdUaHBY']\nhandler='h'\n";

    #[test]
    fn constant_entity_template_must_be_valid_key() {
        let refused = |entity: &str| {
            Sources::parse(&format!("[sources.shop]\n{SHOP}entity = '{entity}'")).unwrap_err().to_string()
        };
        const RESERVED: &str = "source `shop`: entity template 1: the key `shop/unrouted` is reserved for deliveries \
                                without an order, which are parked; choose another key";
        assert_eq!([refused("shop/unrouted"), refused("{source}/unrouted")], [RESERVED; 2]);
        assert!(refused("{source}").contains("must be a valid key itself"), "{}", refused("{source}"));
        for entity in ["{source}/{provider}", "other/unrouted"] {
            Sources::parse(&format!("[sources.shop]\n{SHOP}entity = '{entity}'")).unwrap();
        }
    }

    #[test]
    fn entity_template_that_is_never_used_is_refused() {
        let read = |entity: &str| Sources::parse(&format!("[sources.shop]\n{SHOP}entity = {entity}"));
        for first in ["chat/one", "{source}/{provider}", "{source}/{topic}"] {
            let refused = read(&format!("['{first}', '{{/x}}']")).unwrap_err().to_string();
            assert_eq!(
                refused,
                "source `shop`: entity template 2 is never used, because template 1 always has a value; \
                 put template 1 last or remove one"
            );
            read(&format!("['{{/x}}', '{first}']")).unwrap();
        }
        let third = read("['{source}/{/x}', 'chat/one', '{source}/{entity}']").unwrap_err().to_string();
        assert!(third.contains("entity template 3 is never used, because template 2"), "{third}");
    }

    #[test]
    fn source_without_a_secret_is_parsed() {
        for secrets in ["", "secrets = []\n"] {
            let document = format!("[sources.shop]\nprovider = 'stripe'\n{secrets}handler = 'h'\n");
            assert!(!Sources::parse(&document).unwrap().get("shop").unwrap().has_secret());
        }
        let with = Sources::parse(&format!("[sources.shop]\n{SHOP}")).unwrap();
        assert!(with.get("shop").unwrap().has_secret());
    }

    #[test]
    fn error_names_number_of_the_unusable_secret() {
        let secrets = |provider: &str, secrets: &str| {
            let document = format!("[sources.shop]\nprovider = '{provider}'\nsecrets = [{secrets}]\nhandler = 'h'\n");
            Sources::parse(&document).unwrap_err().to_string()
        };
        assert_eq!(
            secrets("stripe", "'whsec_1', 'sk_live_hush'"),
            "source `shop`: `secrets`, number 2: it is an API key; the signing secret of a webhook begins with `whsec_`"
        );
        assert_eq!(secrets("woocommerce", "''"), "source `shop`: `secrets`, number 1: it is empty");
        let refused = secrets("standard-webhooks", "'hush!'");
        assert!(
            refused.contains("number 1: it is not `whsec_` and the key's bytes in base64; if the sender uses"),
            "{refused}"
        );
    }

    fn shippo(fields: &str) -> Result<Arc<Source>, String> {
        let document = format!("[sources.shop]\nprovider = 'shippo'\nhandler = 'h'\n{fields}");
        let sources = Sources::parse(&document).map_err(|error| error.to_string())?;
        Ok(sources.get("shop").unwrap().clone())
    }

    #[test]
    fn source_tolerance_replaces_the_default_five_minutes() {
        let at = |seconds: u64| Timestamp::from_secs(1_767_621_700 + seconds);
        let signed = shippo("secrets = 'q7mZ4kT1'").unwrap().sign(&providers::Headers::default(), b"{}", at(1000));
        let headers = signed.into_iter().collect();
        let is_taken = |tolerance: &str, seconds| {
            let source = shippo(&format!("secrets = 'q7mZ4kT1'\ntolerance = '{tolerance}'")).unwrap();
            source.verify(Request { headers: &headers, body: b"{}" }, at(seconds)) == Ok(Verified::Delivery)
        };
        for (tolerance, taken, refused) in [("5m", [700, 1300], [699, 1301]), ("10s", [990, 1010], [989, 1011])] {
            assert!(taken.iter().all(|now| is_taken(tolerance, *now)), "{tolerance}");
            assert!(!refused.iter().any(|now| is_taken(tolerance, *now)), "{tolerance}");
        }
        assert!(is_taken("15m", 100) && is_taken("15m", 1900) && !is_taken("15m", 99) && !is_taken("15m", 1901));
        let other = shippo("secrets = 'u3rVw8Yd'\ntolerance = '15m'").unwrap();
        let refused = other.verify(Request { headers: &headers, body: b"{}" }, at(1000));
        assert_eq!(refused, Err(Unverified::Mismatch));
        assert_eq!(shippo("tolerance = '0s'").unwrap_err(), "source `shop`: `tolerance` must be more than zero");
    }

    #[test]
    fn secret_may_be_hexadecimal_or_base64() {
        let now = Timestamp::from_secs(1_767_621_700);
        let sign = |secret: &str| {
            shippo(&format!("secrets = '{secret}'")).unwrap().sign(&providers::Headers::default(), b"{}", now)
        };
        assert_eq!(sign("hex:736563726574"), sign("secret"));
        assert_eq!(sign("base64:c2VjcmV0"), sign("secret"));
        assert_ne!(sign("hex:fffe"), sign("base64:/v8="));
        for (secret, refused) in [
            ("hex:hush", "source `shop`: `secrets`, number 1: the text after `hex:` is not hexadecimal"),
            ("base64:hush!", "source `shop`: `secrets`, number 1: the text after `base64:` is not base64"),
            (
                "hex:0000",
                "source `shop`: `secrets`, number 1: it consists of zeros, and HMAC takes such a key for an empty one",
            ),
        ] {
            assert_eq!(shippo(&format!("secrets = '{secret}'")).unwrap_err(), refused);
        }
    }

    /// Promise: options that a provider lacks, API keys and access tokens are refused.
    #[test]
    fn url_option_is_required_exactly_if_provider_signs_url() {
        let read = |provider: &str, rest: &str| {
            Sources::parse(&format!("[sources.shop]\nprovider = '{provider}'\nhandler = 'h'\n{rest}"))
        };
        let refused = |provider: &str, rest: &str| read(provider, rest).unwrap_err().to_string();
        assert!(refused("square", "").contains("needs `url`"), "{}", refused("square", ""));
        read("square", "url = 'https://example.com/webhooks/shop'").unwrap();
        assert!(refused("shopify", "url = 'https://example.com/'").contains("`url` is only for providers that sign"));
    }

    #[test]
    fn single_secret_needs_no_list() {
        let read = |secrets: &str| {
            Sources::parse(&format!("[sources.shop]\nprovider = 'stripe'\nsecrets = {secrets}\nhandler = 'h'\n"))
        };
        assert!(read("'whsec_q7mZ4kT1'").unwrap().get("shop").unwrap().has_secret());
        let refused = read("{ first = 'hush' }").unwrap_err().to_string();
        assert!(
            refused.ends_with("a secret is a text; several secrets, during a rotation, are a list of texts"),
            "{refused:?}"
        );
    }

    /// Examples in this project's own error messages stay readable. Values of the document are hidden.
    #[test]
    fn errors_omit_values_of_the_document() {
        let refused = |field: &str| Sources::parse(&format!("[sources.shop]\n{SHOP}{field}")).unwrap_err().to_string();
        let cannot = "the sources document cannot be read: line 5: ";
        let duration = "must be a duration: a number and its unit, such as `10s`, `500ms` or `5m`";
        for (field, expected) in [
            ("handler_timeout = 'hush'", format!("`handler_timeout` {duration}")),
            ("handler_timeout = 10", format!("`handler_timeout` is `10`, but {duration}")),
            ("retry = { first = '1 hush' }", format!("`first` {duration}")),
            (
                "rate = 'hush'",
                "a rate is a whole number from 1 to 1000, a slash, and s, min or h, such as `5/s`".into(),
            ),
            ("on_failure = 'hush'", "unknown variant `…`, expected `park` or `block`".into()),
            ("entity = 7", "`entity` is a template such as `{source}/{entity}`, or a list of templates".into()),
            (
                "generic = { header = 'x', hash = 'sha1', encoding = 'hex', topic = 'hush hush' }",
                "\"…\" is neither a header's name, such as `x-acme-topic`, nor a JSON pointer, such as `/event/type`, nor `{form:NAME}` or `{query:NAME}`"
                    .into(),
            ),
            (
                "generic = { header = 'hush hush', hash = 'sha1', encoding = 'hex' }",
                "\"…\" is not a header's name".into(),
            ),
            (
                "generic = { header = 'x', hash = 'sha1', encoding = 'hex', signed = '{hush}' }",
                "`signed` may contain {body}, {timestamp} and {header:…}, but not \"…\"".into(),
            ),
        ] {
            assert_eq!(refused(field).trim_end(), format!("{cannot}{expected}"), "{field}");
        }
    }

    #[test]
    fn source_named_twice_is_refused() {
        let refused = |text: &str| Sources::parse(text).unwrap_err().to_string();
        let entry = r#"{"provider":"shopify","secrets":["hush"],"handler":"h"}"#;
        assert_eq!(
            refused(&format!(r#"{{"sources":{{"shop":{entry},"other":{entry},"shop":{entry}}}}}"#)),
            "the sources document cannot be read: source `shop` is in it twice at line 1 column 145"
        );
        assert!(refused(&format!("[sources.shop]\n{SHOP}[sources.shop]\n{SHOP}")).contains("line 5: duplicate key"));
        let nested =
            |field: &str| format!(r#"{{"sources":{{"shop":{{"provider":"shopify","handler":"h",{field}}}}}}}"#);
        for field in [r#""secrets":[],"secrets":[]"#, r#""retry":{"for":"1h","for":"2h"}"#] {
            assert!(refused(&nested(field)).contains("duplicate field"), "{}", refused(&nested(field)));
        }
    }

    #[test]
    fn byte_order_mark_before_json_document_is_named() {
        let json = format!("\u{feff}{}", r#"{"sources":{"shop":{"provider":"shopify","handler":"h"}}}"#);
        assert_eq!(
            Sources::parse(&json).unwrap_err().to_string(),
            "the sources document cannot be read: it begins with a byte-order mark, which JSON does not allow; save it as \
             UTF-8 without one"
        );
        Sources::parse(&format!("\u{feff}[sources.shop]\n{SHOP}")).expect("TOML allows a byte-order mark");
    }

    #[test]
    fn document_in_another_encoding_is_named() {
        let utf_16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let of = |bytes: Vec<u8>| text(bytes).unwrap_err();
        assert_eq!(of(utf_16("\u{feff}[sources.shop]")), "it is UTF-16; save it as UTF-8");
        assert_eq!(of(utf_16("[sources.shop]")), "it is UTF-16; save it as UTF-8");
        let utf_32 = |text: &str| text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        for text in ["\u{feff}[sources.shop]", "[sources.shop]"] {
            assert_eq!(of(utf_32(text)), "it is UTF-32; save it as UTF-8");
        }
        assert_eq!(of(b"# Jos\xe9".to_vec()), "it is not UTF-8 at byte 6; save it as UTF-8");
        assert_eq!(text(b"# Jos\xc3\xa9".to_vec()).as_deref(), Ok("# José"));
    }

    #[test]
    fn document_may_name_a_json_schema() {
        Sources::parse(&format!("\"$schema\" = 'sources.schema.json'\n[sources.shop]\n{SHOP}")).unwrap();
    }

    #[test]
    fn source_using_the_job_namespace_is_refused() {
        let refused = |document: String| Sources::parse(&document).unwrap_err().to_string();
        let error = refused(format!("[sources.cron]\n{SHOP}"));
        assert_eq!(error, "source `cron`: the source name \"cron\" is reserved: entities under `cron/` are jobs");
        let error = refused(format!("[sources.shop]\n{SHOP}entity = ['order/{{/id}}', 'cron/{{/id}}']"));
        assert!(error.starts_with("source `shop`: entity template 2: the key begins with `cron/`"), "{error}");
    }

    #[test]
    fn sender_cannot_route_delivery_to_a_job() {
        let document = format!("[sources.shop]\n{SHOP}entity = ['{{/key}}', '{{/other}}']");
        let sources = Sources::parse(&document).unwrap();
        let shop = sources.get("shop").unwrap();
        let entity = |body: &str| {
            let headers = [("webhook-id", "1")].into_iter().collect();
            let request = Request { headers: &headers, body: body.as_bytes() };
            shop.delivery(request, Timestamp::from_secs(0)).entity.to_string()
        };
        assert_eq!(entity(r#"{"key":"order/7"}"#), "order/7");
        assert_eq!(entity(r#"{"key":"cron/sweep"}"#), "shop/unrouted");
        assert_eq!(entity(r#"{"key":"cron/sweep","other":"order/8"}"#), "order/8", "the job key is skipped");
        assert_eq!(entity("{\"key\":\"order/\u{fffe}\"}"), "shop/unrouted");
    }
}
