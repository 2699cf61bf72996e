//! GitHub sends `X-Hub-Signature-256: sha256=…`, a hexadecimal HMAC-SHA256 of the body. Event and delivery id are in
//! unsigned headers.

use std::{borrow::Cow, time::Duration};

use super::{
    Encoding, Request, Signing,
    facts::{Facts, IdPart, Payload, Reads, Resolution, SignedParts},
    preset::Preset,
    rule::{EntityKind, Example, Rule, RuleLine},
};

pub(super) static GITHUB: Preset = Preset { signing: SIGNING, reads: READS, is_ping, ..Preset::PLAIN };

const SIGNING: Signing = Signing {
    header: Cow::Borrowed("X-Hub-Signature-256"),
    encoding: Encoding::Hex,
    prefix: Cow::Borrowed("sha256="),
    ..Signing::BODY
};

const EVENT: &str = "x-github-event";

fn is_ping(request: Request<'_>) -> bool {
    request.headers.first(EVENT) == Some("ping")
}

const fn line(families: &'static [&'static str], places: &'static [&'static str], kind: &'static str) -> RuleLine {
    RuleLine { families, places, kind: EntityKind::Named(kind) }
}

const LINES: &[RuleLine] = &[
    line(
        &["pull_request", "pull_request_review", "pull_request_review_comment", "pull_request_review_thread"],
        &["/pull_request/id"],
        "pull_request",
    ),
    line(&["issues", "issue_comment"], &["/issue/id"], "issue"),
    line(&["workflow_run", "workflow_job"], &["/workflow_run/id", "/workflow_job/run_id"], "workflow_run"),
    line(&["check_suite", "check_run"], &["/check_suite/id", "/check_run/check_suite/id"], "check_suite"),
    line(&["deployment", "deployment_status"], &["/deployment/id"], "deployment"),
    line(&["release"], &["/release/id"], "release"),
    line(&["installation", "installation_repositories", "installation_target"], &["/installation/id"], "installation"),
    line(&[], &["/repository/id"], "repository"),
    line(&[], &["/organization/id"], "organization"),
];

const fn example(event: &'static str, body: &'static str, entity: &'static str) -> Example {
    Example { header: Some((EVENT, event)), body, entity }
}

pub(super) const RULE: Rule = Rule {
    examples: &[
        example(
            "pull_request",
            r#"{"action":"opened","number":2,"pull_request":{"id":7,"number":2},"repository":{"id":1}}"#,
            "pull_request/7",
        ),
        example(
            "pull_request_review",
            r#"{"action":"submitted","review":{"id":3},"pull_request":{"id":7,"number":2},"repository":{"id":1}}"#,
            "pull_request/7",
        ),
        example("issues", r#"{"action":"opened","issue":{"id":7,"number":1},"repository":{"id":1}}"#, "issue/7"),
        example(
            "issue_comment",
            r#"{"action":"created","comment":{"id":3},"issue":{"id":7,"number":1},"repository":{"id":1}}"#,
            "issue/7",
        ),
        example(
            "workflow_job",
            r#"{"action":"completed","workflow_job":{"id":9,"run_id":8},"repository":{"id":1}}"#,
            "workflow_run/8",
        ),
        example("push", r#"{"ref":"refs/heads/main","repository":{"id":1}}"#, "repository/1"),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["x-github-delivery"])],
    topic: &[EVENT],
    account: &["/repository/full_name", "/organization/login"],
    event_time: &[
        "/comment/updated_at",
        "/review/submitted_at",
        "/pull_request/updated_at",
        "/issue/updated_at",
        "/workflow_run/updated_at",
        "/deployment_status/updated_at",
        "/updated_at",
    ],
    lines: LINES,
    horizon: Some(Duration::ZERO),
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the text that you wrote under *Secret* when the webhook was created",
    signing: Some(&SIGNING),
    signature: "",
    signed: SignedParts::BODY,
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Seconds),
    deadline: Some(Duration::from_secs(10)),
    retries: None,
    switches_off: "not documented",
    checks: "a delivery of the event `ping`, when the webhook is created. Ingest answers 200 and stores nothing",
    care: "The topic is the event's name alone; `/action` in the body says what happened. A redelivery by hand, within \
           3 days, has the same id. The comments of a pull request are of the event `issue_comment` and name only an \
           issue, which has another id; both have the same number. To keep them together, use `entity = \
           [\"{source}/{/repository/id}/{/pull_request/number}\", \"{source}/{/repository/id}/{/issue/number}\", \
           \"{source}/{entity}\"]`. Choose the content type `application/json`.",
    sources: &[
        "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries",
        "https://docs.github.com/en/webhooks/using-webhooks/best-practices-for-using-webhooks",
        "https://docs.github.com/en/webhooks/using-webhooks/handling-failed-webhook-deliveries",
        "https://github.com/octokit/webhooks",
    ],
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow::of("github", &SIGNING)]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("github-issues.json", "8f1b2c30-ea4d-11f0-9c1a-2f6b7d3e5a90", "issues", "issues", Some("Codertocat/Hello-World"), Some(1_767_690_662_000), "issue/444500041"),
        ("github-pull-request.json", "72d3162e-cc78-11e3-81ab-4c9367dc0958", "pull_request", "pull_request", Some("Codertocat/Hello-World"), Some(1_767_626_433_000), "pull_request/279147437"),
    ];

    /// The signature is the example in GitHub's documentation of webhooks.
    #[test]
    fn published_github_signature_is_accepted() {
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let verified = |event| {
            let headers = [("X-Hub-Signature-256", signature), (EVENT, event)];
            tests::verify(&GITHUB, &headers, b"Hello, World!", &["It's a Secret to Everybody"], 0)
        };
        assert_eq!((verified("push"), verified("ping")), (Ok(Verified::Delivery), Ok(Verified::Ping)));
    }
}
