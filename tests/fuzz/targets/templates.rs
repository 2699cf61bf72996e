//! Entity key templates: a valid one contains its fields' values, or is a constant key.

#![no_main]

use std::{borrow::Cow, cell::Cell};

use libfuzzer_sys::fuzz_target;
use webhook_serializer::{protocol::entity::EntityKey, sources::template::Template};

fuzz_target!(|input: (&str, &str, &str)| {
    let (text, topic, value) = input;
    let Ok(template) = Template::parse(text) else { return };
    let asked = Cell::new(false);
    let filled = template.fill(topic, |_| {
        asked.set(true);
        Some(Cow::Borrowed(value))
    });
    if let Some(filled) = filled {
        assert!(if asked.get() { filled.contains(value) } else { EntityKey::parse(&filled).is_ok() });
    }
    let without = template.fill(topic, |_| None);
    assert!(without.is_none_or(|key| EntityKey::parse(&key).is_ok()), "without a value there is no key");
});
