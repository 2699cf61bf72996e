//! The ways in which a provider's events arrive: as webhooks, or as messages of a queue.

use super::{Headers, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inlet {
    Webhooks,
    /// Webhooks, or messages of a queue: bare events, or events in one of these envelopes.
    WebhooksOrQueue(&'static [Envelope]),
    /// Messages of a queue: bare events, or events in one of these envelopes. The provider sends no webhooks.
    Queue(&'static [Envelope]),
}

impl Inlet {
    pub fn has_webhooks(self) -> bool {
        !matches!(self, Self::Queue(_))
    }

    /// Returns the envelopes of the provider's events in a queue. `None` if its events come by no queue.
    pub fn envelopes(self) -> Option<&'static [Envelope]> {
        match self {
            Self::Webhooks => None,
            Self::WebhooksOrQueue(envelopes) | Self::Queue(envelopes) => Some(envelopes),
        }
    }

    /// Returns the event in a message's body, and the event's headers if its envelope holds them. A body without an
    /// envelope is itself the event.
    pub(crate) fn open(self, message: &[u8]) -> (&[u8], Option<Headers>) {
        let mut envelopes = self.envelopes().unwrap_or_default().iter();
        envelopes.find_map(|envelope| envelope.open(message)).unwrap_or((message, None))
    }
}

/// A JSON object that holds an event. The places are JSON pointers into the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// A place that bare events lack.
    pub mark: &'static str,
    pub body: &'static str,
    /// The object whose members are the event's headers. `None` if the message's attributes are the headers.
    pub headers: Option<&'static str>,
}

impl Envelope {
    /// An event of EventBridge: <https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-events-structure.html>
    /// (read on 2026-11-29).
    pub const EVENTBRIDGE: Self = Self { mark: "/detail-type", body: "/detail", headers: None };

    /// A CloudEvent in JSON: <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md> (read
    /// on 2026-11-29).
    pub const CLOUDEVENTS: Self = Self { mark: "/specversion", body: "/data", headers: None };

    fn open<'a>(&self, message: &'a [u8]) -> Option<(&'a [u8], Option<Headers>)> {
        json::json_text(message, self.mark)?;
        let body = json::json_text(message, self.body)?;
        let members = |place| json::json_text(message, place).map(json::scalars).unwrap_or_default();
        Some((body.as_bytes(), self.headers.map(|place| members(place).into_iter().collect())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITH_HEADERS: Envelope =
        Envelope { body: "/detail/payload", headers: Some("/detail/metadata"), ..Envelope::EVENTBRIDGE };

    #[test]
    fn envelope_is_opened_and_bare_event_is_kept() {
        let inlet = Inlet::Queue(&[Envelope::EVENTBRIDGE, Envelope::CLOUDEVENTS]);
        for (message, event) in [
            (r#"{"detail-type":"a","detail":{"id":1}}"#, r#"{"id":1}"#),
            (r#"{"specversion":"1.0","data":{"id":1}}"#, r#"{"id":1}"#),
            (r#"{"data":{"id":1},"detail":{"id":2}}"#, r#"{"data":{"id":1},"detail":{"id":2}}"#),
            (r#"{"detail-type":"a"}"#, r#"{"detail-type":"a"}"#),
            ("no JSON", "no JSON"),
        ] {
            assert_eq!(inlet.open(message.as_bytes()).0, event.as_bytes(), "{message}");
        }
        assert_eq!(Inlet::Webhooks.open(br#"{"detail-type":"a","detail":1}"#).0, br#"{"detail-type":"a","detail":1}"#);
    }

    #[test]
    fn headers_of_an_envelope_replace_those_of_the_message() {
        let open = |metadata: &str| {
            let message = format!(r#"{{"detail-type":"a","detail":{{"payload":{{}}{metadata}}}}}"#);
            Inlet::Queue(&[WITH_HEADERS]).open(message.as_bytes()).1
        };
        let headers = open(r#","metadata":{"X-Shop":"a","n":7,"none":null,"list":[1],"object":{}}"#).unwrap();
        assert_eq!((headers.get("x-shop"), headers.get("n"), headers.iter().count()), (Some("a"), Some("7"), 2));
        for unreadable in ["", r#","metadata":7"#, r#","metadata":null"#] {
            assert_eq!(open(unreadable).map(|headers| headers.iter().count()), Some(0), "{unreadable}");
        }
        assert!(Inlet::Queue(&[Envelope::EVENTBRIDGE]).open(br#"{"detail-type":"a","detail":1}"#).1.is_none());
    }
}
