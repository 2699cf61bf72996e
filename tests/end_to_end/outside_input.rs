//! Input from outside is read within its limits or refused, and written data reads back the same. For longer
//! runs: `tests/fuzz`.

use std::borrow::Cow;

use aws_sdk_sqs::error::ProvideErrorMetadata;
use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use tests::prelude::*;
use webhook_serializer::{
    engine::queue::WakeUp,
    functions::worker::batch::{Batch, ReceivedMessage},
    protocol::{
        delivery::InboxItem, entity::Identity, format::FORMAT, inbox::Spill, memory::evaluate, receipt::Receipt,
        state::EventTimes,
    },
    sources::template::Template,
};

const SOURCES: &str = include_str!("../../events/sources.toml");

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-zA-Z0-9/{}:~_. \u{0}\u{1f}\u{300}\u{e9}-]{0,40}",
        (any::<String>(), 0..600_usize).prop_map(|(text, times)| text.repeat(times)),
        "(shopify|test|cron)/[a-z0-9/]{0,600}",
        "[a-z]{1,5}/[\u{d7fe}-\u{e001}\u{fffc}-\u{10002}\u{1fffd}-\u{20001}\u{10fffd}-\u{10ffff}]{1,20}",
    ]
}

/// Returns whether the API reference of `SendMessage` allows this character.
fn sqs_carries(character: char) -> bool {
    matches!(u32::from(character), 0x9 | 0xa | 0xd | 0x20..=0xd7ff | 0xe000..=0xfffd | 0x1_0000..=0x10_ffff)
}

fn any_key() -> impl Strategy<Value = EntityKey> {
    "[a-z_]{1,12}/[^\\p{Cc}\\p{Z}]{1,40}".prop_filter_map("a key", |text| EntityKey::parse(&text).ok())
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    (0..1_u64 << 48).prop_map(Timestamp::from_millis)
}

/// A row's receipts keep 42 bits of a time.
fn any_settle_time() -> impl Strategy<Value = Timestamp> {
    (0..1_u64 << 42).prop_map(Timestamp::from_millis)
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any_text().prop_map(Value::S),
        any::<i64>().prop_map(Value::N),
        any::<Vec<u8>>().prop_map(|bytes| Value::B(bytes.into())),
        Just(Value::Null),
    ]
}

fn any_row() -> impl Strategy<Value = Row> {
    let right = Just(
        Row::new()
            .with(a::VERSION, FORMAT)
            .with(a::ENTITY, "test/a")
            .with(a::ITEM, "d#00000000000000000007")
            .with(a::TAIL, 9_u64)
            .with(a::HEAD, 7_u64)
            .with(a::TOKEN, 5_u64)
            .with(a::NONCE, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
            .with(a::SOURCE, "test")
            .with(a::DELIVERY_ID, "1")
            .with(a::TOPIC, "order.updated")
            .with(a::RECEIVED_AT, 1_u64)
            .with(a::BODY_BYTES, 0_u64)
            .with(a::ENCODING, "identity")
            .with(a::SEQUENCE, 7_u64)
            .with(a::OUTCOME, "applied")
            .with(a::SETTLED_AT, 1_u64),
    );
    let wrong = prop::collection::vec((prop::sample::select(a::ALL), any_value()), 0..6);
    (right, wrong).prop_map(|(mut row, wrong)| {
        for (name, value) in wrong {
            row.set(name, value);
        }
        row
    })
}

fn any_settlement() -> impl Strategy<Value = Settlement> {
    prop::sample::select(vec![Settlement::Applied, Settlement::Repeat, Settlement::Void, Settlement::Parked])
}

fn receipt(
    sequence: u64,
    incoming: &Incoming,
    settlement: Settlement,
    took: Option<Duration>,
    settled_at: Timestamp,
) -> Receipt {
    Receipt {
        sequence: Sequence(sequence),
        identity: (settlement != Settlement::Void).then(|| incoming.identity.hash()),
        settlement,
        token: FencingToken(sequence),
        attempts: 3,
        settled_at,
        took,
    }
}

fn any_incoming() -> impl Strategy<Value = Incoming> {
    let ids = ("[a-z0-9_-]{1,64}", "\\PC{1,300}", 0..5_u32);
    let texts = ("\\PC{1,30}", "\\PC{1,30}", prop::option::of("[a-z/]{1,20}"), prop::option::of("[a-z-]{1,20}"));
    (any_key(), ids, texts, prop::option::of(any_time()), any_time(), any::<Vec<u8>>()).prop_map(
        |(entity, (source, id, redrive), (topic, family, content_type, provider), event_time, received_at, body)| {
            Incoming {
                entity,
                identity: Identity {
                    source: SourceName::parse(&source).expect("a source"),
                    delivery_id: DeliveryId::new(id),
                    redrive,
                },
                provider,
                topic,
                family,
                event_time,
                received_at,
                content_type,
                body: body.into(),
            }
        },
    )
}

proptest! {
    #[test]
    fn entity_key_is_normalized_and_limited_in_length(text in any_text()) {
        if let Ok(key) = EntityKey::parse(&text) {
            prop_assert!(key.as_str().len() <= 512);
            prop_assert!(!key.as_str().contains(char::is_control));
            prop_assert_eq!(EntityKey::parse(key.as_str()), Ok(key));
        }
    }

    #[test]
    fn delivery_id_is_limited_in_length_and_stable(text in any_text()) {
        let id = DeliveryId::new(text);
        prop_assert!(id.as_str().len() <= DeliveryId::MAX_BYTES);
        prop_assert_eq!(DeliveryId::new(id.as_str()), id);
    }

    #[test]
    fn wake_up_round_trips_through_message_text(entity in any_key(), times in 1..9_u32) {
        let body = serde_json::to_string(&WakeUp::of(&entity)).unwrap();
        let batch = Batch::sort([ReceivedMessage { id: "1".into(), body, times, sent_at: None }]);
        let orders: Vec<_> = batch.orders(Timestamp::from_millis(0)).into_iter().map(|order| (order.entity, order.times)).collect();
        prop_assert_eq!(orders, [(entity, times)]);
    }

    #[test]
    fn every_key_fits_an_sqs_message(text in any_text()) {
        if let Ok(entity) = EntityKey::parse(&text) {
            let body = serde_json::to_string(&WakeUp::of(&entity)).unwrap();
            prop_assert!(body.chars().all(sqs_carries), "{:?}", body);
            prop_assert_eq!(serde_json::from_str::<WakeUp>(&body).unwrap(), WakeUp::of(&entity));
        }
    }

    #[test]
    fn batch_keeps_every_message_as_readable_or_unreadable(bodies in prop::collection::vec(any_text(), 0..8)) {
        let count = bodies.len();
        let messages = bodies.into_iter().enumerate();
        let messages = messages.map(|(id, body)| ReceivedMessage { id: id.to_string(), body, times: 1, sent_at: None });
        let batch = Batch::sort(messages);
        prop_assert_eq!(batch.failures(&Default::default()).len() + batch.unreadable().len(), count);
    }

    #[test]
    fn any_function_event_is_read_or_refused(text in any_text(), path in any_text(), body in any::<Vec<u8>>()) {
        let _ = serde_json::from_str::<HttpRequest>(&text);
        let _ = serde_json::from_str::<SqsEvent>(&text);
        let mut request = HttpRequest { raw_path: path, body: Some(text), is_base64_encoded: true, ..HttpRequest::default() };
        let _ = request.bytes();
        prop_assert!(request.source().is_none_or(|source| !source.contains('/')));
        request.body = Some(STANDARD.encode(&body));
        let sent = serde_json::to_string(&request).unwrap();
        let read: HttpRequest = serde_json::from_str(&sent).unwrap();
        prop_assert_eq!(read.bytes(), Some(Cow::Owned(body)));
        prop_assert_eq!(read.source(), request.source());
    }

    #[test]
    fn message_with_unreadable_receive_count_counts_as_redelivered(text in any_text()) {
        let record = serde_json::json!({"messageId": "1", "body": "", "attributes": {"ApproximateReceiveCount": text}});
        let event: SqsEvent = serde_json::from_value(serde_json::json!({"Records": [record]})).unwrap();
        let message = ReceivedMessage::from(event.records[0].clone());
        prop_assert_eq!(message.times, text.parse().unwrap_or(2));
    }

    #[test]
    fn entity_template_keeps_text_and_replaces_every_field(
        pieces in prop::collection::vec(("[a-z-]{0,5}", prop::sample::select(&["topic", "/id", "/a/b", "header:x", "a.*:/id"][..])), 1..5),
        value in "\\PC{0,5}[a-z0-9]\\PC{0,5}",
        happened in "[a-z]{0,5}",
    ) {
        let text: String = pieces.iter().map(|(text, field)| format!("{text}{{{field}}}")).collect();
        let expected: String = pieces.iter().map(|(text, _)| format!("{text}{value}")).collect();
        let filled = Template::parse(&text).unwrap().fill(&format!("a.{happened}"), |_| Some(value.as_str().into()));
        prop_assert_eq!(filled, Some(expected));
    }

    #[test]
    fn any_entity_template_is_valid_or_refused(text in any_text()) {
        if let Ok(template) = Template::parse(&text) {
            prop_assert!(template.fill("topic", |_| None).is_none_or(|key| EntityKey::parse(&key).is_ok()));
            let filled = template.fill("topic", |field| Some(field.to_owned().into()));
            prop_assert!(filled.is_some() || text.contains(':'), "one of its fields is for other topics");
        }
    }

    #[test]
    fn any_sources_document_is_read_or_refused(at in 0..SOURCES.len(), cut in 0..80_usize, put in any_text()) {
        let end = (at + cut).min(SOURCES.len());
        let _ = Sources::parse(&format!("{}{put}{}", &SOURCES[..at], &SOURCES[end..]));
        let _ = Sources::parse(&put);
    }

    #[test]
    fn parsing_arbitrary_row_never_panics(row in any_row()) {
        let entity = key("test/a");
        if let Ok(state) = EntityState::parse(&row) {
            let _ = (state.waiting(), state.is_empty(), state.next(), state.is_suspect());
        }
        let _ = Receipt::parse(&row);
        if let Ok(InboxItem::Delivery(unpacked)) = InboxItem::parse(&entity, &row) {
            let _ = unpacked.complete(&[]);
        }
    }

    #[test]
    fn row_of_an_entity_round_trips(
        settled in prop::collection::vec((any_settlement(), any_incoming(), any_settle_time(), any::<bool>()), 1..30),
        times in prop::collection::vec(("[a-z]{1,8}", any_time()), 0..6),
    ) {
        let head = 1_000_000 + settled.len() as u64;
        let mut recent = Recent::default();
        for (at, (settlement, incoming, time, ran)) in (1_000_001..).zip(settled) {
            let receipt = receipt(at, &incoming, settlement, ran.then_some(Duration::from_millis(at - 1_000_000)), time);
            recent = recent.with(receipt, Duration::from_secs(30));
        }
        let mut newest = EventTimes::default();
        for (family, time) in times {
            newest = newest.applied(&family, time);
        }
        let mut row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, "test/a").with(a::TAIL, head);
        row = row.with(a::HEAD, head).with(a::TOKEN, 1_u64).with(a::RECENT, recent.to_stored().expect("there are some"));
        if let Some(stored) = newest.to_stored() {
            row.set(a::NEWEST_EVENT_TIME, stored);
        }
        let state = EntityState::parse(&row).unwrap();
        prop_assert_eq!((state.recent, state.newest_event_time), (recent, newest));
    }

    #[test]
    fn delivery_and_receipt_round_trip(
        incoming in any_incoming(),
        settlement in any_settlement(),
        (took, settled) in (prop::option::of(0_u64..1 << 40), any_time()),
        (sequence, token) in (1..1_u64 << 48, 1..1_u64 << 48),
    ) {
        let nonce = webhook_serializer::time::Nonce::from_parts(incoming.received_at, 7);
        let envelope = Envelope::pack(&incoming, &nonce, settled);
        prop_assert!(envelope.parts().is_empty());
        let put = Put { envelope: &envelope, sequence: Sequence(sequence) }.write();
        let row = evaluate(&put, None).unwrap().unwrap();
        let InboxItem::Delivery(unpacked) = InboxItem::parse(&incoming.entity, &row).unwrap() else { panic!("a delivery") };
        let delivery = unpacked.complete(&[]).unwrap();
        prop_assert_eq!(delivery.sequence(), Sequence(sequence));
        prop_assert_eq!(delivery.identity(), &incoming.identity);
        prop_assert_eq!((delivery.topic(), delivery.family()), (&*incoming.topic, &*incoming.family));
        prop_assert_eq!(delivery.provider(), incoming.provider.as_deref());
        let latest = incoming.received_at + Duration::from_secs(300);
        prop_assert_eq!(delivery.event_time(), incoming.event_time.filter(|time| *time <= latest));
        prop_assert_eq!(delivery.received_at(), incoming.received_at);
        prop_assert_eq!(delivery.content_type(), incoming.content_type.as_deref());
        prop_assert_eq!(delivery.body(), &incoming.body);

        let receipt = receipt(sequence, &incoming, settlement, took.map(Duration::from_millis), settled);
        let receipt = Receipt { token: FencingToken(token), ..receipt };
        match Spill::of(&incoming.entity, &receipt, settled) {
            Some(spill) => {
                let row = evaluate(&spill.write(), None).unwrap().unwrap();
                prop_assert_eq!(Receipt::parse(&row).unwrap(), receipt);
            }
            None => prop_assert!([Settlement::Repeat, Settlement::Void].contains(&settlement)),
        }
    }
}

#[test]
fn misplaced_secret_is_not_shown_in_errors() {
    const SECRET: &str = "whsec_Y2FuYXJ5LWNhbmFyeQ==";
    let mut quotes = Vec::new();
    let mut at = 0;
    for line in SOURCES.split_inclusive('\n') {
        if !line.starts_with('#') {
            quotes.extend(line.match_indices('"').map(|(inside, _)| at + inside));
        }
        at += line.len();
    }
    let mut refused = 0;
    for value in quotes.chunks(2) {
        let [open, close] = value else { panic!("quotes come in pairs") };
        let document = format!("{}{SECRET}{}", &SOURCES[..=*open], &SOURCES[*close..]);
        if let Err(error) = Sources::parse(&document) {
            refused += 1;
            assert!(!format!("{error} {error:?}").contains("Y2FuYXJ5"), "{error}");
        }
    }
    assert!(refused > 10, "{refused}");
}

/// Sends the characters at the limits of what a message may hold, and every 61st one, through the client and
/// the queue.
#[tokio::test(flavor = "multi_thread")]
async fn every_key_character_passes_through_the_queue() {
    let testbed = TestBed::start().await;
    let edges = [0x20, 0x7e, 0xa0, 0xd7ff, 0xe000, 0xfffd, 0x1_0000, 0x1_fffe, 0x10_ffff];
    let characters: Vec<char> = (0..=0x10_ffff).step_by(61).chain(edges).filter_map(char::from_u32).collect();
    let mut sent = BTreeSet::new();
    for some in characters.chunks(120) {
        let allowed = some.iter().filter(|character| EntityKey::parse(&format!("a/{character}")).is_ok());
        let text: String = allowed.collect();
        sent.extend(EntityKey::parse(&format!("a/{text}")));
    }
    assert!(sent.len() > 100, "{} keys", sent.len());
    let queue = testbed.queue();
    for entity in &sent {
        queue.send(&WakeUp::of(entity).into(), Duration::ZERO).await.expect("the queue takes it");
    }
    let account = testbed.engines.account();
    let client = account.sqs(&account.http_client());
    let url = testbed.engines.config().queue_url;
    let mut received = BTreeSet::new();
    while received.len() < sent.len() {
        let answer = client.receive_message().queue_url(&url).max_number_of_messages(10).send().await.expect("answers");
        for message in answer.messages.expect("there are more") {
            let body = message.body.expect("a body");
            received.insert(serde_json::from_str::<WakeUp>(&body).expect("a wake-up").entity);
        }
    }
    assert_eq!(received, sent);
    let refused = client.send_message().queue_url(&url).message_body("\u{ffff}").send().await;
    assert_eq!(refused.expect_err("it is refused").code(), Some("InvalidMessageContents"));
}
