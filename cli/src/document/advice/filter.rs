//! Advice about a source's filter, compared with the values in the sample events of its provider.

use serde_json::Value;
use webhook_serializer::{
    functions::ingest::HttpRequest,
    providers,
    sources::{FilterValue, Source},
};

use super::{Advice, Weight};
use crate::local::samples;

/// Objects whose keys the sender's customer chooses, so that no sample shows all of them.
const CUSTOM: [&str; 2] = ["metadata", "notes"];

struct SampleEvent {
    topic: String,
    body: Value,
}

pub(super) fn of(source: &Source) -> Vec<Advice> {
    let samples = sample_events(source);
    let takes_others = source.topics().is_some_and(|topics| {
        topics.take.iter().any(|pattern| !samples.iter().any(|sample| pattern.fits(&sample.topic)))
    });
    let bodies: Vec<&Value> =
        samples.iter().filter(|sample| source.takes(&sample.topic)).map(|sample| &sample.body).collect();
    if takes_others || bodies.is_empty() {
        return Vec::new();
    }
    let doubts = source.filter.places().filter_map(|(place, wanted)| {
        let found: Vec<&Value> = bodies.iter().flat_map(|body| values_at(body, place)).collect();
        doubt(place, wanted, &found, &source.provider_name)
    });
    doubts.map(|text| Advice { weight: Weight::Note, text: format!("source `{}`: {text}", source.name) }).collect()
}

/// Returns the provider's sample events with a JSON body, or none if its senders' bodies have no form of their own.
fn sample_events(source: &Source) -> Vec<SampleEvent> {
    let examples = providers::rule_of(&source.provider_name).map(|rule| rule.examples).unwrap_or_default();
    if examples.is_empty() {
        return Vec::new();
    }
    let events = samples::of_provider(&source.provider_name).into_iter().filter_map(|(_, event)| {
        let event: HttpRequest = serde_json::from_str(event).ok()?;
        let body = event.bytes()?;
        let headers = event.headers();
        let request = providers::Request { headers: &headers, body: &body };
        Some(SampleEvent { topic: source.describe(request).topic, body: serde_json::from_slice(&body).ok()? })
    });
    events.collect()
}

/// Returns the values at a JSON pointer. A number in it fits each item of a list. Where the body does not show what
/// could be there, as in an empty list, the value is null.
fn values_at<'a>(body: &'a Value, place: &str) -> Vec<&'a Value> {
    let mut found = vec![body];
    let mut is_custom = false;
    for token in place.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let inside = |value: &'a Value| match value {
            Value::Array(items) if items.is_empty() => vec![&Value::Null],
            Value::Array(items) if token.parse::<usize>().is_ok() => items.iter().collect(),
            Value::Object(fields) if is_custom || fields.is_empty() => vec![&Value::Null],
            Value::Object(fields) => fields.get(&token).into_iter().collect(),
            Value::Null => vec![value],
            _ => Vec::new(),
        };
        found = found.into_iter().flat_map(inside).collect();
        is_custom = CUSTOM.contains(&token.as_str());
    }
    found
}

fn doubt(place: &str, wanted: &[FilterValue], found: &[&Value], provider: &str) -> Option<String> {
    let number = found.iter().find(|found| found.is_number());
    let Some(sample) = number.or(found.first()) else {
        return Some(format!(
            "`filter` has the place `{place}`, where no sample event of {provider} that the source takes\n\
             has a value. Webhooks without a value there are ignored, and gone"
        ));
    };
    // Digits in quotes do not mean another text there, such as `gid://shopify/Order/7` beside the number 7.
    let is_number_quoted = |wanted: &FilterValue, found: &Value| match (wanted, found) {
        (FilterValue::Text(text), Value::String(found)) => number.is_some() && is_whole(text) && !is_whole(found),
        _ => false,
    };
    let fits = |wanted, found| may_equal(wanted, found) && !is_number_quoted(wanted, found);
    if wanted.iter().any(|wanted| found.iter().any(|found| fits(wanted, found))) {
        return None;
    }
    let written = kind_of(wanted.first()?);
    let (kind, instead) = match sample {
        Value::Number(number) => (
            "a number",
            match wanted.first()? {
                FilterValue::Text(text) if is_whole(text) => format!("write `{text}` without quotes"),
                _ => format!("write it without quotes, such as `{number}`"),
            },
        ),
        Value::String(_) => ("a text", format!("write it in quotes, as they do: `{sample}`")),
        Value::Bool(_) => ("a boolean", "write `true` or `false` without quotes".to_owned()),
        Value::Array(_) => ("a list", "a list equals nothing, so name a place in it".to_owned()),
        Value::Object(_) => ("an object", "an object equals nothing, so name a place in it".to_owned()),
        Value::Null => return None,
    };
    Some(format!(
        "`filter` has {written} for `{place}`, where the sample events of {provider} have {kind}, so it fits none:\n\
         {instead}"
    ))
}

fn is_whole(text: &str) -> bool {
    text.parse::<i64>().is_ok_and(|number| number.to_string() == text)
}

/// Returns whether a webhook whose value is like `found` can have the wanted one. A place with null may have any value.
fn may_equal(wanted: &FilterValue, found: &Value) -> bool {
    match wanted {
        FilterValue::Null => true,
        FilterValue::Flag(_) => found.is_boolean() || found.is_null(),
        FilterValue::Number(_) => found.is_number() || found.is_null(),
        FilterValue::Text(_) => found.is_string() || found.is_null(),
    }
}

fn kind_of(value: &FilterValue) -> &'static str {
    match value {
        FilterValue::Null => "null",
        FilterValue::Flag(_) => "a boolean",
        FilterValue::Number(_) => "a number",
        FilterValue::Text(_) => "a text",
    }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::sources::Sources;

    use super::*;

    fn notes(provider: &str, fields: &str) -> Vec<String> {
        let document = format!("[sources.shop]\nprovider = '{provider}'\nhandler = 'h'\n{fields}");
        let all = of(Sources::parse(&document).unwrap().get("shop").unwrap());
        assert!(all.iter().all(|advice| advice.weight == Weight::Note), "{all:?}");
        all.into_iter().map(|advice| advice.text).collect()
    }

    #[test]
    fn filter_that_fits_no_sample_event_is_noted() {
        for (provider, filter, expected) in [
            ("shopify", "'/id' = '450789469'", "have a number, so it fits none:\nwrite `450789469` without quotes"),
            ("stripe", "'/data/object/amount' = 'x'", "write it without quotes, such as `"),
            ("shopify", "'/total_price' = 10", "have a text, so it fits none:\nwrite it in quotes, as they do: `\""),
            ("shopify", "'/test' = 'false'", "have a boolean, so it fits none:\nwrite `true` or `false` without"),
            ("shopify", "'/line_items' = 'x'", "have a list, so it fits none:\na list equals nothing"),
            ("shopify", "'/nonexistent' = 'x'", "`/nonexistent`, where no sample event of shopify"),
            ("shopify", "'/nonexistent' = true, '/test' = false", "`/nonexistent`, where no sample"),
            ("stripe", "'/data/object/nonexistent' = 'x'", "where no sample event of stripe"),
        ] {
            let [note] = notes(provider, &format!("filter = {{ {filter} }}")).try_into().unwrap();
            assert!(note.starts_with("source `shop`: `filter` has ") && note.contains(expected), "{filter}: {note}");
        }
        let [of_topic] =
            notes("shopify", "topics.take = 'refunds/create'\nfilter = { '/test' = false }").try_into().unwrap();
        assert!(of_topic.contains("`/test`, where no sample event"), "{of_topic}");
    }

    #[test]
    fn filter_that_a_webhook_may_fit_is_not_noted() {
        for (provider, fields) in [
            ("shopify", "filter = { '/source_name' = ['web', 'pos'], '/test' = false }"),
            ("shopify", "filter = { '/id' = ['450789469', 450789469] }"),
            ("shopify", "filter = { '/id' = 'gid://shopify/Order/450789469' }"),
            ("shopify", "filter = { '/cancel_reason' = 'customer', '/order_id' = 1 }"),
            ("shopify", "filter = { '/line_items/99/id' = 7 }"),
            ("shopify", "topics.take = ['orders/*', 'products/*']\nfilter = { '/vendor' = 'x' }"),
            ("shopify", "topics.take = 'products/update'\nfilter = { '/vendor' = 'x' }"),
            ("stripe", "filter = { '/livemode' = true, '/data/object/metadata/shop' = 'x' }"),
            ("mollie-classic", "filter = { '/id' = 7 }"),
            ("twilio", "url = 'https://example.com/'\nfilter = { '/id' = 7 }"),
            ("standard-webhooks", "filter = { '/nonexistent' = 7 }"),
            ("generic", "generic = { token_in = 'x-key', entity = '/id' }\nfilter = { '/nonexistent' = 7 }"),
        ] {
            assert_eq!(notes(provider, fields), [""; 0], "{provider} {fields}");
        }
    }
}
