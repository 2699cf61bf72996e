//! The options that describe a sender's signatures and fields, and their consistency rules.

use std::time::Duration;

use serde::Deserialize;

use super::{
    Generic, GenericProof, InvalidGeneric,
    signed::{header_name, parse},
};
use crate::{
    providers::{
        Encoding, HashName, describe, is_pointer,
        public_key::PublicKeyKind,
        signing::{Part, Signing, Text as SignedText, TimePlace},
        token::TokenPlace,
    },
    sources::reference::{
        ANY, DURATION,
        FieldForm::{OneOrMore, Text},
        HEADER, NOT_EMPTY, PLACE, SIGNED, TOKEN, document_table, word,
    },
    time::duration::duration,
};

document_table! {
    /// The signature or token of an unlisted sender, by its documentation. Only with `provider = "generic"`. Of a source
    /// with [`queue`](queues.md), the places in its messages; a header is a message's attribute.
    #[table("[sources.NAME.generic]")]
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GenericOptions {
        /// The header with the signature.
        #[field(Text(HEADER), required_without(token_in | queue), example("x-acme-signature"))]
        pub header: Option<String>,
        /// The hash function of the HMAC.
        #[field(word::<HashName>(), required_without(token_in | public_key | queue), example("sha512"))]
        pub hash: Option<HashName>,
        /// For a sender that signs with a private key: the kind of its public key. The source's `secrets` are public keys
        /// then, in PEM, base64 or hexadecimal. It replaces `hash`. ECDSA and RSA (PKCS #1 v1.5) sign a SHA-256.
        #[field(word::<PublicKeyKind>(), means("none: the sender shares the secret"), example("ed25519"))]
        pub public_key: Option<PublicKeyKind>,
        /// The encoding of the signature.
        #[field(word::<Encoding>(), required_without(token_in | queue), example("base64"))]
        pub encoding: Option<Encoding>,
        /// For a sender that does not sign: the place of the secret in its requests. This is a header, `{query:NAME}` in
        /// the URL, or `basic` for Basic authentication with the secret `USER:PASSWORD`. It replaces `header`, `hash` and
        /// `encoding`. Anybody who knows the secret can send anything.
        #[field(Text(TOKEN), means("none: the sender signs"), example("x-api-key"))]
        pub token_in: Option<String>,
        /// The text before the signature, or before the token in its header. In a list, entries without it are ignored.
        #[field(Text(ANY), default(""), example("sha256="))]
        #[serde(default)]
        pub prefix: String,
        /// The text between several signatures in the header; spaces around it are ignored.
        #[field(Text(NOT_EMPTY), means("the whole value is one signature"), example(","))]
        pub separator: Option<String>,
        /// The query parameter that the sender's test request, a GET, wants repeated: answered `{"PARAMETER": "…"}`.
        #[field(Text(NOT_EMPTY), means("a GET is answered 405"), example("challenge"))]
        pub challenge: Option<String>,
        /// The body of the answer to an accepted delivery, if the sender reads it.
        #[field(Text(NOT_EMPTY), means("the sender reads the status only"), example("[accepted]"))]
        pub answer: Option<String>,
        /// The signed text: `{body}`, and around it `{timestamp}`, `{header:…}` or fixed text, such as the URL that the
        /// sender calls.
        #[field(Text(SIGNED), default("{body}"), example("{header:x-acme-id}.{body}"))]
        #[serde(default = "body_alone")]
        pub signed: String,
        /// The header with `{timestamp}`: seconds, milliseconds or RFC 3339. A request whose time differs from now by
        /// more than `tolerance` is refused. Only with `{timestamp}` in `signed`.
        #[field(Text(HEADER), means("none"), example("x-acme-timestamp"), needs(signed = "{timestamp}.{body}"))]
        pub timestamp_header: Option<String>,
        /// The text before `{timestamp}` in an entry of the signature's header. Use it instead of `timestamp_header`,
        /// together with `separator`.
        #[field(Text(NOT_EMPTY), means("none"), example("t="), needs(signed = "{timestamp}.{body}", separator = ","))]
        pub timestamp_prefix: Option<String>,
        /// The delivery's id, which stays the same over all retries. Without it, the hash of the body identifies a
        /// delivery, within `retried_for`.
        #[field(OneOrMore(PLACE), means("the hash of the body"), example("x-acme-delivery"))]
        #[serde(default, deserialize_with = "one_or_more")]
        pub delivery_id: Vec<ValueLocation>,
        /// The sender's retry time for a delivery that was not answered 2xx. Without a `delivery_id`, an
        /// equal body counts as a repeat for at least this time and at most twice as long. `0s`: the sender never
        /// retries. Then each request is a delivery, and `on_outage` defaults to `"queue"`.
        #[field(Text(DURATION), means("3 days"), example("1h"))]
        #[serde(default, deserialize_with = "duration")]
        pub retried_for: Option<Duration>,
        /// The topic, such as `order.updated`.
        #[field(OneOrMore(PLACE), means("`unknown`"), example("/event/type"))]
        #[serde(default, deserialize_with = "one_or_more")]
        pub topic: Vec<ValueLocation>,
        /// The shop or account, `{account}` in templates.
        #[field(OneOrMore(PLACE), means("none"), example("x-acme-shop"))]
        #[serde(default, deserialize_with = "one_or_more")]
        pub account: Vec<ValueLocation>,
        /// The entity's id: the first of these places with a value.
        #[field(OneOrMore(PLACE), means("none"), example(toml r#"["/order/id", "/order_id"]"#))]
        #[serde(default, deserialize_with = "one_or_more")]
        pub entity: Vec<ValueLocation>,
        /// The kind of the entity, before its id: `order` makes `order/7`.
        #[field(Text(NOT_EMPTY), means("the id alone"), example("order"))]
        pub entity_kind: Option<String>,
        /// The time of the event: seconds, milliseconds or RFC 3339. Do not use the time of the attempt, which changes
        /// with every retry.
        #[field(OneOrMore(PLACE), means("unknown"), example("/order/updated_at"))]
        #[serde(default, deserialize_with = "one_or_more")]
        pub event_time: Vec<ValueLocation>,
    }
}

fn body_alone() -> String {
    "{body}".to_owned()
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum ValueLocation {
    /// The name of a header, in lower case.
    Header(String),
    Pointer(String),
    /// A field of a form or a parameter of the URL's query, such as `{form:id}`.
    Parameter(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is neither a header's name, such as `x-acme-topic`, nor a JSON pointer, such as `/event/type`, nor `{{form:NAME}}` or `{{query:NAME}}`"
)]
pub struct InvalidValueLocation(String);

impl ValueLocation {
    pub fn parse(text: &str) -> Result<Self, InvalidValueLocation> {
        if text.starts_with('/') && is_pointer(text) {
            Ok(Self::Pointer(text.to_owned()))
        } else if parameter(text, describe::FORM).or_else(|| parameter(text, describe::QUERY)).is_some() {
            Ok(Self::Parameter(text.to_owned()))
        } else {
            header_name(text).map(Self::Header).ok_or_else(|| InvalidValueLocation(text.to_owned()))
        }
    }
}

impl AsRef<str> for ValueLocation {
    fn as_ref(&self) -> &str {
        match self {
            Self::Header(text) | Self::Pointer(text) | Self::Parameter(text) => text,
        }
    }
}

impl TryFrom<String> for ValueLocation {
    type Error = InvalidValueLocation;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

/// Returns the name in `{KIND:NAME}`.
fn parameter<'a>(text: &'a str, kind: &str) -> Option<&'a str> {
    let name = text.strip_prefix('{')?.strip_suffix('}')?.strip_prefix(kind)?.strip_prefix(':')?;
    Some(name).filter(|name| !name.is_empty() && !name.contains(['{', '}']))
}

fn one_or_more<'de, D: serde::Deserializer<'de>>(places: D) -> Result<Vec<ValueLocation>, D::Error> {
    struct ValueLocationsVisitor;

    impl<'de> serde::de::Visitor<'de> for ValueLocationsVisitor {
        type Value = Vec<ValueLocation>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a header's name, a JSON pointer, or a list of them")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![ValueLocation::parse(text).map_err(E::custom)?])
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut places = Vec::new();
            while let Some(place) = list.next_element()? {
                places.push(place);
            }
            Ok(places)
        }
    }

    places.deserialize_any(ValueLocationsVisitor)
}

impl TryFrom<GenericOptions> for Generic {
    type Error = InvalidGeneric;

    fn try_from(options: GenericOptions) -> Result<Self, InvalidGeneric> {
        for (name, text) in [
            ("separator", &options.separator),
            ("timestamp_prefix", &options.timestamp_prefix),
            ("entity_kind", &options.entity_kind),
            ("challenge", &options.challenge),
            ("answer", &options.answer),
        ] {
            if text.as_deref() == Some("") {
                return Err(InvalidGeneric::Empty(name));
            }
        }
        let proof = match &options.token_in {
            Some(place) => GenericProof::Token(token_place(&options, place)?),
            None if is_without_proof(&options) => GenericProof::Absent,
            None => match (signing(&options)?, options.public_key) {
                (signing, Some(kind)) => GenericProof::PublicKey(signing, kind),
                (signing, None) => GenericProof::Hmac(signing),
            },
        };
        Ok(Self { options, proof })
    }
}

fn header_named(text: &str) -> Result<SignedText, InvalidGeneric> {
    header_name(text).map(Into::into).ok_or_else(|| InvalidGeneric::Header(text.to_owned()))
}

fn is_without_proof(options: &GenericOptions) -> bool {
    let GenericOptions { header, hash, public_key, encoding, .. } = options;
    header.is_none() && hash.is_none() && public_key.is_none() && encoding.is_none()
}

/// Returns the first option that describes a signature.
fn signature_option(options: &GenericOptions) -> Option<&'static str> {
    let of_signature = [
        ("header", options.header.is_some()),
        ("hash", options.hash.is_some()),
        ("public_key", options.public_key.is_some()),
        ("encoding", options.encoding.is_some()),
        ("separator", options.separator.is_some()),
        ("signed", options.signed != body_alone()),
        ("timestamp_header", options.timestamp_header.is_some()),
        ("timestamp_prefix", options.timestamp_prefix.is_some()),
    ];
    of_signature.into_iter().find_map(|(name, is_set)| is_set.then_some(name))
}

/// Returns why the options do not fit a source that gets its deliveries from a queue.
pub(super) fn objection_with_queue(options: &GenericOptions) -> Option<String> {
    let of_requests = [
        ("token_in", options.token_in.is_some()),
        ("prefix", !options.prefix.is_empty()),
        ("challenge", options.challenge.is_some()),
        ("answer", options.answer.is_some()),
        ("retried_for", options.retried_for.is_some()),
    ];
    let request_option = || of_requests.into_iter().find_map(|(name, is_set)| is_set.then_some(name));
    if let Some(name) = signature_option(options).or_else(request_option) {
        return Some(format!(
            "a source with `queue` has no `generic.{name}`, which belongs to HTTP requests; remove it"
        ));
    }
    let GenericOptions { delivery_id, topic, account, entity, event_time, .. } = options;
    let places = [delivery_id, topic, account, entity, event_time].into_iter().flatten();
    let is_query = |place: &ValueLocation| parameter(place.as_ref(), describe::QUERY).is_some();
    places.into_iter().any(is_query).then(|| {
        "a message has no query, so `generic` cannot use `{query:NAME}`; name an attribute or a JSON pointer".to_owned()
    })
}

fn token_place(options: &GenericOptions, place: &str) -> Result<TokenPlace, InvalidGeneric> {
    if let Some(name) = signature_option(options) {
        return Err(InvalidGeneric::TokenAndSignature(name));
    }
    let has_prefix = !options.prefix.is_empty();
    let place = match parameter(place, describe::QUERY) {
        Some(name) => TokenPlace::Query(name.to_owned().into()),
        None if place == "basic" => TokenPlace::Basic,
        None => {
            let name = header_name(place).ok_or_else(|| InvalidGeneric::TokenPlace(place.to_owned()))?;
            return Ok(TokenPlace::Header { name: name.into(), prefix: options.prefix.clone().into() });
        }
    };
    if has_prefix { Err(InvalidGeneric::TokenPrefix) } else { Ok(place) }
}

fn signing(options: &GenericOptions) -> Result<Signing, InvalidGeneric> {
    let header = options.header.as_deref().ok_or(InvalidGeneric::Missing("header"))?;
    let hash = match (options.hash, options.public_key) {
        (Some(_), Some(_)) => return Err(InvalidGeneric::HashAndPublicKey),
        (None, None) => return Err(InvalidGeneric::Missing("hash")),
        (hash, _) => hash.unwrap_or(HashName::Sha256),
    };
    let encoding = options.encoding.ok_or(InvalidGeneric::Missing("encoding"))?;
    let header = header_named(header)?;
    let signed = parse(&options.signed)?;
    let time = match (&options.timestamp_header, &options.timestamp_prefix) {
        (None, None) => None,
        (Some(_), Some(_)) => return Err(InvalidGeneric::TimestampTwice),
        (Some(name), None) => Some(TimePlace::Header(header_named(name)?)),
        (None, Some(_)) if options.separator.is_none() => return Err(InvalidGeneric::TimestampInseparable),
        (None, Some(prefix)) => Some(TimePlace::Entry(prefix.clone().into())),
    };
    match (signed.contains(&Part::Time), &time) {
        (true, None) => return Err(InvalidGeneric::TimestampUnplaced),
        (false, Some(_)) => return Err(InvalidGeneric::TimestampUnsigned),
        _ => {}
    }
    Ok(Signing {
        header,
        hash,
        encoding,
        prefix: options.prefix.clone().into(),
        separator: options.separator.clone().map(Into::into),
        time,
        signed: signed.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "header = \"x-signature\"\nhash = \"sha256\"\nencoding = \"hex\"\n";

    fn refused(more: &str) -> InvalidGeneric {
        let options: GenericOptions = toml::from_str(&format!("{LEAST}{more}")).unwrap();
        Generic::try_from(options).unwrap_err()
    }

    fn error(toml: &str) -> String {
        toml::from_str::<Generic>(toml).unwrap_err().to_string()
    }

    #[test]
    fn generic_source_requires_only_three_options() {
        let generic: Generic = toml::from_str(LEAST).unwrap();
        assert_eq!(generic.options.signed, "{body}");
        assert!(matches!(generic.proof, GenericProof::Hmac(Signing { time: None, .. })));
    }

    #[test]
    fn conflicting_options_are_refused() {
        use InvalidGeneric::*;
        let stamped = "signed = '{timestamp}.{body}'\n";
        for (more, expected) in [
            ("signed = '{timestamp}'\ntimestamp_header = 'x-time'", BodyUnsigned),
            ("signed = ''", BodyUnsigned),
            ("signed = '{date}{body}'", Placeholder("{date}".into())),
            ("signed = '{body'", Placeholder("{body".into())),
            ("signed = '{body}}'", Placeholder("}".into())),
            ("signed = '{header:}{body}'", Placeholder("{header:}".into())),
            ("signed = '{header:x y}{body}'", Placeholder("{header:x y}".into())),
            (stamped, TimestampUnplaced),
            ("timestamp_header = 'x-time'", TimestampUnsigned),
            ("separator = ','\ntimestamp_prefix = 't='", TimestampUnsigned),
            (&format!("{stamped}timestamp_header = 'x-time'\ntimestamp_prefix = 't='"), TimestampTwice),
            (&format!("{stamped}timestamp_prefix = 't='"), TimestampInseparable),
            (&format!("{stamped}timestamp_header = 'x time'"), Header("x time".into())),
            ("public_key = 'rsa'", HashAndPublicKey),
            ("separator = ''", Empty("separator")),
            ("timestamp_prefix = ''", Empty("timestamp_prefix")),
            ("entity_kind = ''", Empty("entity_kind")),
        ] {
            assert_eq!(refused(more), expected, "{more}");
        }
        let unnamed = error("header = ''\nhash = 'sha256'\nencoding = 'hex'");
        assert!(unnamed.contains("\"\" is not a header's name"), "{unnamed}");
    }

    #[test]
    fn token_replaces_all_options_of_signature() {
        let proof = |toml: &str| toml::from_str::<Generic>(toml).unwrap().proof;
        let header = |prefix: &'static str| TokenPlace::Header { name: "x-api-key".into(), prefix: prefix.into() };
        for (toml, expected) in [
            ("token_in = 'X-Api-Key'", header("")),
            ("token_in = 'x-api-key'\nprefix = 'Bearer '", header("Bearer ")),
            ("token_in = '{query:key}'", TokenPlace::Query("key".into())),
            ("token_in = 'basic'", TokenPlace::Basic),
        ] {
            assert_eq!(proof(toml), GenericProof::Token(expected), "{toml}");
        }
        for (more, name) in [
            ("header = 'x'", "header"),
            ("hash = 'sha1'", "hash"),
            ("encoding = 'hex'", "encoding"),
            ("separator = ','", "separator"),
            ("signed = 'a{body}'", "signed"),
            ("timestamp_header = 'x'", "timestamp_header"),
            ("timestamp_prefix = 't='", "timestamp_prefix"),
        ] {
            let refused = error(&format!("token_in = 'x-api-key'\n{more}"));
            assert!(refused.contains(&format!("remove `{name}`")), "{refused}");
        }
        for (toml, expected) in [
            ("token_in = '{query:}'", "\"{query:}\" is no place for a token"),
            ("token_in = '{form:key}'", "\"{form:key}\" is no place"),
            ("token_in = '/key'", "\"/key\" is no place"),
            ("token_in = 'basic'\nprefix = 'Basic '", "`prefix` is only for a token in a header"),
            ("hash = 'sha256'\nencoding = 'hex'", "missing field `header`"),
            ("header = 'x'\nencoding = 'hex'", "missing field `hash`"),
            ("header = 'x'\nhash = 'sha256'", "missing field `encoding`"),
        ] {
            assert!(error(toml).contains(expected), "{}", error(toml));
        }
    }

    #[test]
    fn error_names_the_misspelt_option() {
        let misspelt = error(&format!("{LEAST}entities = ['/id']"));
        assert!(misspelt.contains("unknown field `entities`"), "{misspelt}");
        let unknown = error("header = 'x'\nhash = 'md5'\nencoding = 'hex'");
        assert!(unknown.contains("unknown variant `md5`, expected one of `sha1`, `sha256`, `sha512`"), "{unknown}");
    }

    #[test]
    fn value_location_is_header_or_json_pointer() {
        assert_eq!(ValueLocation::parse("X-Topic"), Ok(ValueLocation::Header("x-topic".into())));
        assert_eq!(ValueLocation::parse("/a~1b/0"), Ok(ValueLocation::Pointer("/a~1b/0".into())));
        for text in ["{form:id}", "{query:order id}"] {
            assert_eq!(ValueLocation::parse(text), Ok(ValueLocation::Parameter(text.into())));
        }
        for text in ["", "a/b", "x topic", "/a~2", "é", "{form:}", "{cookie:id}", "{id}", "{form:id", "{form:{a}}"] {
            assert_eq!(ValueLocation::parse(text), Err(InvalidValueLocation(text.into())));
        }
        let misplaced = error(&format!("{LEAST}topic = ['event/type']"));
        assert!(misplaced.contains("\"event/type\" is neither a header's name"), "{misplaced}");
    }

    #[test]
    fn single_value_location_needs_no_list() {
        let places = |toml: &str| toml::from_str::<GenericOptions>(&format!("{LEAST}{toml}")).unwrap().entity;
        assert_eq!(places("entity = '/id'"), places("entity = ['/id']"));
        assert_eq!(places("entity = ['/order/id', '/id']").len(), 2);
        assert!(error(&format!("{LEAST}entity = 7")).contains("a header's name, a JSON pointer, or a list of them"));
    }
}
