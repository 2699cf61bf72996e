//! The page `docs/providers.md`: facts about each provider.

use std::{fmt::Write, time::Duration};

use webhook_serializer::providers::{self, Facts, IdPart, Kind, Line, Payload, Reads, Resolution, Rule, Signed};

/// Returns the page in Markdown.
pub fn providers() -> String {
    let known = || providers::NAMES.into_iter().filter_map(|name| Some((name, providers::rule_of(name)?)));
    let mut page = HEAD.to_owned();
    page.push_str("\n| provider | the signature covers | of id, topic, account and time are signed | retries | what counts as a repeat | deadline |\n|---|---|---|---|---|---|\n");
    for (name, Rule { reads, facts, .. }) in known() {
        let _ = writeln!(
            page,
            "| [`{name}`](#{name}) | {} | {} | {} | {} | {} |",
            covered(&facts.signed),
            signed_marks(&reads, &facts.signed),
            retries(&reads, &facts),
            repeats(&reads),
            facts.deadline.map_or("not documented".into(), length),
        );
    }
    page.push_str(BETWEEN);
    for (name, rule) in known() {
        section(name, &rule, &mut page);
    }
    page
}

const HEAD: &str = r#"<!-- Made by `cargo run -- check --providers`; a test compares. Change the tables in shared/src/providers/ instead. -->

# What each provider does

How each provider of `provider = "…"` signs, sends and repeats, and what follows from it. [Sources](sources.md) says how to configure one; [connect the senders](deploying.md#connect-the-senders) where its console is.
"#;

const BETWEEN: &str = r#"
The third column names those of delivery id, topic, account and event time that the signature covers. The others come in unsigned headers or are missing. The deadline is how long the provider waits for an answer.

## What a signature is worth

**An unsigned id, topic or time protects against nothing.** Anybody who has seen one signed request can send its body again under another id or topic, and its signature fits: it is a new delivery, not a repeat. TLS keeps others from seeing requests; keep bodies and signatures out of logs. Where that is not enough:

- Trust the body. A handler that trusts the topic alone can be told that an order was cancelled, with the body of its creation; one that reads `cancelled_at` cannot.
- Compare the body's own time with the newest applied, by `delivery.age()`.
- Before an irreversible effect, ask the provider's API.

A request with a signed id is recognised as a repeat for as long as receipts are kept (30 days by default). If its time is signed too, it is refused once it is older than `tolerance` (5 minutes).

## What counts as a repeat

Two deliveries with the same id are repeats, as long as receipts are kept. If a provider sends no id, the body's hash replaces it: an equal body is a repeat only while the provider may still retry the first one. After that it is a new delivery with a new id (`serializer-delivery-id`, `webhook-id`), because an order can reach the same state again.

- That time is the provider's last retry, or 3 days if it is not documented. It is counted in periods, so an equal body is recognised for at least one period and at most two.
- If a provider never retries, each request is a delivery. Only [deferred](sources.md#while-the-tables-cannot-be-reached) deliveries can come twice, and are recognised.
- A delivery whose provider usually sends an id, but did not, is handled the same way.

No provider promises order. Many clocks tick in whole seconds, so events of one tick cannot be compared.

Every secret of a source is tried, in constant time, over the bytes as received. If a header comes twice, the first counts or the request is refused.
"#;

fn section(name: &str, rule: &Rule, page: &mut String) {
    let Rule { reads, facts, lines, .. } = rule;
    let _ = write!(page, "\n## {name}\n\n| | |\n|---|---|\n");
    let mut row = |title: &str, text: String| {
        let _ = writeln!(page, "| {title} | {text} |");
    };
    row("secret", facts.secret.into());
    row("signature", facts.signature.into());
    row("delivery id", delivery_id(reads, &facts.signed));
    row("topic", places(reads.topic, &facts.signed));
    row("account", places(reads.account, &facts.signed));
    row("event time", event_time(reads, facts));
    row("payload", payload(facts.payload).into());
    let entities = lines.iter().map(line).collect::<Vec<_>>().join("; ");
    row("entity", entities);
    row("switches an endpoint off", facts.switches_off.into());
    row("pings, challenges", facts.checks.into());
    row("besides", facts.care.into());
    row("from", facts.sources.iter().map(|source| format!("<{source}>")).collect::<Vec<_>>().join(" "));
}

fn covered(signed: &Signed) -> String {
    let mut parts = Vec::new();
    if signed.url {
        parts.push("the URL that is called".to_owned());
    }
    // The headers `svix-…` are aliases.
    parts.extend(signed.headers.iter().filter(|name| !name.starts_with("svix-")).map(|name| format!("`{name}`")));
    if signed.time && signed.headers.is_empty() {
        parts.push("a time".to_owned());
    }
    if signed.body {
        parts.push(if signed.by_checksum { "**the CRC-32** of the body" } else { "the body" }.to_owned());
    }
    if parts.is_empty() { "**nothing**".to_owned() } else { parts.join(", ") }
}

fn is_signed(place: &str, signed: &Signed) -> bool {
    if place.starts_with('/') { signed.body } else { signed.headers.contains(&place) }
}

/// Lists which of delivery id, topic, account and event time the signature covers.
fn signed_marks(reads: &Reads, signed: &Signed) -> String {
    let all = |places: &[&str]| !places.is_empty() && places.iter().all(|place| is_signed(place, signed));
    let is_signed = |part: &IdPart| match part {
        IdPart::Account => all(reads.account),
        IdPart::Topic => all(reads.topic),
        IdPart::At(places) | IdPart::Maybe(places) => all(places),
        IdPart::Body => signed.body,
    };
    let marks = [
        ("id", reads.delivery_id.iter().all(is_signed)),
        ("topic", all(reads.topic)),
        ("account", all(reads.account)),
        ("time", all(reads.event_time)),
    ];
    let marks: Vec<_> = marks.into_iter().filter_map(|(mark, is_signed)| is_signed.then_some(mark)).collect();
    let by_checksum = if signed.by_checksum { "by the CRC-32 alone: " } else { "" };
    if marks.is_empty() { "**none**".to_owned() } else { format!("{by_checksum}{}", marks.join(", ")) }
}

fn places(places: &[&str], signed: &Signed) -> String {
    let shown = |place: &&str| {
        let what = if place.starts_with('/') { "" } else { "header " };
        let mark = if is_signed(place, signed) { "" } else { " (**not signed**)" };
        format!("{what}`{place}`{mark}")
    };
    match places {
        [] => "none".to_owned(),
        places => places.iter().map(shown).collect::<Vec<_>>().join(", else "),
    }
}

fn delivery_id(reads: &Reads, signed: &Signed) -> String {
    let part = |part: &IdPart| match part {
        IdPart::Account => "the account".to_owned(),
        IdPart::Topic => "the topic".to_owned(),
        IdPart::At(at) => format!("{}, else the body's hash", places(at, signed)),
        IdPart::Maybe(at) => places(at, signed),
        IdPart::Body => "the body's hash".to_owned(),
    };
    reads.delivery_id.iter().map(part).collect::<Vec<_>>().join("; ")
}

fn event_time(reads: &Reads, facts: &Facts) -> String {
    let clock = match facts.resolution {
        None => return "none".to_owned(),
        Some(Resolution::Seconds) => "in whole seconds",
        Some(Resolution::Milliseconds) => "in milliseconds",
    };
    format!("{}; {clock}", places(reads.event_time, &facts.signed))
}

fn payload(payload: Payload) -> &'static str {
    match payload {
        Payload::Snapshot => "the state when the event happened, also in a retry",
        Payload::Current => "the state when it is sent",
        Payload::Reference => "an id only: fetch the rest",
        Payload::Depends => "depends on the event: the state when it happened, or an id only",
    }
}

fn repeats(reads: &Reads) -> String {
    let days = |time: Duration| time.as_secs() / (24 * 3600);
    match reads.retried_for() {
        _ if !reads.names_by_body() => "the same id, as long as receipts are kept".to_owned(),
        Duration::ZERO => "nothing: each request is a delivery".to_owned(),
        time => format!("an equal body, for {} to {} days", days(time), days(2 * time)),
    }
}

fn retries(reads: &Reads, facts: &Facts) -> String {
    match (facts.retries, reads.horizon) {
        (Some(0), _) => {
            "none are made: [deferred](sources.md#while-the-tables-cannot-be-reached) in an outage".to_owned()
        }
        (Some(times), Some(within)) => format!("{times}, within {}", length(within)),
        (Some(times), None) => format!("{times}"),
        (None, Some(within)) => format!("within {}", length(within)),
        (None, None) => "not documented".to_owned(),
    }
}

fn length(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 48 * 3600 && seconds % (24 * 3600) == 0 => format!("{} days", seconds / (24 * 3600)),
        seconds if seconds >= 2 * 3600 => format!("{} h", seconds / 3600),
        seconds => format!("{seconds} s"),
    }
}

fn line(line: &Line) -> String {
    let families = if line.families.is_empty() { String::new() } else { format!("{}: ", families(line)) };
    format!("{families}{} makes {}", ids(line), kind(line.kind))
}

fn ids(line: &Line) -> String {
    line.places.iter().map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", else ")
}

fn families(line: &Line) -> String {
    line.families.iter().map(|family| format!("`{family}`")).collect::<Vec<_>>().join(", ")
}

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Named(kind) => format!("`{kind}/ID`"),
        Kind::Family => "`FAMILY/ID`".to_owned(),
        Kind::At(place) => format!("`TYPE/ID`, the type from `{place}`"),
        Kind::Inside { word, marks } => {
            let marks = marks.iter().map(|mark| format!("`{mark}`")).collect::<Vec<_>>().join(" or ");
            format!("`{word}/ID`, the id behind {marks}")
        }
    }
}
