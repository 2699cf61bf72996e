//! Events of functions: any input is parsed or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use webhook_serializer::{
    Timestamp,
    functions::{
        ingest::HttpRequest,
        worker::{
            SqsEvent,
            batch::{Batch, ReceivedMessage},
        },
    },
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<HttpRequest>(bytes) {
        assert!(request.source().is_none_or(|source| !source.contains('/')));
        let _ = request.bytes();
        assert_eq!(request.headers().iter().count(), request.headers.len());
    }
    if let Ok(event) = serde_json::from_slice::<SqsEvent>(bytes) {
        let messages: Vec<ReceivedMessage> = event.records.into_iter().map(Into::into).collect();
        let count = messages.len();
        let batch = Batch::sort(messages);
        assert!(batch.orders(Timestamp::from_millis(0)).len() + batch.unreadable().len() <= count);
        // A batch without results keeps every readable message on the queue.
        assert_eq!(batch.failures(&Default::default()).len() + batch.unreadable().len(), count);
    }
});
