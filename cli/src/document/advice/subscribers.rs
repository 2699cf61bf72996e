//! Advice about subscribers that never get a delivery, because their parent takes none of those that they take.

use webhook_serializer::{
    providers::is_known_topic,
    sources::{Source, Sources},
};

use super::{Advice, Weight};

pub fn of(source: &Source, sources: &Sources) -> Vec<Advice> {
    let Some(parent) = source.from.as_ref().and_then(|from| sources.get(from.as_str())) else { return Vec::new() };
    let fields = filters(source, parent).into_iter().chain(topics(source, parent));
    let note = |field: String| Advice {
        weight: Weight::Note,
        text: format!("source `{}` gets no readable delivery: {field}", source.name),
    };
    fields.map(note).collect()
}

fn filters(source: &Source, parent: &Source) -> Option<String> {
    source.filter.places().find_map(|(place, own)| {
        let (_, taken) = parent.filter.places().find(|(other, _)| *other == place)?;
        own.iter()
            .all(|value| !taken.contains(value))
            .then(|| format!("its parent `{}` takes only other values for `{place}`", parent.name))
    })
}

fn topics(source: &Source, parent: &Source) -> Option<String> {
    let take = &source.topics()?.take;
    // A delivery without a topic is never ignored.
    let is_left_out = |topic: &str| !topic.contains('*') && is_known_topic(topic) && !parent.takes(topic);
    (!take.is_empty() && take.iter().all(|topic| is_left_out(topic.as_str())))
        .then(|| format!("its parent `{}` takes none of its `topics`", parent.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(parent: &str, subscriber: &str) -> Vec<String> {
        let document = format!(
            "[sources.shop]\nprovider = 'shopify'\nhandler = 'fan-out'\n{parent}\n\
             [sources.mails]\nfrom = 'shop'\nhandler = 'log'\n{subscriber}"
        );
        let sources = Sources::parse(&document).unwrap();
        assert_eq!(of(sources.get("shop").unwrap(), &sources), []);
        of(sources.get("mails").unwrap(), &sources).into_iter().map(|advice| advice.text).collect()
    }

    #[test]
    fn subscriber_that_contradicts_its_parent_is_noted() {
        for (parent, subscriber, expected) in [
            ("filter = { '/test' = false }", "filter = { '/test' = true }", "takes only other values for `/test`"),
            ("filter = { '/a' = [1, 2] }", "filter = { '/a' = ['1', 3] }", "takes only other values for `/a`"),
            ("topics.take = 'orders/*'", "topics.take = 'refunds/create'", "takes none of its `topics`"),
            ("topics.ignore = 'refunds/*'", "topics.take = ['refunds/create']", "takes none of its `topics`"),
        ] {
            let [note] = notes(parent, subscriber).try_into().unwrap();
            assert!(
                note.starts_with("source `mails` gets no readable delivery: its parent `shop`")
                    && note.contains(expected),
                "{note}"
            );
        }
    }

    #[test]
    fn subscriber_that_may_get_a_delivery_is_not_noted() {
        for (parent, subscriber) in [
            ("filter = { '/a' = [1, 2] }", "filter = { '/a' = [2, 3] }"),
            ("filter = { '/a' = 1 }", "filter = { '/b' = 2 }"),
            ("topics.take = 'orders/*'", "topics.take = ['refunds/create', 'orders/paid']"),
            ("topics.take = 'orders/*'", "topics.take = '*/create'"),
            ("topics.take = 'orders/*'", "topics.take = 'unknown'"),
            ("topics.take = 'orders/*'", "topics.ignore = 'orders/paid'"),
            ("", "topics.take = 'refunds/create'"),
        ] {
            assert_eq!(notes(parent, subscriber), [""; 0], "{parent} {subscriber}");
        }
    }
}
