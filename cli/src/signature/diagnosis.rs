//! Diagnoses invalid webhooks. The diagnosis tries common mistakes one at a time, and reports the first mistake that
//! explains the signature.

use std::time::Duration;

use webhook_serializer::{
    providers::{self, Address, NAMES, Unverified, Verified},
    sources::{CredentialField, Source},
    time::Timestamp,
};

use super::{SignatureClaim, bodies, secrets, signatures};

/// The greatest age of a webhook whose time is taken for milliseconds.
const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

pub(super) fn of(claim: &SignatureClaim, source: &Source, refusal: &Unverified) -> String {
    match refusal {
        Unverified::Stale(signed_at) => stale(*signed_at, claim),
        Unverified::Missing(name) => missing(claim, name),
        Unverified::Malformed(name) => malformed(claim, name),
        Unverified::Doubled(name) => doubled(claim, name),
        Unverified::NoToken(parameter) => no_token(claim, parameter),
        Unverified::NotInBody(name) => another_provider(claim)
            .unwrap_or_else(|| format!("the body has no `{name}`, with which {} signs", claim.provider)),
        Unverified::Mismatch => mismatch(claim, source),
        Unverified::Unfetched(at) => format!("the sender's key at {at} was not fetched"),
        Unverified::Outdated(at) => format!("{} does not contain the key that the webhook names", of_key(claim, at)),
        Unverified::Unusable(at, reason) => format!("{} cannot be used: {reason}", of_key(claim, at)),
        Unverified::Certificate(reason) => format!("the sender's certificate is not valid: {reason}"),
    }
}

fn of_key(claim: &SignatureClaim, at: &Address) -> String {
    let is_given = claim.files.iter().any(|(name, _)| name == at.file());
    if is_given { format!("the given {}", at.file()) } else { format!("the document at {at}") }
}

/// Explains why no key can be made of a secret. The signature may still tell which form of it is right.
pub(super) fn unusable_secret(claim: &SignatureClaim, reason: &str) -> String {
    secret(claim).map_or_else(|| reason.to_owned(), |found| format!("{reason}. But {found}"))
}

pub(super) fn of_compressed(coding: &str) -> String {
    format!(
        "the body is compressed ({coding}), and ingest answers 415 to it, whatever its signature: let the sender or the \
         proxy send it without compression"
    )
}

fn stale(signed_at: Timestamp, claim: &SignatureClaim) -> String {
    let now = claim.now;
    let in_seconds = Timestamp::from_millis(signed_at.as_millis() / 1000);
    if in_seconds.since(now).max(now.since(in_seconds)) < YEARS {
        return format!(
            "the signature fits, but its time, {}, is in milliseconds, but {} demands seconds: the sender must correct \
             that",
            signed_at.as_millis() / 1000,
            claim.provider
        );
    }
    let (away, side) = match now.since(signed_at) {
        away if !away.is_zero() => (away, "before"),
        _ => (signed_at.since(now), "after"),
    };
    let seconds = away.as_secs();
    format!(
        "the signature fits, but its time, {signed_at}, is {seconds} s {side} this check, more than allowed. For an \
         old webhook, add --now {}. If it has just arrived, a clock is wrong or somebody replayed it. To allow more, \
         add --option tolerance=SECONDS",
        signed_at.as_millis() / 1000
    )
}

fn missing(claim: &SignatureClaim, name: &str) -> String {
    if let Some(found) = another_provider(claim) {
        return found;
    }
    if claim.headers.is_empty() {
        return format!("there is no header {name}: give each header of the webhook with --header '{name}: …'");
    }
    let given: Vec<&str> = claim.headers.iter().map(|(name, _)| name.as_str()).collect();
    format!("header {name} is missing; the given headers are {}", given.join(", "))
}

fn no_token(claim: &SignatureClaim, parameter: &str) -> String {
    if let Some(found) = another_provider(claim) {
        return found;
    }
    match &claim.url {
        None => format!(
            "{} does not sign its webhooks: give the URL that it calls, with --url 'https://…?{parameter}=…'",
            claim.provider
        ),
        Some(_) => format!("the URL has no `?{parameter}=`, in which {} sends the secret", claim.provider),
    }
}

fn is_by_token(claim: &SignatureClaim, source: &Source) -> bool {
    let without = SignatureClaim { url: None, ..claim.clone() }.verified_by(source);
    claim.reads_url() && matches!(without, Err(Unverified::NoToken(_) | Unverified::Missing(_)))
}

fn malformed(claim: &SignatureClaim, name: &str) -> String {
    if let Some(found) = signature(claim) {
        return found;
    }
    let own = claim.source().map(|source| source.sign(&claim.headers(), b"{}", claim.now)).unwrap_or_default();
    let shown = own.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str());
    match shown {
        Some(shown) => format!("header {name} cannot be read; {} sends a value such as `{shown}`", claim.provider),
        None => format!("header {name} cannot be read"),
    }
}

fn doubled(claim: &SignatureClaim, name: &str) -> String {
    let reason = format!(
        "header {name} has several values. If it came several times, Lambda joined them by commas: send it once"
    );
    signature(claim).unwrap_or(reason)
}

fn mismatch(claim: &SignatureClaim, source: &Source) -> String {
    match source.missing_field() {
        Some(CredentialField::Secrets) => return "there is no --secret to verify it with".to_owned(),
        Some(field) => return format!("there is no --option {field}=… to verify it with"),
        None => {}
    }
    if claim.options.iter().any(|(name, _)| name == "token_in") {
        return "the token that the request holds matches none of the given secrets".to_owned();
    }
    let explained = body(claim)
        .or_else(|| signature(claim))
        .or_else(|| secret(claim))
        .or_else(|| option(claim))
        .or_else(|| another_provider(claim));
    explained.unwrap_or_else(|| {
        if is_by_token(claim, source) {
            return "the token in the URL matches none of the given secrets".to_owned();
        }
        if claim.is_published() {
            return format!(
                "the signature does not fit this body of {} bytes{}: it was made with another key, over other bytes, \
                 or for another recipient. {}",
                claim.body.len(),
                given(claim),
                lost(&claim.body)
            );
        }
        let secrets = match claim.secrets.len() {
            1 => "the given secret".to_owned(),
            count => format!("any of the {count} given secrets"),
        };
        let url = match claim.signs_url() {
            true => format!(
                "{} signs the URL: compare --url with the URL of the subscription, byte for byte. ",
                claim.provider
            ),
            false => String::new(),
        };
        format!(
            "the signature does not fit this body of {} bytes with {secrets}, nor with the usual changes of the body. \
             {url}Compare the secret with the one that the sender shows for this endpoint. {}",
            claim.body.len(),
            lost(&claim.body)
        )
    })
}

fn given(claim: &SignatureClaim) -> String {
    let ids = claim.options.iter().filter(|(name, _)| name.ends_with("_id"));
    let ids: Vec<String> = ids.map(|(name, value)| format!("the {name} {value}")).collect();
    if ids.is_empty() { String::new() } else { format!(" for {}", ids.join(" or ")) }
}

fn lost(body: &[u8]) -> &'static str {
    match std::str::from_utf8(body) {
        _ if body.is_empty() => "The body is empty",
        _ if body.starts_with(&[0x1f, 0x8b]) => "The body is compressed (gzip): ingest takes only bodies that are not",
        Ok(text) if text.contains('\u{fffd}') => "The body contains U+FFFD, which replaced lost bytes",
        _ => "Verify the bytes as they were received, before anything parses them",
    }
}

fn report(claim: &SignatureClaim, mistake: &str) -> String {
    let refusal = claim.source().ok().and_then(|source| claim.verified_by(&source).err());
    match refusal {
        Some(Unverified::Stale(signed_at)) => format!("{mistake}. Besides, {}", stale(signed_at, claim)),
        _ => mistake.to_owned(),
    }
}

fn body(claim: &SignatureClaim) -> Option<String> {
    bodies::variants(&claim.body).into_iter().chain(bodies::renumbered(&claim.body)).find_map(|(body, mistake)| {
        let other = SignatureClaim { body, ..claim.clone() };
        other.is_signed().then(|| report(&other, &mistake))
    })
}

fn signature(claim: &SignatureClaim) -> Option<String> {
    (0..claim.headers.len()).find_map(|index| {
        let (name, value) = &claim.headers[index];
        signatures::variants(value).into_iter().find_map(|(value, mistake)| {
            let mut other = claim.clone();
            other.headers[index].1 = value;
            other.is_signed().then(|| report(&other, &format!("the signature in {name} {mistake}")))
        })
    })
}

fn secret(claim: &SignatureClaim) -> Option<String> {
    (1..).zip(&claim.secrets).find_map(|(number, secret)| {
        secrets::variants(secret).into_iter().find_map(|(secret, mistake)| {
            let other = SignatureClaim { secrets: vec![secret], ..claim.clone() };
            other.is_signed().then(|| report(&other, &format!("the signature {mistake} (--secret, number {number})")))
        })
    })
}

fn option(claim: &SignatureClaim) -> Option<String> {
    let set = |name: &str, value: String| {
        let kept = claim.options.iter().filter(|(held, _)| held != name).cloned();
        let other =
            SignatureClaim { options: kept.chain([(name.to_owned(), value.clone())]).collect(), ..claim.clone() };
        (other, format!("--option {name}={value}"))
    };
    let given = |name: &str| claim.options.iter().find(|(held, _)| held == name).map(|(_, value)| value.clone());
    let mut others = Vec::new();
    if let Some(url) = claim.url.as_ref().filter(|_| claim.signs_url()) {
        let with = |url: String| (SignatureClaim { url: Some(url.clone()), ..claim.clone() }, format!("--url {url}"));
        others.extend(urls(url, &claim.headers).into_iter().map(with));
    }
    if claim.provider == "paypal" && set("webhook_id", SIMULATOR.to_owned()).0.is_signed() {
        return Some(format!(
            "PayPal's webhook simulator signed it, for the webhook_id {SIMULATOR} that everybody's simulated webhooks \
             have. Try with a real event of the sandbox instead"
        ));
    }
    for hash in ["sha1", "sha256", "sha512"].into_iter().filter(|_| given("hash").is_some()) {
        for encoding in ["hex", "base64"] {
            let (with_hash, said) = set("hash", hash.to_owned());
            let kept = with_hash.options.into_iter().filter(|(name, _)| name != "encoding");
            let options = kept.chain([("encoding".to_owned(), encoding.to_owned())]).collect();
            others.push((SignatureClaim { options, ..claim.clone() }, format!("{said} --option encoding={encoding}")));
        }
    }
    others
        .into_iter()
        .find_map(|(other, said)| other.is_signed().then(|| report(&other, &format!("the signature fits with {said}"))))
}

/// The recipient's id in signatures of PayPal's webhook simulator, read on 2026-11-26 at
/// <https://developer.paypal.com/api/rest/webhooks/simulator>.
const SIMULATOR: &str = "WEBHOOK_ID";

/// Returns URLs that the sender may have called instead of `url`: with another scheme, host, query or slash.
fn urls(url: &str, headers: &[(String, String)]) -> Vec<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let is_host = |name: &str| ["host", "x-forwarded-host", "x-original-host"].contains(&name);
    let sent = headers.iter().filter(|(name, _)| is_host(name)).map(|(_, value)| value.trim().to_owned());
    let bare = host.strip_prefix("www.").unwrap_or(host).to_owned();
    let port = host.rsplit_once(':').map_or(host, |(host, _)| host).to_owned();
    let hosts = [host.to_owned(), format!("www.{bare}"), bare, host.to_lowercase(), port].into_iter().chain(sent);
    let asked = path.split(['?', '#']).next().unwrap_or_default();
    let paths = [path, asked].map(|path| path.trim_end_matches('/'));
    let paths: Vec<String> = paths.iter().flat_map(|path| [(*path).to_owned(), format!("{path}/")]).collect();
    let of_host = |host: String| {
        let urls =
            paths.iter().flat_map(move |path| ["https", "http"].map(|scheme| format!("{scheme}://{host}{path}")));
        urls.collect::<Vec<_>>()
    };
    hosts.flat_map(of_host).collect()
}

fn another_provider(claim: &SignatureClaim) -> Option<String> {
    let others = || {
        let names = NAMES.iter().filter(|name| **name != claim.provider && **name != "generic");
        // A token could belong to any sender.
        let signs = |name: &&&str| {
            let signed = providers::rule_of(name).map(|rule| rule.facts.signed);
            signed.is_none_or(|signed| signed.body || !signed.fields.is_empty())
        };
        names.filter(signs).map(|name| {
            let other = SignatureClaim { provider: (*name).to_owned(), options: Vec::new(), ..claim.clone() };
            // The URL stays only if the provider signs it. A token in the URL could belong to any sender.
            if other.signs_url() { other } else { SignatureClaim { url: None, ..other } }
        })
    };
    if let Some(other) = others().find(SignatureClaim::is_signed) {
        return Some(report(&other, &format!("{0} signed it: verify it with --provider {0}", other.provider)));
    }
    let is_known = |other: &SignatureClaim| {
        // The secrets do not matter here: only the provider's headers are looked for.
        let source = SignatureClaim { secrets: Vec::new(), ..other.clone() }.source();
        source.is_ok_and(|source| {
            let verified = other.verified_by(&source);
            let is_without =
                matches!(verified, Err(Unverified::Missing(_) | Unverified::NoToken(_) | Unverified::NotInBody(_)));
            // Many senders use this header.
            let is_elsewhere = verified == Err(Unverified::Malformed("authorization".into()));
            !is_without && !is_elsewhere && verified != Ok(Verified::Ping)
        })
    };
    let own = is_known(claim);
    let found = others().filter(|_| !own).find(is_known)?;
    Some(format!(
        "the webhook has the headers of {1}, not of {0}: verify it with --provider {1}",
        claim.provider, found.provider
    ))
}
