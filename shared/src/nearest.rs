//! Finds the valid value that a misspelt one was probably meant to be.

pub fn nearest<'a>(typed: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    ranked(typed, valid).first().copied()
}

pub fn ranked<'a>(typed: &str, valid: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let typed = typed.to_lowercase();
    let mut similar: Vec<(usize, &str)> =
        valid.into_iter().filter_map(|valid| Some((distance(&typed, &valid.to_lowercase())?, valid))).collect();
    similar.sort();
    similar.into_iter().map(|(_, valid)| valid).collect()
}

pub fn hint<'a>(typed: &str, valid: impl IntoIterator<Item = &'a str>) -> String {
    nearest(typed, valid).map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default()
}

/// Returns whether the text differs from a valid one by a single edit, such as a doubled letter. A
/// text that is only a part of the valid one does not count.
pub fn is_slip(typed: &str, valid: &str) -> bool {
    distance(typed, valid) == Some(1) && !valid.contains(typed)
}

/// The shortest part of a valid value, in bytes, that is recognised as that value, such as
/// `timeout` for `handler_timeout`.
const SHORTEST_PART: usize = 4;

/// Returns the number of edits between two similar texts, or `None` if they differ too much. If
/// `typed` is only a part of `valid` and has at least [`SHORTEST_PART`] bytes, the number is 1.
fn distance(typed: &str, valid: &str) -> Option<usize> {
    if typed.len() >= SHORTEST_PART && valid.contains(typed) {
        return Some(usize::from(typed != valid));
    }
    let one = typed.chars().count();
    let other = valid.chars().count();
    let most = (one.max(other) / 3).max(1);
    if one.abs_diff(other) > most {
        return None;
    }
    Some(strsim::osa_distance(typed, valid)).filter(|edits| *edits <= most && *edits < other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_value_gets_the_nearest_suggestion() {
        let words = ["provider", "secrets", "handler", "handler_timeout", "retry"];
        for (typed, expected) in [
            ("secret", Some("secrets")),
            ("Handler", Some("handler")),
            ("hanlder", Some("handler")),
            ("timeout", Some("handler_timeout")),
            ("entity", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, words), expected, "{typed}");
        }
        assert_eq!(nearest("a", ["b"]), None);
        assert_eq!(hint("rety", words), " (did you mean `retry`?)");
        assert_eq!(hint("entity", words), "");
    }

    #[test]
    fn similar_values_are_sorted_by_edit_distance() {
        let keys = ["shop/order/1002", "shopify/order/1001", "shop/order/1001", "other/invoice/7"];
        assert_eq!(ranked("shop/order/101", keys), ["shop/order/1001", "shop/order/1002", "shopify/order/1001"]);
        assert_eq!(ranked("order/1001", keys), ["shop/order/1001", "shopify/order/1001"]);
    }

    #[test]
    fn secret_gets_no_spelling_suggestion() {
        for secret in ["shopify-development-secret", "whsec_c2VjcmV0", "hush", &"x".repeat(100_000)] {
            assert_eq!(nearest(secret, ["shopify", "shippo", "park", "block"]), None, "{secret}");
        }
    }
}
