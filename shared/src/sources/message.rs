//! Rewrites the errors of the document's parsers: hides values and adds the nearest valid
//! name.

use crate::{
    nearest::{hint, nearest},
    protocol::entity::SourceName,
};

/// Removes the document's values from a parser's error text, because a value may
/// be a secret. Parsers quote values in double quotes or, after `unknown variant`,
/// in backquotes. Other backquoted text is kept: field names, and the examples in
/// our own errors, which therefore must not use double quotes.
///
/// Behind an unknown name, adds the expected name that is nearest to it.
pub(super) fn without_values(message: &str) -> String {
    // An escaped quote is part of a value and does not end it.
    let message = with_hint(&message.replace("\\\"", ""));
    let mut kept = String::new();
    for (number, piece) in message.split('"').enumerate() {
        kept.push_str(if number % 2 == 0 { piece } else { "\"…\"" });
    }
    kept
}

fn with_hint(message: &str) -> String {
    const FIELD: &str = "unknown field `";
    const VARIANT: &str = "unknown variant `";
    const EXPECTED: &str = "`, expected";
    if let Some((before, rest)) = message.split_once(VARIANT) {
        let (value, behind) = rest.rsplit_once(EXPECTED).unwrap_or_default();
        let near = nearest(value, names(behind)).filter(|_| !value.contains('"'));
        let (shown, hint) = near.map_or(("…", String::new()), |_| (value, hint(value, names(behind))));
        return format!("{before}{VARIANT}{shown}`{hint}, expected{behind}");
    }
    if let Some((before, rest)) = message.split_once(FIELD)
        && let Some((field, behind)) = rest.split_once(EXPECTED)
    {
        let hint = match hint(field, names(behind)) {
            // The document has `[shop]` instead of `[sources.shop]`.
            none if none.is_empty() && is_missing_prefix(field, behind) => {
                format!(" (did you mean `sources.{field}`?)")
            }
            hint => hint,
        };
        return format!("{before}{FIELD}{field}`{hint}, expected{behind}");
    }
    message.to_owned()
}

/// Returns the backquoted names of a list such as `` `park` or `block` ``.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split('`').skip(1).step_by(2)
}

fn is_missing_prefix(field: &str, expected: &str) -> bool {
    names(expected).any(|name| name == "sources") && SourceName::parse(field).is_ok()
}

#[cfg(test)]
mod tests {
    use crate::sources::Sources;

    fn refused(document: &str) -> String {
        Sources::parse(document).unwrap_err().to_string()
    }

    #[test]
    fn unknown_name_error_suggests_nearest_and_lists_names() {
        const SHOP: &str = "[sources.shop]\nprovider = 'shopify'\nhandler = 'log'\n";
        for (document, expected) in [
            (
                format!("{SHOP}secret = 'hush'"),
                "line 4: unknown field `secret` (did you mean `secrets`?), expected one of `provider`, `secrets`",
            ),
            (format!("{SHOP}colour = 'hush'"), "line 4: unknown field `colour`, expected one of `provider`"),
            (
                format!("{SHOP}retry = {{ atempts = 3 }}"),
                "unknown field `atempts` (did you mean `attempts`?), expected",
            ),
            (
                "[shopify]\nprovider = 'shopify'".to_owned(),
                "line 1: unknown field `shopify` (did you mean `sources.shopify`?), expected one of `$schema`",
            ),
            ("[source.shop]".to_owned(), "unknown field `source` (did you mean `sources`?), expected one of"),
            (
                r#"{"shopify": {"provider": "shopify"}}"#.to_owned(),
                "unknown field `shopify` (did you mean `sources.shopify`?), expected one of `$schema`",
            ),
            (
                format!("{SHOP}on_failure = 'prak'"),
                "line 4: unknown variant `prak` (did you mean `park`?), expected `park` or `block`",
            ),
            (
                "[sources.shop]\nprovider = 'shopfiy'".to_owned() + "\nhandler = 'log'",
                "there is no provider `shopfiy`; did you mean `shopify`? There are adobe-commerce, ",
            ),
            (
                "[sources.shop]\nprovider = 'genric'\nhandler = 'log'\n\
                 generic = { header = 'x', hash = 'sha1', encoding = 'hex' }"
                    .to_owned(),
                "there is no provider `genric`; did you mean `generic`?",
            ),
        ] {
            let refused = refused(&document);
            assert!(refused.contains(expected) && !refused.contains("hush"), "{document}: {refused}");
        }
    }

    #[test]
    fn unrecognised_value_is_hidden_in_the_error() {
        for document in [
            "[sources.shop]\nprovider = 'hush-a-secret'\nhandler = 'log'",
            "[sources.shop]\nprovider = 'shopify'\nhandler = 'log'\non_failure = 'hush'",
        ] {
            assert!(!refused(document).contains("hush"), "{}", refused(document));
        }
    }
}
