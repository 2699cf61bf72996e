//! Queue messages: a wake-up survives a round trip, anything else is refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use webhook_serializer::{
    Timestamp,
    engine::queue::WakeUp,
    functions::worker::batch::{Batch, ReceivedMessage},
    protocol::entity::EntityKey,
};

fuzz_target!(|input: (String, u32)| {
    let (text, times) = input;
    let read = serde_json::from_str::<WakeUp>(&text);
    if let Ok(wake_up) = &read {
        let written = serde_json::to_string(wake_up).expect("it can be written");
        assert_eq!(&serde_json::from_str::<WakeUp>(&written).expect("it is a wake-up"), wake_up);
    }
    let batch = Batch::sort([ReceivedMessage { id: "1".into(), body: text.clone(), times, sent_at: None }]);
    assert_eq!(batch.orders(Timestamp::from_millis(0)).len(), usize::from(read.is_ok()));
    assert!(batch.orders(Timestamp::from_millis(0)).iter().all(|order| order.times == times));
    // Any key survives a round trip.
    if let Ok(entity) = EntityKey::parse(&text) {
        let sent = WakeUp::of(&entity);
        let body = serde_json::to_string(&sent).expect("it can be written");
        assert_eq!(serde_json::from_str::<WakeUp>(&body).expect("it is a wake-up"), sent);
    }
});
