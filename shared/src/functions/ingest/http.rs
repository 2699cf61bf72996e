//! The requests and answers of Function URLs and HTTP APIs (payload version 2.0), with the fields that
//! the ingest function uses, and the records of a queue's event.

use std::{borrow::Cow, collections::BTreeMap};

use super::queue::QueueRecord;
use crate::{
    protocol::entity::{EntityKey, Sequence},
    providers::{Headers, unescaped},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRequest {
    pub raw_path: String,
    #[serde(deserialize_with = "or_empty")]
    pub raw_query_string: String,
    #[serde(deserialize_with = "or_empty")]
    pub headers: BTreeMap<String, String>,
    pub body: Option<String>,
    pub is_base64_encoded: bool,
    pub request_context: RequestContext,
    /// The method in events of other forms. [`foreign`](Self::foreign) names these.
    #[serde(skip_serializing)]
    pub http_method: Option<String>,
    /// The messages of a queue's event. An enum of both events would copy each body once more.
    #[serde(rename = "Records", skip_serializing)]
    pub records: Vec<QueueRecord>,
}

/// Reads `null` as an empty value. `cargo lambda` sends `null` for a request without a query.
fn or_empty<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct RequestContext {
    pub http: Http,
    #[serde(skip_serializing)]
    pub elb: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Http {
    pub method: String,
}

impl HttpRequest {
    /// Returns what sent the event, if it is not that of a Function URL or an HTTP API with payload format 2.0.
    pub fn foreign(&self) -> Option<&'static str> {
        match self {
            // `cargo lambda` adds `httpMethod` to its events of Function URLs.
            Self { raw_path, .. } if !raw_path.is_empty() => None,
            Self { request_context: RequestContext { elb: Some(_), .. }, .. } => {
                Some("it is the event of a load balancer")
            }
            Self { http_method: Some(_), .. } => {
                Some("it is the event of a REST API, or of an HTTP API with payload format 1.0")
            }
            _ => Some("it is no HTTP request"),
        }
    }

    /// Returns the messages of a queue's event. Records of other services lack a message's id or ARN.
    pub fn messages(&self) -> Option<&[QueueRecord]> {
        let is_message = |record: &QueueRecord| !record.message_id.is_empty() && !record.event_source_arn.is_empty();
        (!self.records.is_empty() && self.records.iter().all(is_message)).then_some(&self.records)
    }

    pub fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        let body = self.body.as_deref().unwrap_or_default();
        if self.is_base64_encoded {
            STANDARD.decode(body).ok().map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(body.as_bytes()))
        }
    }

    pub fn compression(&self) -> Option<&str> {
        let codings = self.headers.get("content-encoding")?.split(',').map(str::trim);
        // Some senders name a character set in `content-encoding`, which changes no byte.
        codings.into_iter().find(|coding| COMPRESSIONS.iter().any(|known| known.eq_ignore_ascii_case(coding)))
    }

    pub fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.raw_query_string.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.into_iter().find_map(|(found, value)| (found == name).then_some(value))?;
        Some(String::from_utf8_lossy(&unescaped(value.replace('+', " "))).into_owned())
    }

    pub fn headers(&self) -> Headers {
        let headers: Headers = self.headers.iter().map(|(name, value)| (name, value.as_str())).collect();
        headers.with_query(self.raw_query_string.as_str())
    }

    /// Returns the source's name in the URL: `shop` for a path that ends in `/webhooks/shop`.
    pub fn source(&self) -> Option<&str> {
        let (_, source) = self.raw_path.rsplit_once("/webhooks/")?;
        Some(source.strip_suffix('/').unwrap_or(source)).filter(|source| !source.contains('/'))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    pub status_code: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
    pub is_base64_encoded: bool,
    pub cookies: Vec<String>,
}

impl Response {
    fn json(status_code: u16, body: serde_json::Value) -> Self {
        let headers = BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]);
        Self { status_code, headers, body: body.to_string(), is_base64_encoded: false, cookies: Vec::new() }
    }

    pub fn accepted(entity: &EntityKey, sequence: Sequence) -> Self {
        Self::json(200, serde_json::json!({ "accepted": sequence.0, "entity": entity }))
    }

    pub fn deferred(entity: &EntityKey) -> Self {
        Self::json(202, serde_json::json!({ "deferred": true, "entity": entity }))
    }

    /// If `body` is given, sets this body and the status 200, for senders that require both.
    #[must_use]
    pub(super) fn with_body(mut self, body: Option<String>) -> Self {
        let Some(body) = body else { return self };
        let content_type = match body.as_bytes().first() {
            Some(b'{') => "application/json",
            Some(b'<') => "text/xml",
            _ => "text/plain",
        };
        self.headers.insert("content-type".to_owned(), content_type.to_owned());
        Self { status_code: 200, body, ..self }
    }

    /// Creates the answer to an ignored delivery. `filter` is the place whose value its source does not take; `None` if
    /// the source does not take the topic.
    pub fn ignored(topic: &str, filter: Option<&str>) -> Self {
        Self::json(
            200,
            match filter {
                None => serde_json::json!({ "ignored": topic }),
                Some(place) => serde_json::json!({ "ignored": topic, "filter": place }),
            },
        )
    }

    pub fn fine() -> Self {
        Self::json(200, serde_json::json!({}))
    }

    pub fn challenged(parameter: &str, value: &str) -> Self {
        Self::json(200, serde_json::json!({ parameter: value }))
    }

    pub fn refused(status_code: u16, reason: &str) -> Self {
        Self::json(status_code, serde_json::json!({ "error": reason }))
    }

    /// Creates the refusal of a compressed body. No provider documents whether it signs before
    /// or after compression, and a few bytes can expand to gigabytes.
    pub fn compressed(coding: &str) -> Self {
        let reason = format!("the body is compressed ({coding}): send it as it is, without content-encoding");
        let mut response = Self::refused(415, &reason);
        response.headers.insert("accept-encoding".into(), "identity".into());
        response
    }

    pub fn wrong_method() -> Self {
        let mut response = Self::refused(405, "webhooks need POST");
        response.headers.insert("allow".into(), "POST".into());
        response
    }

    pub fn unavailable(reason: &str) -> Self {
        let mut response = Self::refused(503, reason);
        response.headers.insert("retry-after".into(), RETRY_AFTER_SECONDS.to_string());
        response
    }
}

/// The names of compressions in `content-encoding`, from RFC 9110, section 8.4.1, and its registry.
const COMPRESSIONS: [&str; 7] = ["gzip", "x-gzip", "deflate", "br", "zstd", "compress", "x-compress"];

/// The value of `Retry-After`. The store may be back after five seconds, and every sender that retries
/// does so for longer.
const RETRY_AFTER_SECONDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_or_absent_query_string_is_empty() {
        for event in ["{}", r#"{"rawQueryString":null}"#, r#"{"rawQueryString":""}"#] {
            assert_eq!(serde_json::from_str::<HttpRequest>(event).unwrap().raw_query_string, "", "{event}");
        }
    }

    #[test]
    fn compressed_content_encoding_is_detected_in_a_list() {
        let found = |value: &str| {
            let headers = BTreeMap::from([("content-encoding".to_owned(), value.to_owned())]);
            HttpRequest { headers, ..HttpRequest::default() }.compression().map(str::to_owned)
        };
        assert_eq!(found("gzip").as_deref(), Some("gzip"));
        assert_eq!(found("identity, GZIP").as_deref(), Some("GZIP"));
        for plain in ["", "identity", "utf-8", "gzipped", "aws-chunked"] {
            assert_eq!(found(plain), None, "{plain}");
        }
        assert_eq!(HttpRequest::default().compression(), None);
    }

    #[test]
    fn first_of_repeated_query_parameters_is_decoded() {
        let parameter = |query: &str| {
            HttpRequest { raw_query_string: query.into(), ..HttpRequest::default() }.parameter("challenge")
        };
        assert_eq!(parameter("a=b&challenge=c%2Bd+e%C3%A9&challenge=x").as_deref(), Some("c+d eé"));
        assert_eq!(parameter("challenge=").as_deref(), Some(""));
        assert_eq!(parameter("challenge=%&a").as_deref(), Some("%"));
        assert_eq!(parameter("challenge=%+f%zz%ff%4").as_deref(), Some("% f%zz\u{fffd}%4"));
        for query in ["", "challenge", "challenged=1", "a=challenge=1"] {
            assert_eq!(parameter(query), None, "{query}");
        }
    }
}
