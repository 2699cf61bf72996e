//! Test cases that hold for every provider, run over the rows in `rows.rs`.

use crate::{
    providers::{
        Headers, Request, Secret, TOLERANCE,
        Unverified::{self, Malformed, Mismatch, Missing, NoToken, Stale},
        Verified,
        tests::rows::{NOW, ProviderRow, ROWS},
    },
    time::Timestamp,
};

const BODY: &[u8] = br#"{"id":"evt_1","type":"order.updated","data":{"id":9007199254740993}}"#;

const ACCEPTED: Result<Verified, Unverified> = Ok(Verified::Delivery);

fn secrets(row: &ProviderRow) -> [Secret; 2] {
    row.secrets.map(Secret::new)
}

fn signed() -> impl Iterator<Item = (&'static ProviderRow, Headers, [Secret; 2])> {
    ROWS.iter().map(|row| {
        let secrets = secrets(row);
        (row, row.signed(BODY, &secrets[0]), secrets)
    })
}

fn in_a_header() -> impl Iterator<Item = (&'static ProviderRow, Headers, &'static str, String, [Secret; 2])> {
    signed().filter_map(|(row, headers, secrets)| {
        let name = row.header.as_deref()?;
        let value = headers.get(name).unwrap_or_else(|| panic!("{} signs another header", row.name)).to_owned();
        Some((row, headers, name, value, secrets))
    })
}

fn with(headers: &Headers, name: &str, value: &str) -> Headers {
    let others = headers.iter().filter(|(held, _)| *held != name);
    others.chain([(name, value)]).collect::<Headers>().with_query(headers.query())
}

fn split<'a>(row: &ProviderRow, value: &'a str) -> (&'a str, &'a str) {
    let at = if row.mark.is_empty() { 0 } else { value.rfind(row.mark).expect("the mark is there") };
    value.split_at(at + row.mark.len())
}

/// Promise: every secret is tried; wrong, stale, truncated or overlong signatures are refused.
#[test]
fn webhook_signed_with_any_configured_secret_verifies() {
    for (row, headers, [own, other]) in signed() {
        for secrets in [&[own.clone()][..], &[own.clone(), other.clone()], &[other.clone(), own.clone()]] {
            assert_eq!(row.verify(&headers, BODY, secrets), ACCEPTED, "{}", row.name);
        }
    }
}

#[test]
fn webhook_without_a_matching_secret_is_refused() {
    for (row, headers, [own, other]) in signed() {
        assert_eq!(row.verify(&headers, BODY, &[other]), Err(Mismatch), "{}", row.name);
        assert_eq!(row.verify(&headers, BODY, &[]), Err(Mismatch), "{}", row.name);
        let nearly = Secret::new(format!("{}A", own.text().expect("a text")));
        let refused = row.verify(&headers, BODY, std::slice::from_ref(&nearly));
        // Text after the end of a PEM block is ignored.
        let is_the_same = row.secrets[0].contains("-----END ");
        assert_eq!(refused, if is_the_same { ACCEPTED } else { Err(Mismatch) }, "{}", row.name);
    }
}

#[test]
fn changed_body_is_refused_if_body_is_signed() {
    for (row, headers, secrets) in signed() {
        let expected = if row.signs_body { Err(Mismatch) } else { ACCEPTED };
        let mut changed = BODY.to_vec();
        changed[BODY.len() / 2] ^= 1;
        for body in [&changed[..], &BODY[1..], &BODY[..BODY.len() - 1], &[BODY, b"\n"].concat(), b""] {
            assert_eq!(row.verify(&headers, body, &secrets), expected, "{}", row.name);
        }
    }
}

#[test]
fn stale_or_future_time_is_refused_if_signed() {
    for (row, headers, secrets) in signed() {
        let request = Request { headers: &headers, body: BODY };
        let seconds = NOW.as_millis() / 1000;
        let at = |now| {
            row.provider().verify(request, &secrets).and_then(|proof| proof.near(Timestamp::from_secs(now), TOLERANCE))
        };
        assert_eq!([at(seconds - 300), at(seconds + 300)], [ACCEPTED, ACCEPTED], "{}", row.name);
        let expected = if row.signs_time { Err(Stale(NOW)) } else { ACCEPTED };
        assert_eq!([at(seconds - 301), at(seconds + 301)], [expected.clone(), expected], "{}", row.name);
    }
}

#[test]
fn badly_encoded_signature_is_malformed() {
    for (row, headers, name, value, secrets) in in_a_header() {
        let (front, signature) = split(row, &value);
        for bad in ["", "%%%%", "é", "AAA", &format!("{signature}!"), &signature.replacen(&signature[4..5], "*", 1)] {
            let refused = row.verify(&with(&headers, name, &format!("{front}{bad}")), BODY, &secrets);
            // `AAA` is unpadded base64.
            let is_readable = bad == "AAA" && row.more == "AAAA";
            let expected = if is_readable { Mismatch } else { Malformed(name.into()) };
            assert_eq!(refused, Err(expected), "{} {bad:?}", row.name);
        }
        assert_eq!(row.verify(&with(&headers, name, ""), BODY, &secrets), Err(Malformed(name.into())), "{}", row.name);
    }
}

#[test]
fn truncated_signature_is_refused_at_every_length() {
    for (row, headers, name, value, secrets) in in_a_header() {
        let (front, signature) = split(row, &value);
        let padding = signature.len() - signature.trim_end_matches('=').len();
        for length in 0..signature.len() - padding {
            let cut = with(&headers, name, &format!("{front}{}", &signature[..length]));
            assert!(row.verify(&cut, BODY, &secrets).is_err(), "{}: {length}", row.name);
        }
    }
}

#[test]
fn overlong_signature_is_refused() {
    for (row, headers, name, value, secrets) in in_a_header() {
        let (front, signature) = split(row, &value);
        let bare = signature.trim_end_matches('=');
        for times in [1, 2, 100_000] {
            let longer = format!("{front}{bare}{}", row.more.repeat(times));
            assert!(row.verify(&with(&headers, name, &longer), BODY, &secrets).is_err(), "{}: {times}", row.name);
        }
        let twice = format!("{front}{signature}{signature}");
        assert!(row.verify(&with(&headers, name, &twice), BODY, &secrets).is_err(), "{}", row.name);
    }
}

#[test]
fn missing_signed_header_is_named() {
    for (row, headers, secrets) in signed() {
        for (name, _) in headers.iter() {
            let others: Headers = headers.iter().filter(|(other, _)| *other != name).collect();
            assert_eq!(row.verify(&others, BODY, &secrets), Err(Missing(name.into())), "{}", row.name);
        }
        if row.header.is_none() {
            let refused = row.verify(&headers.with_query(""), BODY, &secrets);
            assert_eq!(refused, Err(NoToken("token".into())), "{}", row.name);
        }
    }
}

/// A request may repeat a header. If the web server keeps the copies apart, the first one counts, so
/// a forger gains nothing by adding another. If a gateway joins the copies with commas, only a header
/// that may hold a list can be read.
#[test]
fn first_of_repeated_headers_is_verified() {
    for (row, headers, name, value, secrets) in in_a_header() {
        let all = |signatures: [&str; 2]| -> Headers {
            let others = headers.iter().filter(|(held, _)| *held != name);
            others.chain(signatures.map(|signature| (name, signature))).collect()
        };
        let (front, signature) = split(row, &value);
        let wrong = format!("{front}{}", row.more.repeat(signature.len() / row.more.len()));
        assert_eq!(row.verify(&all([&value, &wrong]), BODY, &secrets), ACCEPTED, "{}", row.name);
        assert_eq!(row.verify(&all([&wrong, &value]), BODY, &secrets), Err(Mismatch), "{}", row.name);
        let joined = with(&headers, name, &format!("{value},{value}"));
        assert_eq!(row.verify(&joined, BODY, &secrets).is_ok(), row.is_list, "{}", row.name);
    }
}

#[test]
fn header_names_are_matched_case_insensitively() {
    for (row, headers, secrets) in signed() {
        for change in [str::to_uppercase, str::to_lowercase] as [fn(&str) -> String; 2] {
            let changed: Headers = headers.iter().map(|(name, value)| (change(name), value)).collect();
            let changed = changed.with_query(headers.query());
            assert_eq!(row.verify(&changed, BODY, &secrets), ACCEPTED, "{}", row.name);
        }
    }
}

#[test]
fn empty_or_binary_body_verifies_without_entity() {
    for row in ROWS.iter() {
        let secrets = secrets(row);
        for body in [&b""[..], b"\xff\xfe{\"id\":1}", b"[]", b"null", b"{\"id\":1"] {
            let headers = row.signed(body, &secrets[0]);
            assert_eq!(row.verify(&headers, body, &secrets), ACCEPTED, "{} {body:?}", row.name);
            let described = row.provider().describe(Request { headers: &headers, body });
            assert_eq!(described.entity, None, "{} {body:?}", row.name);
            assert!(!described.delivery_id.as_str().is_empty(), "{} {body:?}", row.name);
        }
    }
}
