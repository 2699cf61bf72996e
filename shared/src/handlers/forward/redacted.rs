//! Excerpts of an endpoint's answer, without the destination's secrets.

use crate::{handlers::excerpt, sources::destination::Destination};

/// Returns the beginning of an answer's body, on one line of visible characters. Secrets,
/// signatures and the URL's path are replaced by `…`, in case the endpoint repeats them.
pub(super) fn excerpt(body: &[u8], destination: &Destination) -> String {
    // Some JSON encoders escape slashes.
    let mut text = String::from_utf8_lossy(body).replace("\\/", "/");
    for secret in destination.secrets() {
        let whole = secret.text().expect("a destination's secret is checked to begin with `whsec_`");
        text = text.replace(whole.strip_prefix(PREFIX).unwrap_or(whole), "…");
    }
    let url = destination.url();
    let path = url.path();
    // An answer may name the path without its first slash, or only one of its segments.
    let bare = Some(path.trim_matches('/')).filter(|bare| bare.contains('/'));
    let tokens = path.split('/').filter(|part| part.len() >= TOKEN).map(Some);
    for part in
        [url.path_and_query().map(|whole| whole.as_str()), Some(path), bare, url.query()].into_iter().chain(tokens)
    {
        if let Some(part) = part.filter(|part| part.len() > 1) {
            text = text.replace(part, "…");
        }
    }
    // The answer may contain other secrets, truncated secrets, and signatures.
    for begins in [PREFIX, "v1,"] {
        text = without(&text, begins);
    }
    excerpt::excerpt(&text)
}

const PREFIX: &str = "whsec_";

/// The length, in bytes, of the shortest path segment that may be a token. Excerpts hide such segments even without the
/// rest of the URL.
const TOKEN: usize = 16;

/// Replaces each occurrence of `begins`, together with the base64 text that follows it, by `…`.
fn without(text: &str, begins: &str) -> String {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '-' | '_');
    let mut parts = text.split(begins);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| shown + "…" + part.trim_start_matches(is_base64).trim_start_matches('…'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{handlers::excerpt::LONGEST, sources::Sources};

    fn shown_by(url: &str, body: &[u8]) -> String {
        let document = format!(
            "[sources.shop]\nprovider = 'shopify'\nsecrets = ['s']\nhandler = 'forward'\n\
             forward = {{ url = '{url}', secret = 'whsec_c2VjcmV0LXNlY3JldA==' }}\n"
        );
        let sources = Sources::parse(&document).unwrap();
        excerpt(body, sources.get("shop").unwrap().forward().unwrap())
    }

    fn shown(body: &[u8]) -> String {
        shown_by("https://example.com/hooks/hush?key=quiet", body)
    }

    #[test]
    fn answer_excerpt_is_one_line_of_visible_characters() {
        assert_eq!(shown(b""), "");
        assert_eq!(shown(b"no such order\n"), "no such order");
        assert_eq!(
            shown(b"{\n  \"error\":\t\"gr\xc3\xb6\xc3\x9fe\"\r\n}\0\x1b[31m\xff"),
            "{ \"error\": \"größe\" } [31m"
        );
        assert_eq!(shown("\u{feff}a\u{202e}b\u{2066}c\u{200b}d\u{2028}e".as_bytes()), "abcd e");
    }

    #[test]
    fn long_answer_excerpt_is_truncated() {
        assert_eq!(shown(&[b'x'; LONGEST]).len(), LONGEST);
        for long in ["x".repeat(LONGEST + 1), "ö".repeat(5000)] {
            let cut = shown(long.as_bytes());
            assert!(cut.len() <= LONGEST && cut.ends_with('…'), "{cut}");
        }
    }

    #[test]
    fn answer_excerpt_omits_secrets_and_url_path() {
        for (answer, expected) in [
            ("Cannot POST /hooks/hush", "Cannot POST …"),
            ("no /hooks/hush?key=quiet here", "no … here"),
            (r#"{"path":"\/hooks\/hush"}"#, r#"{"path":"…"}"#),
            ("The route hooks/hush could not be found.", "The route … could not be found."),
            ("no hooks here", "no hooks here"),
            ("key=quiet is unknown", "… is unknown"),
            ("signed with whsec_c2VjcmV0LXNlY3JldA==?", "signed with …?"),
            ("the key c2VjcmV0LXNlY3JldA== is old", "the key … is old"),
            ("not whsec_YW5vdGhlcg== and whsec_c2Vjc", "not … and …"),
            ("v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4= is wrong", "… is wrong"),
        ] {
            assert_eq!(shown(answer.as_bytes()), expected, "{answer}");
        }
        assert_eq!(shown_by("https://example.com/", b"and/or"), "and/or", "the path `/` is not hidden");
        let by = "https://example.com/in/Zx81kQ92mVb7TtR4";
        assert_eq!(shown_by(by, b"no token Zx81kQ92mVb7TtR4 in here"), "no token … in here");
    }
}
