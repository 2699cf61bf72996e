//! Topics, as a sources document picks them out.

/// Whether `topic` is one that `pattern` means: the same text, where each `*`
/// stands for any characters, also none.
pub(super) fn fits(pattern: &str, topic: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = topic.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters_and_everything_else_for_itself() {
        for (pattern, topic) in [
            ("orders/create", "orders/create"),
            ("orders/*", "orders/create"),
            ("orders/*", "orders/"),
            ("*", "unknown"),
            ("*", ""),
            ("*.dispute.*", "charge.dispute.created"),
            ("a*b*b", "a-b-b-b"),
            ("**", "x"),
        ] {
            assert!(fits(pattern, topic), "{pattern} {topic}");
        }
        for (pattern, topic) in [
            ("orders/create", "orders/created"),
            ("orders/create", "orders/creat"),
            ("orders/*", "order"),
            ("orders/*", "draft_orders/create"),
            ("*.dispute.*", "charge.dispute"),
            ("a*b*b", "a-b"),
            ("ab*ba", "aba"),
            ("Orders/*", "orders/create"),
            ("", "orders/create"),
        ] {
            assert!(!fits(pattern, topic), "{pattern} {topic}");
        }
    }
}
