//! Variants of a secret that may have been copied or encoded wrongly, each with the mistake that it corrects.

use base64::{Engine, engine::general_purpose::STANDARD};

pub(super) fn variants(secret: &str) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    let trimmed = secret.trim();
    if trimmed != secret {
        found.push((trimmed.to_owned(), "fits if the white space around the secret is removed"));
    }
    for quote in ['"', '\'', '`'] {
        if let Some(inside) = trimmed.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            found.push((inside.to_owned(), "fits if the quotation marks around the secret are removed"));
        }
    }
    if let Some((_, value)) = trimmed.split_once('=')
        && !value.trim_matches('=').is_empty()
    {
        found.push((value.to_owned(), "fits the part of the secret after the `=`: give only that"));
    }
    let as_bytes = |bytes: &[u8]| format!("base64:{}", STANDARD.encode(bytes));
    found.push((
        as_bytes(trimmed.as_bytes()),
        "fits if the secret's text itself is the key, as with Polar. This provider decodes secrets: write `base64:` \
         and the output of `printf %s \"$SECRET\" | base64`",
    ));
    for (prefix, what) in [
        ("hex:", "fits if the secret is decoded from hexadecimal: write `hex:` in front of the secret"),
        ("base64:", "fits if the secret is decoded from base64: write `base64:` in front of the secret"),
    ] {
        found.push((format!("{prefix}{trimmed}"), what));
        if let Some(text) = trimmed.strip_prefix(prefix) {
            found.push((
                as_bytes(text.as_bytes()),
                "fits the text after the prefix, undecoded: give its bytes as `base64:…`",
            ));
            found.push((text.to_owned(), "fits the text after the prefix: remove the prefix"));
        }
    }
    match trimmed.strip_prefix("whsec_") {
        Some(bare) => {
            found.push((bare.to_owned(), "fits if `whsec_` is removed from the secret"));
            found.push((
                format!("base64:{bare}"),
                "fits if the text after `whsec_` is decoded from base64: check --provider, or write `base64:` instead \
                 of `whsec_`",
            ));
        }
        None => found.push((format!("whsec_{trimmed}"), "fits if `whsec_` is put in front of the secret")),
    }
    found
}
