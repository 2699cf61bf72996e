//! The topics that a source takes. A delivery of another topic is verified and answered, but
//! not stored.

use serde::Deserialize;

use super::reference::{FieldForm::OneOrMore, TOPIC, document_table};
use super::table::one_or_more;

document_table! {
    /// Topics as the provider writes them. `*` matches any text, or none. Everything else matches itself, including
    /// case. If both fields name a topic, it is ignored.
    #[table("[sources.NAME.topics]")]
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Topics {
        /// The topics to take. All others are ignored.
        #[field(OneOrMore(TOPIC), means("all topics"), example(toml r#"["orders/*", "refunds/create"]"#))]
        #[serde(default)]
        pub take: Patterns,
        /// The topics to ignore.
        #[field(OneOrMore(TOPIC), means("none"), example("customers/*"))]
        #[serde(default)]
        pub ignore: Patterns,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "TopicPatterns")]
pub struct Patterns(Vec<Pattern>);

one_or_more!(TopicPatterns(String), "a topic is a text, such as `orders/*`; several are a list of texts");

impl From<TopicPatterns> for Patterns {
    fn from(texts: TopicPatterns) -> Self {
        Self(Vec::from(texts).into_iter().map(Pattern::new).collect())
    }
}

/// A pattern for topics. Each `*` matches any text, even the empty one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

/// The longest topic, in characters. Longer topics are truncated before they are compared.
const LONGEST: usize = 128;

impl Topics {
    pub fn takes(&self, topic: &str) -> bool {
        (self.take.0.is_empty() || self.take.fit(topic)) && !self.ignore.fit(topic)
    }

    /// Returns why one of the patterns cannot match any topic, or `None` if each can. The text does not
    /// contain the pattern.
    pub(super) fn objection(&self) -> Option<String> {
        let all = [("take", &self.take), ("ignore", &self.ignore)];
        all.into_iter().find_map(|(field, patterns)| {
            (1..).zip(patterns.iter()).find_map(|(number, pattern)| {
                pattern.objection().map(|objection| format!("`topics.{field}`, number {number}: {objection}"))
            })
        })
    }
}

impl Patterns {
    pub fn iter(&self) -> impl Iterator<Item = &Pattern> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn fit(&self, topic: &str) -> bool {
        self.0.iter().any(|pattern| pattern.fits(topic))
    }
}

impl Pattern {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn fits(&self, topic: &str) -> bool {
        fits(&self.0, topic)
    }

    /// Returns why the pattern cannot match any topic, or `None` if it can.
    pub fn objection(&self) -> Option<&'static str> {
        let text = &self.0;
        if text.is_empty() {
            Some("the topic is empty; write `unknown` for deliveries without a topic")
        } else if text.trim() != text || text.chars().any(char::is_control) {
            Some("the topic has white space around it or contains a control character, and no topic does")
        } else if text.replace('*', "").chars().count() > LONGEST {
            Some("the topic is longer than 128 characters, the most that a topic has")
        } else {
            None
        }
    }
}

pub(super) fn fits(pattern: &str, topic: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == topic };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut left) = topic.strip_prefix(start).and_then(|left| left.strip_suffix(end)) else { return false };
    // Taking the first match leaves the most text for the rest of the pattern.
    middle.split('*').all(|piece| match left.split_once(piece) {
        Some((_, behind)) => {
            left = behind;
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::shop;

    #[test]
    fn star_in_topic_pattern_matches_any_text() {
        for (pattern, fit, other) in [
            ("orders/create", &["orders/create"][..], &["orders/created", "orders", "Orders/create", ""][..]),
            ("orders/*", &["orders/create", "orders/", "orders/a/b"], &["orders", "draft_orders/create"]),
            ("*", &["", "orders/create"], &[]),
            ("*/delete", &["orders/delete", "/delete"], &["orders/deleted", "delete"]),
            ("charge.*.created", &["charge.dispute.created", "charge.a.b.created"], &["charge.created"]),
            ("a*a", &["aa", "aba", "aaa"], &["a", "ab"]),
            ("*b*b*", &["bb", "abcbd"], &["b", "abc"]),
            ("a*b*c", &["abc", "aXbXbXc", "abbc"], &["ac", "acb", "abcd"]),
            ("**", &["", "a"], &[]),
        ] {
            assert!(fit.iter().all(|topic| fits(pattern, topic)), "{pattern}");
            assert!(!other.iter().any(|topic| fits(pattern, topic)), "{pattern}");
        }
    }

    #[test]
    fn ignored_topics_override_taken_topics() {
        let both = shop("topics = { take = ['orders/*', 'refunds/create'], ignore = 'orders/edited' }").unwrap();
        let taken = |topic: &str| both.takes(topic);
        assert!(taken("orders/create") && taken("refunds/create"));
        assert!(!taken("orders/edited") && !taken("customers/update") && !taken("unknown"));
        let ignoring = shop("topics = { ignore = ['customers/*'] }").unwrap();
        assert!(ignoring.takes("orders/create") && !ignoring.takes("customers/update"));
    }

    #[test]
    fn source_without_topics_takes_every_topic() {
        for topics in ["", "topics = {}", "topics = { take = [], ignore = [] }"] {
            assert!(shop(topics).unwrap().takes("orders/create"), "{topics}");
        }
    }

    #[test]
    fn topic_pattern_that_can_match_nothing_is_refused() {
        let refused = |topics: &str| shop(&format!("topics = {{ {topics} }}")).unwrap_err();
        assert!(refused("take = ['orders/*', '']").contains("`topics.take`, number 2: the topic is empty"));
        assert!(
            refused("ignore = ' orders/*'").contains("`topics.ignore`, number 1: the topic has white space around it")
        );
        assert!(refused(&format!("take = '{}'", "a".repeat(129))).contains("longer than 128 characters"));
        assert!(shop(&format!("topics = {{ take = '{}*' }}", "a".repeat(128))).is_ok());
        assert!(refused("takes = 'a'").contains("unknown field `takes`"));
        assert!(refused("take = 7").contains("a topic is a text, such as `orders/*`"));
    }
}
