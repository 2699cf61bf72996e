//! What an endpoint says beside its status, for people. Pure.

use crate::sources::destination::Destination;

/// The most of it that is kept, in bytes: a sentence, not a page.
pub(super) const MOST: usize = 200;

/// The first words of an answer's body, on one line of visible characters.
/// Whatever `destination` keeps to itself is `…`, should the endpoint repeat it.
pub(super) fn first_words(body: &[u8], destination: &Destination) -> String {
    let mut text = String::from_utf8_lossy(body).into_owned();
    for secret in destination.secrets() {
        let whole = secret.expose();
        text = text.replace(whole.strip_prefix(PREFIX).unwrap_or(whole), "…");
    }
    let url = destination.url();
    for part in [url.path_and_query().map(|whole| whole.as_str()), Some(url.path()), url.query()] {
        if let Some(part) = part.filter(|part| part.len() > 1) {
            text = text.replace(part, "…");
        }
    }
    // Another's, or one that broke off.
    for begins in [PREFIX, "v1,"] {
        text = without(&text, begins);
    }
    let visible = |c: char| if c.is_control() || c == '\u{FFFD}' { ' ' } else { c };
    let text: String = text.chars().map(visible).collect();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.len() <= MOST {
        return words;
    }
    format!("{}…", &words[..words.floor_char_boundary(MOST - '…'.len_utf8())])
}

const PREFIX: &str = "whsec_";

/// `text` with `…` for each run of base64 that follows `begins`.
fn without(text: &str, begins: &str) -> String {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '-' | '_');
    let mut parts = text.split(begins);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| shown + "…" + part.trim_start_matches(is_base64).trim_start_matches('…'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::Sources;

    fn shown(body: &[u8]) -> String {
        let document = "[sources.shop]\nprovider = 'shopify'\nsecrets = ['s']\nhandler = 'forward'\n\
            forward = { url = 'https://example.com/hooks/hush?key=quiet', secret = 'whsec_c2VjcmV0LXNlY3JldA==' }\n";
        let sources = Sources::parse(document).unwrap();
        first_words(body, sources.get("shop").unwrap().forward().unwrap())
    }

    #[test]
    fn an_answer_is_one_line_of_visible_characters() {
        assert_eq!(shown(b""), "");
        assert_eq!(shown(b"no such order\n"), "no such order");
        assert_eq!(
            shown(b"{\n  \"error\":\t\"gr\xc3\xb6\xc3\x9fe\"\r\n}\0\x1b[31m\xff"),
            "{ \"error\": \"größe\" } [31m"
        );
    }

    #[test]
    fn an_answer_is_cut_to_its_first_words() {
        assert_eq!(shown(&[b'x'; MOST]).len(), MOST);
        for long in ["x".repeat(MOST + 1), "ö".repeat(5000)] {
            let cut = shown(long.as_bytes());
            assert!(cut.len() <= MOST && cut.ends_with('…'), "{cut}");
        }
    }

    #[test]
    fn what_a_destination_keeps_to_itself_is_not_repeated() {
        for (said, expected) in [
            ("Cannot POST /hooks/hush", "Cannot POST …"),
            ("no /hooks/hush?key=quiet here", "no … here"),
            ("key=quiet is unknown", "… is unknown"),
            ("signed with whsec_c2VjcmV0LXNlY3JldA==?", "signed with …?"),
            ("the key c2VjcmV0LXNlY3JldA== is old", "the key … is old"),
            ("not whsec_YW5vdGhlcg== and whsec_c2Vjc", "not … and …"),
            ("v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4= is wrong", "… is wrong"),
        ] {
            assert_eq!(shown(said.as_bytes()), expected, "{said}");
        }
    }
}
