//! Makes the page about providers from their tables.

use std::{fmt::Write, time::Duration};

use webhook_serializer::providers::{
    self, EntityKind, Envelope, Facts, FailureLimit, IdPart, Payload, Reads, Resolution, Rule, RuleLine, ShopOrder,
    SignedParts, Signing,
};

pub fn providers() -> String {
    let known = || providers::NAMES.into_iter().filter_map(|name| Some((name, providers::rule_of(name)?)));
    let mut page = HEAD.to_owned();
    page.push_str("\n| provider | signature covers | signed fields | retries | repeats have | deadline |\n|---|---|---|---|---|---|\n");
    for (name, Rule { reads, facts, .. }) in known().filter(|(_, rule)| rule.reads.inlet.has_webhooks()) {
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

const HEAD: &str = r#"<!-- Made by `just generate`; a test compares. Change the tables in shared/src/providers/ instead. -->

# What each provider does

This page says how each provider signs, sends and repeats webhooks. [Sources](sources.md) explains the configuration, and [connect the senders](deploying.md#connect-the-senders) shows the steps in the providers' consoles.
"#;

const BETWEEN: &str = r#"
The events of `amazon-sp-api` and `commercetools` come [by a queue](queues.md) only. *Signed fields* lists what the signature covers of delivery id, topic, account and event time. The others come in unsigned headers, or do not exist. *Deadline* is how long the provider waits for an answer.

## What a signature is worth

**An unsigned id, topic or time proves nothing.** Anybody who has seen one signed request can send its body again under another id or topic. The signature is still valid, so the copy is a new delivery and not a repeat.

TLS hides requests from others; keep bodies and signatures out of logs. If that is not enough:

- Trust the body, not the topic. The body of an order's creation can come again under the topic of its cancellation. A handler that reads `cancelled_at` is not deceived.
- Compare the event time with the newest one applied, by `delivery.age()`.
- Ask the provider's API before an irreversible effect.

If the id is signed, a copied request is recognised as a repeat while receipts are kept (30 days by default). If the provider also signs the time of sending, ingest refuses a request whose time is more than `tolerance` (5 minutes) from now. It does not check [PayPal's](#paypal).

## What counts as a repeat

A delivery with the id of an earlier one of its source is a repeat, while receipts are kept. If a provider sends no id, the body's hash replaces it.

An equal body is a repeat while the provider may still retry the first one, and for at most as long again. Later, an equal body is a new delivery with a new id (`serializer-delivery-id`, `webhook-id`), because an order can reach the same state again.

- A provider may retry until its last documented retry, or for 3 days if none is documented. The serializer counts time in periods of that length. So it recognises an equal body for at least one period, and at most two.
- If a provider never retries, each request is a delivery. Only [deferred](sources.md#while-the-tables-cannot-be-reached) deliveries can come twice, and these are recognised.
- The same rules hold if a provider that usually sends an id leaves it out.

None of the providers below promises order. `commercetools` numbers the messages of each resource (`sequenceNumber`). Elsewhere, [Asaas](https://docs.asaas.com/docs/send-types) and [Polar](https://www.mintlify.com/polarsource/polar/integrate/webhooks/delivery) can send an endpoint's events in sequence (read on 2026-11-26). Many providers give times in whole seconds, and events of the same second cannot be compared.

Each secret of a source is tried, in constant time, over the bytes as received. If a header comes twice, its first value counts; for a signature or time, the request may be refused instead. If the values of a delivery id differ, the body's hash is added to the first.

In the sections below, `/…` is a JSON pointer into the body. `{form:…}` is a field of a form, and `{query:…}` a parameter of the URL. `ID` is the value at that place. `FAMILY` is the [topic's family](sources.md#entity-what-order-is-kept-for). A `+` joins the parts of a delivery id.
"#;

fn section(name: &str, rule: &Rule, page: &mut String) {
    let Rule { reads, facts, .. } = rule;
    let _ = write!(page, "\n## {name}\n\n");
    let mut row = |title: &str, text: String| {
        let space = if text.starts_with('\n') { "" } else { " " };
        let _ = writeln!(page, "- **{title}**:{space}{text}");
    };
    let has_webhooks = reads.inlet.has_webhooks();
    if has_webhooks {
        row("secret", facts.secret.into());
        row("signature", facts.signing.map(Signing::describe).unwrap_or_default() + facts.signature);
    }
    if let Some(envelopes) = reads.inlet.envelopes() {
        row("in a queue", in_queue(envelopes));
    }
    // Nothing in a message is less protected than the rest of it.
    let signed = if has_webhooks { &facts.signed } else { &SignedParts::BODY };
    row("delivery id", delivery_id(reads, signed));
    row("topic", places(reads.topic, signed));
    row("account", places(reads.account, signed));
    row("event time", event_time(reads, facts, signed));
    row("payload", payload(facts.payload).into());
    row("entity", entities(reads.lines));
    if let ShopOrder::Copied { to, fields } = reads.shop_order {
        row("the shop's order", shop_order(to, fields));
    }
    if has_webhooks {
        row("disabled after", disabled_after(reads, facts));
        row("pings, challenges", challenges(reads, facts));
    }
    row("notes", facts.care.into());
    row("documentation", facts.sources.iter().map(|source| format!("<{source}>")).collect::<Vec<_>>().join(" "));
}

fn in_queue(envelopes: &[Envelope]) -> String {
    let envelope = |envelope: &Envelope| {
        let headers = envelope.headers.map(|place| format!(", with its headers in `{place}`")).unwrap_or_default();
        format!("`{}`{headers}, of a message with `{}`", envelope.body, envelope.mark)
    };
    let envelopes: Vec<String> = envelopes.iter().map(envelope).collect();
    format!("the event is {}, else the whole message. See [queues](queues.md)", envelopes.join(", else "))
}

fn shop_order(to: &str, fields: &[&str]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| format!("`{{{field}}}`")).collect();
    format!("write its id into {to}; a template finds it in {}", fields.join(" or "))
}

fn covered(signed: &SignedParts) -> String {
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
    if !signed.fields.is_empty() {
        parts.push("some fields of the body".to_owned());
    }
    if parts.is_empty() { "**nothing**".to_owned() } else { parts.join(", ") }
}

fn is_signed(place: &str, signed: &SignedParts) -> bool {
    match place.as_bytes().first() {
        Some(b'/') => signed.body || signed.fields.contains(&place),
        Some(b'{') => {
            if place.starts_with("{form:") {
                signed.body
            } else {
                signed.url
            }
        }
        _ => signed.headers.contains(&place),
    }
}

fn signed_marks(reads: &Reads, signed: &SignedParts) -> String {
    let all = |places: &[&str]| !places.is_empty() && places.iter().all(|place| is_signed(place, signed));
    let is_signed = |part: &IdPart| match part {
        IdPart::Account => all(reads.account),
        IdPart::Topic => all(reads.topic),
        IdPart::At(places) | IdPart::Maybe(places) => all(places),
        IdPart::Body | IdPart::Request => signed.body,
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

/// Lists the places of a value in a request, in the order in which the places are tried. The words `header`, `signed`
/// and `unsigned` are added only where they change from one place to the next.
fn places(places: &[&str], signed: &SignedParts) -> String {
    let mut shown = Vec::new();
    let mut before = (true, false);
    for place in places {
        let is_signed = is_signed(place, signed);
        let is_header = !place.starts_with(['/', '{']);
        let protection = match (before.0, is_signed) {
            (true, false) => "unsigned ",
            (false, true) => "signed ",
            _ => "",
        };
        let header = if is_header && before != (is_signed, true) { "header " } else { "" };
        shown.push(format!("{protection}{header}`{place}`"));
        before = (is_signed, is_header);
    }
    if shown.is_empty() { "none".to_owned() } else { shown.join(", else ") }
}

fn delivery_id(reads: &Reads, signed: &SignedParts) -> String {
    let part = |part: &IdPart| match part {
        IdPart::Account => "the account".to_owned(),
        IdPart::Topic => "the topic".to_owned(),
        IdPart::At(at) => format!("{}, else the body's hash", places(at, signed)),
        IdPart::Maybe(at) => places(at, signed),
        IdPart::Body => "the body's hash".to_owned(),
        IdPart::Request => "none: each request is a delivery".to_owned(),
    };
    match reads.delivery_id {
        [one] => part(one),
        parts => {
            let grouped = |text: String| if text.contains(", else ") { format!("({text})") } else { text };
            parts.iter().map(part).map(grouped).collect::<Vec<_>>().join(" + ")
        }
    }
}

fn event_time(reads: &Reads, facts: &Facts, signed: &SignedParts) -> String {
    let clock = match facts.resolution {
        None => return "none".to_owned(),
        Some(Resolution::Seconds) => "in whole seconds",
        Some(Resolution::Milliseconds) => "in milliseconds",
    };
    format!("{}; {clock}", places(reads.event_time, signed))
}

fn payload(payload: Payload) -> &'static str {
    match payload {
        Payload::Snapshot => "the state at the event, also in a retry",
        Payload::Current => "the state when it is sent",
        Payload::Reference => "an id only: fetch the rest",
        Payload::Depends => "the state at the event, or only an id",
    }
}

fn repeats(reads: &Reads) -> String {
    match reads.retried_for() {
        _ if !reads.names_by_body() => "the same id".to_owned(),
        Duration::ZERO => "–: each request is a delivery".to_owned(),
        time => format!("an equal body, for {} to {}", length(time), length(2 * time)),
    }
}

fn retries(reads: &Reads, facts: &Facts) -> String {
    match (facts.retries, reads.horizon) {
        _ if !reads.has_retries() => {
            "none; [deferred](sources.md#while-the-tables-cannot-be-reached) in an outage".to_owned()
        }
        (Some(times), Some(within)) => format!("{times}, within {}", length(within)),
        (Some(times), None) => format!("{times}"),
        (None, Some(within)) => format!("within {}", length(within)),
        (None, None) => "not documented".to_owned(),
    }
}

fn disabled_after(reads: &Reads, facts: &Facts) -> String {
    let number = match reads.failure_limit {
        Some(FailureLimit::At(number)) => format!("{number} failures in a row: "),
        Some(FailureLimit::Above(number)) => format!("more than {number} failures in a row: "),
        None => String::new(),
    };
    number + facts.switches_off
}

fn challenges(reads: &Reads, facts: &Facts) -> String {
    let get = reads.challenge.map(|parameter| format!("a GET with a `{parameter}` "));
    let post = reads.posted_challenge.map(|place| format!("a signed POST, answered by its `{place}` "));
    get.or(post).unwrap_or_default() + facts.checks
}

fn length(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 48 * 3600 && seconds % (24 * 3600) == 0 => format!("{} days", seconds / (24 * 3600)),
        seconds if seconds >= 2 * 3600 => format!("{} h", seconds / 3600),
        seconds => format!("{seconds} s"),
    }
}

fn entities(lines: &[RuleLine]) -> String {
    match lines {
        [one] => line(one),
        several => several.iter().map(|one| format!("\n  - {}", line(one))).collect(),
    }
}

fn line(line: &RuleLine) -> String {
    let families = if line.families.is_empty() { String::new() } else { format!("{}: ", families(line)) };
    format!("{families}{} from {}", kind(line.kind), ids(line))
}

fn ids(line: &RuleLine) -> String {
    line.places.iter().map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", else ")
}

fn families(line: &RuleLine) -> String {
    line.families.iter().map(|family| format!("`{family}`")).collect::<Vec<_>>().join(", ")
}

fn kind(kind: EntityKind) -> String {
    match kind {
        EntityKind::Named(kind) => format!("`{kind}/ID`"),
        EntityKind::Family => "`FAMILY/ID`".to_owned(),
        EntityKind::At(place) => format!("`TYPE/ID`, with the type in `{place}`,"),
        EntityKind::Inside { word, marks } => {
            let marks = marks.iter().map(|mark| format!("`{mark}`")).collect::<Vec<_>>().join(" or ");
            format!("`{word}/ID`, with the ID after {marks},")
        }
    }
}
