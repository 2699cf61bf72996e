//! Advice about a source's topics, compared with the topics that the samples and rules of its provider know.

use std::collections::BTreeSet;

use webhook_serializer::{
    functions::ingest::HttpRequest,
    nearest, providers,
    sources::{Pattern, Source, Topics},
};

use super::{Advice, Weight};
use crate::local::samples;

const SHOWN: usize = 4;

pub(super) fn of(source: &Source) -> Vec<Advice> {
    let Some(topics) = source.topics() else { return Vec::new() };
    let name = &source.name;
    let say = |weight, text: String| Advice { weight, text: format!("source `{name}`: {text}") };
    if *topics == Topics::default() {
        let text = "`topics` lists nothing to take or ignore, so all topics are taken. To take no topic, remove the\n\
                    source";
        return vec![say(Weight::Note, text.to_owned())];
    }
    if topics.ignore.iter().any(|pattern| pattern.fits("*")) {
        let text = "`topics.ignore` contains `*`, so no delivery is ever handled. If that is what you want, remove \
                    the source";
        return vec![say(Weight::Warning, text.to_owned())];
    }
    let known = known_topics(source);
    let mut advice: Vec<Advice> = Vec::new();
    for taken in topics.take.iter() {
        let text = taken.as_str();
        // If an ignored pattern fits the text of a taken pattern, it fits every topic of that pattern too.
        if let Some(ignored) = topics.ignore.iter().find(|ignored| ignored.fits(text)) {
            let ignored = ignored.as_str();
            advice.push(say(
                Weight::Warning,
                format!("`topics.take` has `{text}`, but `{ignored}` in `topics.ignore` ignores all of it"),
            ));
        }
    }
    if !known.is_empty() {
        let patterns = [("take", &topics.take), ("ignore", &topics.ignore)];
        let all = patterns.into_iter().flat_map(|(field, patterns)| patterns.iter().map(move |one| (field, one)));
        advice.extend(all.filter_map(|(field, pattern)| {
            let (weight, text) = doubt(field, pattern, &known, &source.provider_name)?;
            Some(say(weight, text))
        }));
    }
    advice
}

fn known_topics(source: &Source) -> BTreeSet<String> {
    let examples = providers::rule_of(&source.provider_name).map(|rule| rule.examples).unwrap_or_default();
    if examples.is_empty() {
        return BTreeSet::new();
    }
    let mut topics: BTreeSet<String> = examples
        .iter()
        .map(|example| {
            let headers = example.header.into_iter().collect();
            source.describe(providers::Request { headers: &headers, body: example.body.as_bytes() }).topic
        })
        .collect();
    for (_, event) in samples::of_provider(&source.provider_name) {
        let Ok(event) = serde_json::from_str::<HttpRequest>(event) else { continue };
        let headers = event.headers();
        let body = event.bytes().unwrap_or_default();
        topics.insert(source.describe(providers::Request { headers: &headers, body: &body }).topic);
    }
    topics
}

fn doubt(field: &str, pattern: &Pattern, known: &BTreeSet<String>, provider: &str) -> Option<(Weight, String)> {
    let text = pattern.as_str();
    if known.iter().any(|topic| pattern.fits(topic)) {
        return None;
    }
    let alike = known.iter().find(|topic| spelt_alike(text, topic));
    if let Some(topic) = alike {
        let text = format!("`topics.{field}` has `{text}`, which {provider} does not send: it writes `{topic}`");
        return Some((Weight::Warning, text));
    }
    if text.contains(',') {
        let text =
            format!("`topics.{field}` has `{text}`, which is one topic; write several topics as a list of texts");
        return Some((Weight::Warning, text));
    }
    let glob = text.replace(".*", "*");
    let has_dots = known.iter().any(|topic| topic.contains('.'));
    if glob != text && !has_dots && known.iter().any(|topic| Pattern::new(glob.clone()).fits(topic)) {
        let text = format!("`topics.{field}` has `{text}`, in which the `.` stands for itself; did you mean `{glob}`?");
        return Some((Weight::Warning, text));
    }
    // A topic without a sample may exist in a known topic family.
    let family = |topic: &str| topic.split(['/', '.', ':', '*']).next().unwrap_or_default().to_owned();
    let slip = known.iter().find(|topic| nearest::is_slip(text, topic) || lacks_ending(text, topic));
    if slip.is_none() && known.iter().any(|topic| family(topic) == family(text)) {
        return None;
    }
    // The pattern of a topic family may be misspelt, such as `order/*` for `orders/*`.
    let families = known.iter().filter_map(|topic| Some(format!("{}*", &topic[..=topic.find(['/', '.', ':'])?])));
    let families: BTreeSet<String> = families.collect();
    let hint = match slip {
        Some(topic) => format!(" (did you mean `{topic}`?)"),
        None => nearest::hint(text, known.iter().chain(&families).map(String::as_str)),
    };
    let shown: Vec<String> = known.iter().take(SHOWN).map(|topic| format!("`{topic}`")).collect();
    let text = format!(
        "`topics.{field}` has `{text}`, which matches no known topic of {provider}{hint}. The known topics are\n\
         {}, …",
        shown.join(", ")
    );
    Some((Weight::Note, text))
}

/// Returns whether the text is a topic without the end of its verb, such as `charge.refund` for `charge.refunded`.
fn lacks_ending(text: &str, topic: &str) -> bool {
    topic.strip_prefix(text).is_some_and(|ending| ["e", "d", "ed"].contains(&ending))
}

fn spelt_alike(pattern: &str, topic: &str) -> bool {
    // Before a `*`, another word may begin: `invoice.*` does not mean `invoice_payment.paid`.
    let separators: &[char] = if pattern.contains('*') { &['/', '.', ':'] } else { &['/', '.', ':', '_', '-', ' '] };
    let plain = |text: &str| text.to_lowercase().replace(separators, "/");
    Pattern::new(plain(pattern)).fits(&plain(topic))
}

#[cfg(test)]
mod tests {
    use webhook_serializer::sources::Sources;

    use super::*;

    fn advice(provider: &str, topics: &str) -> Vec<(Weight, String)> {
        let document = format!("[sources.shop]\nprovider = '{provider}'\nhandler = 'h'\ntopics = {topics}");
        let sources = Sources::parse(&document).unwrap();
        of(sources.get("shop").unwrap()).into_iter().map(|advice| (advice.weight, advice.text)).collect()
    }

    #[test]
    fn pattern_with_another_word_before_the_asterisk_causes_no_warning() {
        let all = advice("stripe", "{ take = ['invoice.*'] }");
        assert!(all.iter().all(|(weight, _)| *weight != Weight::Warning), "{all:?}");
    }

    #[test]
    fn known_topics_cause_no_advice() {
        for (provider, topics) in [
            ("shopify", "{ take = ['orders/*', 'refunds/create', '*/create'] }"),
            ("shopify", "{ take = 'orders/risk_assessment_changed', ignore = 'customers/*' }"),
            ("stripe", "{ take = ['payment_intent.*', 'charge.dispute.*'] }"),
            ("paypal", "{ ignore = 'PAYMENT.CAPTURE.*' }"),
            ("standard-webhooks", "{ take = 'whatever' }"),
        ] {
            assert_eq!(advice(provider, topics), [], "{provider} {topics}");
        }
    }

    #[test]
    fn topic_in_wrong_notation_is_warned_about() {
        for (provider, topic, right) in [
            ("shopify", "ORDERS_CREATE", "`orders/create`"),
            ("shopify", "orders.*", "`orders/"),
            ("stripe", "charge/refunded", "`charge.refunded`"),
        ] {
            let [(weight, text)] = advice(provider, &format!("{{ take = '{topic}' }}")).try_into().unwrap();
            assert_eq!(weight, Weight::Warning);
            assert!(text.contains("does not send: it writes ") && text.contains(right), "{text}");
        }
    }

    #[test]
    fn note_on_unknown_topic_lists_known_topics() {
        let [(weight, text)] = advice("shopify", "{ ignore = 'baskets/*' }").try_into().unwrap();
        assert_eq!(weight, Weight::Note);
        assert!(text.contains("`baskets/*`") && text.contains("`customers/"), "{text}");
    }

    #[test]
    fn note_on_misspelt_topic_suggests_nearest_topic() {
        for (misspelt, meant) in
            [("oders/*", "orders/*"), ("orders/crate", "orders/create"), ("oders/paid", "orders/paid")]
        {
            let [(_, text)] = advice("shopify", &format!("{{ take = '{misspelt}' }}")).try_into().unwrap();
            assert!(
                text.contains(&format!("has `{misspelt}`")) && text.contains(&format!("did you mean `{meant}`?")),
                "{text}"
            );
        }
    }

    #[test]
    fn note_on_topic_without_its_ending_suggests_whole_topic() {
        for (provider, cut, whole) in [
            ("shopify", "orders/creat", "orders/create"),
            ("stripe", "charge.refund", "charge.refunded"),
            ("razorpay", "payment.capture", "payment.captured"),
            ("easypost", "tracker.update", "tracker.updated"),
        ] {
            let [(weight, text)] = advice(provider, &format!("{{ take = '{cut}' }}")).try_into().unwrap();
            assert_eq!(weight, Weight::Note);
            assert!(text.contains(&format!("has `{cut}`")) && text.contains(&format!("mean `{whole}`?")), "{text}");
        }
        for (provider, other) in [
            ("stripe", "charge.refund.updated"),
            ("stripe", "charge.updated"),
            ("stripe", "charge.succeeded"),
            ("shopify", "orders/delete"),
            ("razorpay", "payment.authorized"),
        ] {
            assert_eq!(advice(provider, &format!("{{ take = '{other}' }}")), [], "{other}");
        }
    }

    #[test]
    fn empty_topics_table_is_noted() {
        for topics in ["{}", "{ take = [], ignore = [] }"] {
            let [(weight, text)] = advice("shopify", topics).try_into().unwrap();
            assert!(weight == Weight::Note && text.contains("so all topics are taken"), "{text}");
        }
    }

    #[test]
    fn list_in_one_text_and_regular_expression_are_warned_about() {
        for (take, expected) in [("orders/paid,orders/create", "a list of texts"), ("orders/.*", "mean `orders/*`?")] {
            let [(weight, text)] = advice("shopify", &format!("{{ take = '{take}' }}")).try_into().unwrap();
            assert!(weight == Weight::Warning && text.contains(expected), "{text}");
        }
    }

    #[test]
    fn topic_both_taken_and_ignored_is_warned_about() {
        let [(weight, text)] =
            advice("shopify", "{ take = ['orders/*', 'refunds/*'], ignore = 'orders/*' }").try_into().unwrap();
        assert_eq!(weight, Weight::Warning);
        assert!(text.contains("has `orders/*`, but `orders/*` in `topics.ignore` ignores all of it"), "{text}");
        let [(weight, text)] = advice("shopify", "{ ignore = '*' }").try_into().unwrap();
        assert!(weight == Weight::Warning && text.contains("no delivery is ever handled"), "{text}");
        assert_eq!(advice("shopify", "{ take = 'orders/*', ignore = 'orders/edited' }"), []);
    }
}
