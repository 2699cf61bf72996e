//! JSON pointers into raw bodies agree with serde_json.

#![no_main]

use libfuzzer_sys::fuzz_target;
use webhook_serializer::providers::pointer;

fuzz_target!(|input: (&[u8], &str)| {
    let (body, path) = input;
    let found = pointer(body, path);
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else { return };
    if let Some(serde_json::Value::String(text)) = value.pointer(path) {
        assert_eq!(found.as_deref(), Some(text.as_str()));
    }
});
