//! Sources documents and entity keys: any text is parsed, or refused with a reason.

#![no_main]

use libfuzzer_sys::fuzz_target;
use webhook_serializer::{protocol::entity::EntityKey, sources::Sources};

fuzz_target!(|text: &str| {
    match Sources::parse(text) {
        Ok(sources) => {
            for source in sources.iter() {
                assert!(sources.get(source.name.as_str()).is_some(), "{} is found by its name", source.name);
                assert!(source.handler_timeout <= sources.longest_handler_timeout());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(key) = EntityKey::parse(text) {
        assert!(key.as_str().len() <= 512);
        assert_eq!(EntityKey::parse(key.as_str()).as_ref(), Ok(&key), "a key is its own normal form");
    }
});
