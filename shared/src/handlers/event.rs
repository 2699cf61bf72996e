//! The JSON document for one or several deliveries.
//!
//! The handler `invoke` sends this document as the event of a function, and `forward` posts it for
//! several deliveries at once. The document's schema is `docs/invoke.schema.json`.
//!
//! Bodies are large, and a worker handles several orders at once. So a document is made in pieces, and a body is never
//! in memory a second time as JSON, unless the caller collects the pieces.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::Serialize;

use crate::protocol::{
    delivery::{Age, Delivery},
    entity::{FencingToken, Identity},
};

/// The version of the JSON document. This number grows when a field is removed or changes its meaning.
const VERSION: u32 = 1;

/// The number of bytes of a body that one piece encodes. It is a multiple of three, so that only the last piece of a
/// body in base64 has padding.
const PIECE_BYTES: usize = 48 * 1024;

#[derive(Serialize)]
struct EventHeader<'a> {
    version: u32,
    source: &'a str,
    entity_key: &'a str,
    fencing_token: u64,
}

/// The fields of a delivery, without `body`.
#[derive(Serialize)]
struct EventDelivery<'a> {
    id: String,
    delivery_id: &'a str,
    topic: &'a str,
    provider: Option<&'a str>,
    sequence: u64,
    attempt: u32,
    redrive: u32,
    run_before: Option<u64>,
    superseded: u32,
    age: &'static str,
    received_at: String,
    deferred_until: Option<String>,
    event_time: Option<String>,
    content_type: Option<&'a str>,
    // Without the feature `otel` the field is absent instead of null.
    #[cfg(feature = "otel")]
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    body_is_base64: bool,
}

/// A document, which shares the bodies of its deliveries.
#[derive(Debug, Clone)]
pub struct Document {
    deliveries: Vec<(Delivery, BodyForm)>,
    token: FencingToken,
}

/// The form of a body in a document, and its length in bytes.
#[derive(Debug, Clone, Copy)]
enum BodyForm {
    Text(usize),
    Base64(usize),
}

impl Document {
    /// Creates a document for deliveries of one entity and source, at least one, oldest first.
    pub fn new(deliveries: &[&Delivery], token: FencingToken) -> Self {
        let one = |delivery: &&Delivery| ((*delivery).clone(), BodyForm::of(delivery.body()));
        Self { deliveries: deliveries.iter().map(one).collect(), token }
    }

    /// Returns the length of the document in bytes.
    pub fn bytes(&self) -> usize {
        let one = |(delivery, form): &(Delivery, BodyForm)| fields(delivery, *form).len() + form.bytes() + "\"},".len();
        self.head().len() + self.deliveries.iter().map(one).sum::<usize>() - ",".len() + "]}".len()
    }

    /// Returns the document in pieces, each of at most some hundred KB.
    pub fn into_pieces(self) -> impl Iterator<Item = Bytes> + Send + use<> {
        let head = std::iter::once(self.head().into());
        let deliveries = self.deliveries.into_iter().enumerate().flat_map(|(at, (delivery, form))| {
            let between = if at == 0 { "" } else { "\"}," };
            let fields = between.to_owned() + &fields(&delivery, form);
            std::iter::once(fields.into()).chain(form.encode(delivery.body().clone()))
        });
        head.chain(deliveries).chain([Bytes::from_static(b"\"}]}")])
    }

    /// Returns the whole document.
    pub fn json(self) -> Bytes {
        let mut json = Vec::with_capacity(self.bytes());
        self.into_pieces().for_each(|piece| json.extend_from_slice(&piece));
        json.into()
    }

    fn head(&self) -> String {
        let (first, _) = self.deliveries.first().expect("a start has a delivery");
        let event = EventHeader {
            version: VERSION,
            source: first.source().as_str(),
            entity_key: first.entity().as_str(),
            fencing_token: self.token.0,
        };
        opened(&event) + ",\"deliveries\":["
    }
}

/// Returns the JSON of `delivery` up to the content of its last field, `body`.
fn fields(delivery: &Delivery, form: BodyForm) -> String {
    opened(&EventDelivery {
        id: id(delivery),
        delivery_id: delivery.delivery_id().as_str(),
        topic: delivery.topic(),
        provider: delivery.provider(),
        sequence: delivery.sequence().0,
        attempt: delivery.attempt(),
        redrive: delivery.redrive(),
        run_before: delivery.run_before().map(|token| token.0),
        superseded: delivery.superseded(),
        age: age(delivery.age()),
        received_at: delivery.received_at().to_string(),
        deferred_until: delivery.deferred_until().map(|time| time.to_string()),
        event_time: delivery.event_time().map(|time| time.to_string()),
        content_type: delivery.content_type(),
        #[cfg(feature = "otel")]
        traceparent: delivery.traceparent(),
        body_is_base64: matches!(form, BodyForm::Base64(_)),
    }) + ",\"body\":\""
}

/// Returns the JSON of an object without its closing brace.
fn opened(object: &impl Serialize) -> String {
    let mut json = serde_json::to_string(object).expect("texts and numbers are JSON");
    json.pop();
    json
}

impl BodyForm {
    /// Returns the form of `body`: base64 if it is not UTF-8, or if its escapes would more than double its length. No
    /// JSON has so many, because it contains no control characters except white space.
    fn of(body: &[u8]) -> Self {
        let escaped = |byte: &u8| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0C => 2,
            ..0x20 => "\\u0000".len(),
            _ => 1,
        };
        let bytes = body.iter().map(escaped).sum();
        match bytes <= 2 * body.len() && str::from_utf8(body).is_ok() {
            true => Self::Text(bytes),
            false => Self::Base64(body.len().div_ceil(3) * 4),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Text(bytes) | Self::Base64(bytes) => bytes,
        }
    }

    /// Returns the content of the field `body`, in pieces.
    fn encode(self, body: Bytes) -> impl Iterator<Item = Bytes> + Send {
        let mut from = 0;
        std::iter::from_fn(move || {
            let rest = body.get(from..).filter(|rest| !rest.is_empty())?;
            let most = rest.len().min(PIECE_BYTES);
            if let Self::Base64(_) = self {
                from += most;
                return Some(STANDARD.encode(&rest[..most]).into());
            }
            // The body is UTF-8, but the end of a piece may split a character.
            let piece = match str::from_utf8(&rest[..most]) {
                Ok(piece) => piece,
                Err(error) => str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default(),
            };
            from += piece.len();
            let quoted: Bytes = serde_json::to_string(piece).expect("a text is JSON").into();
            Some(quoted.slice(1..quoted.len() - 1))
        })
    }
}

/// Returns the length of `body` in a document, in bytes: with JSON's escapes, or in base64.
pub(crate) fn encoded_bytes(body: &[u8]) -> usize {
    BodyForm::of(body).bytes()
}

/// Returns the id by which a receiver recognises repeats of a delivery.
///
/// The id is a hash, because senders' ids are unique only within a source and may contain any
/// character. A redrive keeps the id, because the delivery may have been applied although its answers
/// were lost. A rewind changes the id, so that the delivery has its effect again.
pub(super) fn id(delivery: &Delivery) -> String {
    let name = Identity { redrive: 0, ..delivery.identity().clone() }.name();
    match delivery.run_before() {
        Some(token) => format!("{name}_{token}"),
        None => name,
    }
}

pub(super) fn age(age: Age) -> &'static str {
    match age {
        Age::Newer => "newer",
        Age::SameTime => "same-time",
        Age::Older => "older",
        Age::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::handlers::sample;

    fn sent(bodies: &[Vec<u8>]) -> (Document, Value) {
        let deliveries: Vec<_> =
            bodies.iter().map(|body| sample::delivery("\"1\"", "shop/order/№ 7", body.clone())).collect();
        let document = Document::new(&deliveries.iter().collect::<Vec<_>>(), FencingToken(9));
        let value = serde_json::from_slice(&document.clone().json()).unwrap();
        (document, value)
    }

    #[test]
    fn document_has_the_bodies_and_its_announced_length() {
        let long = |text: &str| text.repeat(3 * PIECE_BYTES / text.len()).into_bytes();
        let controls: String = (0..=0x7F_u8).map(char::from).collect();
        let bodies = [
            Vec::new(),
            b"{\"id\":7}".to_vec(),
            controls.into_bytes(),
            long("\u{2028}größe \u{1F600}\\\"\n"),
            long("a\u{1F600}"),
            long("\0"),
            long("0123456789").into_iter().chain([0xFF]).collect(),
            (0..=255).collect(),
        ];
        let read = |one: &Value| {
            let body = one["body"].as_str().unwrap();
            if one["body_is_base64"] == true { STANDARD.decode(body).unwrap() } else { body.as_bytes().to_vec() }
        };
        for some in (0..bodies.len()).map(|from| &bodies[from..]) {
            let (document, value) = sent(some);
            let bodies: Vec<Vec<u8>> = value["deliveries"].as_array().unwrap().iter().map(read).collect();
            assert!(bodies == some, "{value}");
            assert_eq!(document.bytes(), document.clone().json().len());
            assert!(document.into_pieces().all(|piece| piece.len() <= 2 * PIECE_BYTES));
        }
    }

    #[test]
    fn body_with_many_control_characters_is_sent_in_base64() {
        for (body, is_base64) in [("\"\"\"\n\t", false), ("\0", true), ("\0 \0", true), ("\0    ", false)] {
            let (_, value) = sent(&[body.into()]);
            assert_eq!(value["deliveries"][0]["body_is_base64"], is_base64, "{body:?}");
        }
        assert!(encoded_bytes(&[b'"'; 999]) == 1998 && encoded_bytes(&[1; 999]) == 1332);
    }
}
