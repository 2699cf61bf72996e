//! Slack sends `X-Slack-Signature: v0=…`, a hexadecimal HMAC-SHA256 of `v0:time:body`. When the URL is saved, Slack posts a
//! signed challenge, which the answer must repeat.

use std::{borrow::Cow, time::Duration};

use super::{
    Encoding, Part, Request, Secret, Signing, TimePlace,
    facts::{Facts, IdPart, Payload, Reads, Resolution, SignedParts},
    json::pointer,
    preset::Preset,
    rule::{EntityKind, Example, Rule, RuleLine},
};

pub(super) static SLACK: Preset = Preset { signing: SIGNING, reads: READS, objection, is_ping, ..Preset::PLAIN };

const TIME: &str = "x-slack-request-timestamp";

const SIGNING: Signing = Signing {
    header: Cow::Borrowed("X-Slack-Signature"),
    encoding: Encoding::Hex,
    prefix: Cow::Borrowed("v0="),
    time: Some(TimePlace::Header(Cow::Borrowed(TIME))),
    signed: Cow::Borrowed(&[Part::Text(Cow::Borrowed("v0:")), Part::Time, Part::Text(Cow::Borrowed(":")), Part::Body]),
    ..Signing::BODY
};

fn objection(secret: &Secret) -> Option<&'static str> {
    let is_token = [&b"xoxb-"[..], b"xoxp-", b"xapp-"].iter().any(|prefix| secret.expose().starts_with(prefix));
    is_token.then_some("it is an API token; use the app's signing secret")
}

fn is_ping(request: Request<'_>) -> bool {
    pointer(request.body, "/type").as_deref() == Some("url_verification")
}

const fn line(places: &'static [&'static str], kind: &'static str) -> RuleLine {
    RuleLine { families: &[], places, kind: EntityKind::Named(kind) }
}

const LINES: &[RuleLine] = &[
    line(
        &["/event/channel/id", "/event/channel", "/event/item/channel", "/event/channel_id", "{form:channel_id}"],
        "channel",
    ),
    line(&["/event/file_id", "/event/file/id"], "file"),
    line(&["/event/user/id", "/event/user"], "user"),
    line(&["/team_id", "{form:team_id}"], "team"),
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"type":"event_callback","team_id":"T7","event_id":"Ev1","event_time":1767621699,"event":{"type":"app_mention","user":"U7","channel":"C7","ts":"1767621699.000100","event_ts":"1767621699.000100"}}"#,
            "channel/C7",
        ),
        Example::new(
            r#"{"type":"event_callback","team_id":"T7","event_id":"Ev2","event_time":1767621804,"event":{"type":"reaction_added","user":"U8","item":{"type":"message","channel":"C7","ts":"1767621699.000100"},"event_ts":"1767621804.083113"}}"#,
            "channel/C7",
        ),
        Example::new(
            r#"{"type":"event_callback","team_id":"T7","event_id":"Ev3","event_time":1767621805,"event":{"type":"user_change","user":{"id":"U7"},"event_ts":"1767621805.000100"}}"#,
            "user/U7",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["/event_id", "{form:trigger_id}"])],
    topic: &["/event/type", "/type", "{form:command}"],
    account: &["/team_id", "{form:team_id}"],
    event_time: &["/event_time"],
    lines: LINES,
    horizon: Some(Duration::from_secs(24 * 3600 + 360)),
    posted_challenge: Some("/challenge"),
    // Slack shows the body of an answer to a slash command, and takes other JSON for a failure.
    answer: Some(""),
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the app's signing secret: *Basic Information → App Credentials*",
    signing: Some(&SIGNING),
    signature: ". The time is in `X-Slack-Request-Timestamp`",
    signed: SignedParts { headers: &[TIME], time: true, ..SignedParts::BODY },
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Seconds),
    deadline: Some(Duration::from_secs(3)),
    retries: Some(3),
    switches_off: "more than 95 % of the attempts within an hour fail, for apps with at least 1,000 events an hour",
    checks: "when the URL is saved (`url_verification`)",
    care: "Three retries come within 6 minutes; with *Delayed Events*, more come hourly for a day. An edited message is a new \
           event, and names what it was. Slash commands are forms: their topic is the command. The answer is empty, \
           because Slack shows its body to the user. Buttons and modals (`payload=…`) are parked: let them call a program of yours.",
    sources: &[
        "https://docs.slack.dev/authentication/verifying-requests-from-slack/",
        "https://docs.slack.dev/apis/events-api/",
        "https://docs.slack.dev/reference/events/url_verification",
    ],
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow::of("slack", &SIGNING)]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("slack-app-mention.json", "Ev0PV52K25", "app_mention", "app_mention", Some("T0SHOP1AB"), Some(1_767_621_699_000), "channel/C123ABC456"),
        ("slack-reaction-added.json", "Ev0PV52K27", "reaction_added", "reaction_added", Some("T0SHOP1AB"), Some(1_767_621_804_000), "channel/C123ABC456"),
    ];

    /// The request is the example in Slack's documentation, a slash command.
    #[test]
    fn published_slack_signature_is_accepted() {
        let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&\
                    channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&\
                    response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F\
                    96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
        let signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
        let headers = [("X-Slack-Signature", signature), ("X-Slack-Request-Timestamp", "1531420618")];
        let secrets = ["8f742231b10e8888abcd99yyyzzz85a5"];
        assert_eq!(tests::verify(&SLACK, &headers, body.as_bytes(), &secrets, 1_531_420_618), Ok(Verified::Delivery));
        let described = tests::describe(&SLACK, &[], body);
        assert_eq!(
            (described.topic.as_str(), described.entity.as_deref()),
            ("/webhook-collect", Some("channel/G8PSS9T3V"))
        );
    }

    #[test]
    fn slack_url_verification_is_answered_by_its_challenge() {
        let body = br#"{"token":"t","challenge":"3eZbrw1a","type":"url_verification"}"#;
        let secret = Secret::new("secret");
        let headers: Headers = SLACK.sign(&Headers::default(), body, &secret, NOW).into_iter().collect();
        let request = Request { headers: &headers, body };
        assert_eq!(SLACK.verify(request, &[secret]).map(|proof| proof.verified), Ok(Verified::Ping));
        assert_eq!(SLACK.posted_challenge(request).as_deref(), Some("3eZbrw1a"));
    }
}
