//! Derives a handler's outcome from an endpoint's answer.

use std::time::Duration;

use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER},
};

use serde_json::Value;

use super::{ANSWER, LONGEST_ANSWER};
use crate::{
    handler::Outcome,
    handlers::{
        commit,
        document::{self, DocumentMistake},
    },
    protocol::table::TableName,
    time::Timestamp,
};

/// The longest wait that `Retry-After` can ask for. A longer one is shortened, because it delays all
/// deliveries of the entity.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The maximum jitter that is added to a wait, as a fraction of the wait.
const JITTER: f64 = 0.1;

/// Returns the outcome of an answer. `excerpt` is the beginning of the answer's body, and becomes part of
/// the error. `fraction`, from 0 to 1, is the part of the maximum jitter that a requested wait gets.
pub(super) fn judge(status: StatusCode, headers: &HeaderMap, excerpt: &str, now: Timestamp, fraction: f64) -> Outcome {
    if status.is_success() {
        return Outcome::Done;
    }
    let error = if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        format!("the endpoint answered {}: redirects are not followed; use the final URL", status.as_u16())
    } else if excerpt.is_empty() {
        format!("the endpoint answered {status}")
    } else {
        // The status's name is left out, because the row keeps only 64 bytes of the error.
        format!("the endpoint answered {}: {excerpt}", status.as_u16())
    };
    if status == StatusCode::GONE {
        return Outcome::Reject(error);
    }
    let after = retry_after(headers, now).map(|wait| wait.mul_f64(1.0 + JITTER * fraction.clamp(0.0, 1.0)));
    match status {
        // An endpoint that limits requests is not down. A wait of zero leaves the wait to the policy.
        StatusCode::TOO_MANY_REQUESTS => Outcome::Unavailable { after: after.or(Some(Duration::ZERO)), error },
        StatusCode::SERVICE_UNAVAILABLE => Outcome::Unavailable { after, error },
        // The gateway may have passed the request on.
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => Outcome::Unanswered { after, error },
        // A 500 may be caused by this delivery.
        _ => Outcome::Retry { after, error },
    }
}

/// Returns whether an answer's content type is [`ANSWER`]. Many web frameworks append a character set.
pub(super) fn is_typed(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(ANSWER))
}

/// Returns whether an answer is not compressed. Some endpoints compress although the request does not accept that.
pub(super) fn is_plain(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_ENCODING).is_none_or(|encoding| encoding == "identity")
}

/// Returns the outcome of a 2xx answer of an endpoint whose answers may write the tables `allowed`. An answer with
/// writes is never taken for one without.
pub(super) fn with_commit(headers: &HeaderMap, body: &[u8], allowed: &[String]) -> Outcome {
    if !is_plain(headers) {
        return Outcome::retry(
            "the answer is compressed, so its writes cannot be read: send it without content-encoding",
        );
    }
    match document::fields(body) {
        _ if is_typed(headers) => committed(body, allowed),
        Ok(fields) if fields.contains_key("commit") || document::misspelt_commit(&fields).is_some() => {
            Outcome::retry(format!("the answer has `commit`, but not the content type {ANSWER}"))
        }
        Err(DocumentMistake::Doubled(name)) if name == "commit" => {
            Outcome::retry(format!("the answer has `commit` twice, and not the content type {ANSWER}"))
        }
        _ => Outcome::Done,
    }
}

/// Returns the outcome of a 2xx answer that is longer than a transaction can be.
pub(super) fn too_long(headers: &HeaderMap) -> Outcome {
    match is_typed(headers) {
        true => Outcome::retry(format!("the answer is longer than {LONGEST_ANSWER} bytes")),
        false => Outcome::Done,
    }
}

/// Returns the outcome of an answer with the body `{"outcome": "done", "commit": […]}`.
fn committed(body: &[u8], allowed: &[String]) -> Outcome {
    let invalid = |reason: &str| Outcome::retry(format!("the endpoint's answer is invalid: {reason}"));
    let answer = match document::fields(body) {
        Ok(answer) => answer,
        Err(mistake) => return invalid(&mistake.to_string()),
    };
    if let Some(unknown) = answer.keys().find(|name| !["outcome", "commit"].contains(&name.as_str())) {
        return invalid(&format!("unknown field `{}`; the fields are `outcome` and `commit`", commit::short(unknown)));
    }
    if answer.get("outcome") != Some(&Value::from("done")) {
        return invalid("its `outcome` must be done: for any other outcome, use the status");
    }
    let writes = match answer.get("commit").map_or_else(|| Ok(Vec::new()), commit::writes) {
        Ok(writes) => writes,
        Err(reason) => return invalid(&reason),
    };
    let is_allowed =
        |table: &TableName| matches!(table, TableName::Named(name) if allowed.iter().any(|one| **one == **name));
    match writes.iter().position(|write| !is_allowed(&write.key.table)) {
        Some(number) => invalid(&format!("`commit[{number}]` names a table that the source's `forward.commit` lacks")),
        None => Outcome::Commit(writes),
    }
}

/// Returns the wait in the header `Retry-After`. Without a usable header, returns `None`, and the source's
/// policy decides. A wait of zero is ignored, because it would use up the attempts at once.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that overflows is a long wait too.
        text.parse().map_or(LONGEST_WAIT, Duration::from_secs)
    } else {
        let until = httpdate::parse_http_date(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Timestamp::from_secs(until.as_secs()).since(now)
    };
    Some(wait.min(LONGEST_WAIT)).filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    // 2026-11-21 08:00:00 UTC
    const NOW: Timestamp = Timestamp::from_secs(1_795_248_000);

    fn judged(status: u16, retry_after: Option<&str>) -> Outcome {
        let headers = retry_after.map(|value| (RETRY_AFTER, value.parse().unwrap())).into_iter().collect();
        judge(StatusCode::from_u16(status).unwrap(), &headers, "", NOW, 0.0)
    }

    fn wait(status: u16, retry_after: &str) -> Option<u64> {
        match judged(status, Some(retry_after)) {
            Outcome::Retry { after, .. } | Outcome::Unanswered { after, .. } | Outcome::Unavailable { after, .. } => {
                after.map(|wait| wait.as_secs())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answer_with_unknown_or_doubled_field_is_refused() {
        let refused = |body: &str| match committed(body.as_bytes(), &["totals".into()]) {
            Outcome::Retry { after: None, error } => error.replace("the endpoint's answer is invalid: ", ""),
            other => panic!("{body}: {other:?}"),
        };
        for (body, reason) in [
            (r#"{"outcome":"done","commits":[]}"#, "unknown field `commits`; the fields are `outcome` and `commit`"),
            (
                r#"{"outcome":"done","commit":[],"after":1}"#,
                "unknown field `after`; the fields are `outcome` and `commit`",
            ),
            (r#"{"outcome":"done","commit":[],"commit":[]}"#, "it has the field `commit` twice"),
            ("", "it is empty"),
        ] {
            assert_eq!(refused(body), reason);
        }
        assert_eq!(committed(br#"{"outcome":"done"}"#, &[]), Outcome::Commit(Vec::new()));
    }

    #[test]
    fn answer_with_writes_is_never_taken_for_one_without() {
        let of = |kind: &str, encoding: Option<&str>, body: &str| {
            let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
            headers.extend(encoding.map(|encoding| (CONTENT_ENCODING, encoding.parse().unwrap())));
            with_commit(&headers, body.as_bytes(), &["totals".into()])
        };
        let long = format!(r#"{{"outcome":"done","commit":[],"more":"{}"}}"#, "x".repeat(100_000));
        for body in [r#"{"outcome":"done","commit":[]}"#, r#"{"commits":[]}"#, r#"{"commit":[],"commit":[]}"#, &long] {
            for kind in ["application/json", "text/html; charset=utf-8"] {
                assert!(matches!(of(kind, None, body), Outcome::Retry { .. }), "{kind}: {body:.60}");
            }
        }
        assert!(matches!(of("application/json", Some("gzip"), "\u{1f}"), Outcome::Retry { .. }));
        for body in ["", "OK", r#"{"ok":true,"ok":true}"#, r#"["commit"]"#] {
            assert_eq!(of("application/json", Some("identity"), body), Outcome::Done, "{body}");
        }
        assert_eq!(of(ANSWER, None, r#"{"outcome":"done","commit":[]}"#), Outcome::Commit(Vec::new()));
    }

    /// Promise: 2xx applies, 410 parks, others are retried; `Retry-After` counts up to an hour.
    #[test]
    fn any_2xx_status_yields_done_outcome() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(judged(status, Some("60")), Outcome::Done, "{status}");
        }
    }

    #[test]
    fn status_without_special_meaning_causes_a_retry() {
        for status in [300, 304, 400, 401, 404, 409, 413, 422, 500, 501, 599, 999] {
            let Outcome::Retry { after: None, error } = judged(status, None) else { panic!("{status}") };
            assert!(error.contains(&status.to_string()), "{error}");
            assert!(error.len() <= 96, "{error}");
        }
    }

    /// Promise: 429, 503 and no connection cost no attempt; 502, 504 and silence are retried for a day.
    #[test]
    fn status_429_or_503_yields_unavailable_outcome() {
        for (status, asked) in [(429, Some(Duration::ZERO)), (503, None)] {
            let Outcome::Unavailable { after, error } = judged(status, None) else { panic!("{status}") };
            assert_eq!(after, asked);
            assert!(error.contains(&status.to_string()), "{error}");
        }
    }

    #[test]
    fn gateway_status_502_or_504_yields_unanswered_outcome() {
        for status in [502, 504] {
            let Outcome::Unanswered { after: None, error } = judged(status, None) else { panic!("{status}") };
            assert!(error.contains(&status.to_string()), "{error}");
        }
        assert!(matches!(judged(504, Some("60")), Outcome::Unanswered { after: Some(_), .. }));
    }

    #[test]
    fn error_on_redirect_says_redirects_are_not_followed() {
        for status in [301, 302, 303, 307, 308] {
            let Outcome::Retry { after: None, error } = judged(status, None) else { panic!("{status}") };
            assert!(error.contains("redirects are not followed"), "{error}");
            assert!(error.len() <= 96, "{error}");
        }
        let Outcome::Retry { error, .. } = judged(304, None) else { panic!("304") };
        assert_eq!(error, "the endpoint answered 304 Not Modified");
    }

    /// Promise: an error is the refusal's status and first 200 bytes, without secrets.
    #[test]
    fn error_quotes_start_of_endpoint_response() {
        let judged = |status| judge(status, &HeaderMap::new(), "no such order", NOW, 0.0);
        let error = |status: u16| format!("the endpoint answered {status}: no such order");
        assert_eq!(judged(StatusCode::GONE), Outcome::Reject(error(410)));
        assert_eq!(judged(StatusCode::NOT_FOUND), Outcome::retry(error(404)));
        assert_eq!(judged(StatusCode::BAD_GATEWAY), Outcome::unanswered(error(502)));
        assert_eq!(judged(StatusCode::OK), Outcome::Done);
    }

    #[test]
    fn retry_after_header_in_seconds_is_respected() {
        for status in [429, 503, 500, 401, 302] {
            assert_eq!(wait(status, "120"), Some(120), "{status}");
        }
        assert_eq!(wait(429, " 7 "), Some(7));
    }

    #[test]
    fn retry_after_header_with_date_is_respected() {
        assert_eq!(wait(503, "Sat, 21 Nov 2026 08:02:00 GMT"), Some(120));
        assert_eq!(wait(503, "Saturday, 21-Nov-26 08:02:00 GMT"), Some(120));
    }

    #[test]
    fn retry_after_header_is_capped_at_an_hour() {
        for long in ["86400", "18446744073709551615", "99999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"] {
            assert_eq!(wait(503, long), Some(3600), "{long}");
        }
    }

    #[test]
    fn zero_or_malformed_retry_after_header_is_ignored() {
        for text in
            ["0", "", "soon", "-1", "+5", "1.5", "Sat, 21 Nov 2026 07:59:59 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"]
        {
            assert_eq!(wait(503, text), None, "{text:?}");
        }
    }

    #[test]
    fn jitter_never_shortens_the_retry_after_wait() {
        let headers = [(RETRY_AFTER, "100".parse().unwrap())].into_iter().collect();
        for (fraction, expected) in [(0.0, 100), (0.5, 105), (1.0, 110)] {
            let Outcome::Unavailable { after, .. } =
                judge(StatusCode::SERVICE_UNAVAILABLE, &headers, "", NOW, fraction)
            else {
                panic!()
            };
            assert_eq!(after.map(|wait| wait.as_secs_f64().round()), Some(f64::from(expected)));
        }
    }
}
