#![no_main]
//! Function events: whatever Lambda hands over is read or refused.

// The functions' own modules, without the clients that surround them.
#[expect(dead_code, reason = "what they answer is not read here")]
#[path = "../../../functions/ingest/src/http.rs"]
mod http;
// Not `expect`, which the compiler holds unfulfilled here.
#[allow(dead_code, reason = "what they answer is not read here")]
#[path = "../../../functions/worker/src/sqs.rs"]
mod sqs;

use libfuzzer_sys::fuzz_target;
use webhook_serializer::engine::batch::{Batch, Message};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<http::Request>(bytes) {
        assert!(request.source().is_none_or(|source| !source.contains('/')));
        let _ = request.bytes();
        assert_eq!(request.headers().iter().count(), request.headers.len());
    }
    if let Ok(event) = serde_json::from_slice::<sqs::SqsEvent>(bytes) {
        let messages: Vec<Message> = event.records.into_iter().map(Into::into).collect();
        let count = messages.len();
        let batch = Batch::sort(messages);
        assert!(batch.jobs().len() + batch.unreadable().len() <= count);
        // Nothing is known of any job: every message that could be read is kept.
        assert_eq!(batch.failures(&Default::default()).len() + batch.unreadable().len(), count);
    }
});
