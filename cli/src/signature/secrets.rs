//! Common mistakes in writing a secret.

use base64::{Engine, engine::general_purpose::STANDARD};

/// Returns the secrets that may have been meant by `secret`, each with the mistake.
pub(super) fn variants(secret: &str) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    let trimmed = secret.trim();
    if trimmed != secret {
        found.push((trimmed.to_owned(), "fits the secret without the white space around it"));
    }
    for quote in ['"', '\'', '`'] {
        if let Some(inside) = trimmed.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            found.push((inside.to_owned(), "fits the secret without the quotation marks around it"));
        }
    }
    if let Some((_, value)) = trimmed.split_once('=')
        && !value.trim_matches('=').is_empty()
    {
        found.push((value.to_owned(), "fits what is behind the `=` in the secret"));
    }
    let as_bytes = |bytes: &[u8]| format!("base64:{}", STANDARD.encode(bytes));
    found.push((
        as_bytes(trimmed.as_bytes()),
        "fits the secret's own text as the key; this provider decodes its secrets. Give the text's bytes as `base64:…`",
    ));
    for (prefix, what) in [
        ("hex:", "fits the bytes that the secret stands for in hexadecimal: write `hex:` in front of it"),
        ("base64:", "fits the bytes that the secret stands for in base64: write `base64:` in front of it"),
    ] {
        found.push((format!("{prefix}{trimmed}"), what));
        if let Some(text) = trimmed.strip_prefix(prefix) {
            found.push((as_bytes(text.as_bytes()), "fits the secret taken as text, with its prefix decoding nothing"));
            found.push((text.to_owned(), "fits the text behind the prefix: leave the prefix out"));
        }
    }
    match trimmed.strip_prefix("whsec_") {
        Some(bare) => {
            found.push((bare.to_owned(), "fits the secret without `whsec_`: leave that out"));
            found.push((
                format!("base64:{bare}"),
                "fits the bytes that are encoded behind `whsec_`: is it this provider?",
            ));
        }
        None => found.push((format!("whsec_{trimmed}"), "fits the secret with `whsec_` in front: it belongs to it")),
    }
    found
}
