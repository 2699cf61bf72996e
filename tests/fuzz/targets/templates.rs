#![no_main]
//! Entity key templates: one that is taken has a field, and is filled with
//! whatever its fields come to.

use std::{borrow::Cow, cell::Cell};

use libfuzzer_sys::fuzz_target;
use webhook_serializer::sources::template::Template;

fuzz_target!(|input: (&str, &str)| {
    let (text, value) = input;
    let Ok(template) = Template::parse(text) else { return };
    let asked = Cell::new(false);
    let filled = template.fill(|_| {
        asked.set(true);
        Some(Cow::Borrowed(value))
    });
    assert!(asked.get(), "it has a field");
    if let Some(filled) = filled {
        assert!(filled.contains(value));
    }
    assert_eq!(template.fill(|_| None), None, "without a value there is no key");
});
