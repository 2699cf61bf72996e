//! The sources document while a function runs: it is refreshed, changed, unreachable or invalid. The clock is
//! paused, so a minute takes no time and counts are exact.

mod api;
mod burst;
mod edges;

mod rotation;
mod samples;
mod script;
mod stored;
mod topics;
mod workers;

use script::{ScriptedDocument, document};
use tests::prelude::*;
use webhook_serializer::{
    config::FileDocument,
    functions::ingest::QueueRecord,
    sources::{NewestDocument, PATIENCE, REFRESH, SPACING, STALE, SourceLookup},
    telemetry::RequeueReason,
};

const OLD: &str = "b2xkIHNlY3JldA==";
const NEW: &str = "bmV3IHNlY3JldA==";

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
}

/// Lets background tasks run until they wait for the clock.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

async fn open(world: &TestWorld, script: &ScriptedDocument) -> LiveSources {
    let document = Box::new(script.clone());
    LiveSources::open(document, world.env.clone(), Arc::new(script.clone())).await.expect("it is read")
}

async fn ingest(world: &TestWorld, script: &ScriptedDocument) -> (Ingest, LiveSources) {
    let live = open(world, script).await;
    (Ingest::new(&live, world.inbox(), world.env.clone()), live)
}

fn webhook(world: &TestWorld, source: &str, secret: &str, id: &str) -> SignedWebhook {
    let sources = Sources::parse(&document(&[(source, secret)])).unwrap();
    signed(&sources, source, id, update("1"), world.env.now())
}

fn post(world: &TestWorld, secret: &str, id: &str) -> HttpRequest {
    request(&webhook(world, "shop", secret, id))
}

/// A queue that was just configured is known with its first message.
#[tokio::test(start_paused = true)]
async fn message_of_an_unknown_queue_reads_the_newest_document() {
    const ARN: &str = "arn:aws:sqs:eu-central-1:123456789012:orders";
    let queue =
        format!("[sources.orders]\nprovider='generic'\nqueue='{ARN}'\nhandler='h'\ngeneric={{ entity='/id' }}\n");
    let message = QueueRecord {
        message_id: "m".into(),
        event_source_arn: ARN.into(),
        body: r#"{"id":7}"#.into(),
        ..QueueRecord::default()
    };
    for is_added in [true, false] {
        let world = TestWorld::new();
        let script = ScriptedDocument::new(&[("shop", OLD)]);
        let (ingest, _) = ingest(&world, &script).await;
        pass(SPACING).await;
        match is_added {
            true => script.set_text(queue.clone()),
            false => script.fail("no answer"),
        }
        let answer = ingest.append_messages(std::slice::from_ref(&message)).await;
        assert_eq!((answer.batch_item_failures.is_empty(), script.reads()), (is_added, 2), "{answer:?}");
    }
}

/// Promise: functions and `local` read the document again, and keep the last good one.
#[tokio::test(start_paused = true)]
async fn sources_document_is_refreshed_every_minute() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    let live = open(&world, &script).await;
    assert_eq!(script.reads(), 1);
    script.set(&[("shop", OLD), ("second", OLD)]);
    pass(REFRESH - Duration::from_millis(1)).await;
    live.beside(async {}).await;
    settle().await;
    assert_eq!((script.reads(), live.current().iter().count()), (1, 1));
    pass(Duration::from_millis(1)).await;
    for _ in 0..100 {
        live.beside(async {}).await;
    }
    settle().await;
    assert_eq!((script.reads(), live.current().iter().count()), (2, 2));
    assert_eq!(script.events(), ["changed to 2"]);
}

#[tokio::test(start_paused = true)]
async fn request_waits_250ms_at_most_for_document_read() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    let live = open(&world, &script).await;
    script.set(&[("shop", NEW)]);
    pass(REFRESH).await;
    // The work does not wait, so the read must end as soon as the work does.
    live.beside(async {}).await;
    assert_eq!((script.reads(), script.events()), (2, vec!["changed to 1".to_owned()]));

    script.hang();
    for (work, waited) in [(0, 250), (100, 250), (250, 250), (900, 900)] {
        pass(REFRESH).await;
        let before = world.env.monotonic();
        live.beside(world.env.sleep(Duration::from_millis(work))).await;
        assert_eq!(world.env.monotonic() - before, Duration::from_millis(waited), "{work}");
    }
    assert_eq!(PATIENCE, Duration::from_millis(250));
    let before = world.env.monotonic();
    live.beside(async {}).await;
    assert_eq!(world.env.monotonic(), before, "a read that is not due delays nothing");
}

#[tokio::test(start_paused = true)]
async fn document_read_during_long_freeze_is_ignored() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    let (ingest, live) = ingest(&world, &script).await;
    script.hang();
    pass(REFRESH).await;
    assert_eq!(ingest.answer(&post(&world, OLD, "1")).await.status_code, 200);
    pass(Duration::from_secs(600)).await;
    settle().await;
    assert_eq!((script.reads(), script.events().len()), (2, 0));
    // Neither does such a read confirm that the document in use is the newest.
    assert_eq!(live.newest().await, NewestDocument::Unknown);
    assert_eq!(ingest.answer(&post(&world, NEW, "2")).await.status_code, 503);
    // A read that fails while the function runs is reported.
    pass(REFRESH).await;
    live.beside(world.env.sleep(Duration::from_secs(2))).await;
    assert_eq!(script.events().last().map(String::as_str), Some("news: no answer in time"));
}

#[tokio::test(start_paused = true)]
async fn ingest_answers_in_time_with_slow_dependencies() {
    // The put and the wake-up get no answer, and use all the time that the reads of the document leave.
    for (silent, slow) in [(0, 0), (0, 1100), (1, 0), (1, 700), (2, 0), (2, 300), (2, 400)] {
        let mut world = TestWorld::new();
        let script = ScriptedDocument::new(&[("shop", OLD)]);
        let plan = move |call: &TableCall<'_>| match call.writes {
            [Write { action: Action::Put(_), .. }] => Fault::Silent,
            _ if call.write <= silent => Fault::Silent,
            _ => Fault::Slow(Duration::from_millis(slow)),
        };
        world.table = Arc::new(FaultyTable::new(world.table.clone(), &world.env, plan));
        world.queue = Arc::new(FaultyQueue::new(world.queue.clone(), &world.env, |_| Fault::Silent));
        let (ingest, _) = ingest(&world, &script).await;
        script.hang();
        pass(STALE).await;
        let before = world.env.monotonic();
        assert_eq!(ingest.answer(&post(&world, OLD, "1")).await.status_code, 503);
        let took = world.env.monotonic() - before;
        assert!(took <= Duration::from_millis(2500), "{silent} {slow}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_instance_rereads_document_before_answering() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    let (ingest, _) = ingest(&world, &script).await;
    script.set(&[("shop", NEW)]);
    pass(STALE).await;
    let revoked = ingest.answer(&post(&world, OLD, "1")).await;
    assert_eq!(revoked.status_code, 401, "{}", revoked.body);
    script.hang();
    pass(STALE).await;
    let before = world.env.monotonic();
    assert_eq!(ingest.answer(&post(&world, NEW, "2")).await.status_code, 200);
    assert_eq!(world.env.monotonic() - before, PATIENCE);
}

/// Promise: rolling a secret, also by `source rotate`, refuses no webhook.
#[tokio::test(start_paused = true)]
async fn webhook_signed_with_rotated_secret_is_accepted() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    let (ingest, _) = ingest(&world, &script).await;
    // The provider signs with the new secret from the moment at which the document changes.
    for (round, secret) in [NEW, OLD, NEW].into_iter().enumerate() {
        pass(SPACING).await;
        script.set(&[("shop", secret)]);
        for number in 0..10 {
            let answer = ingest.answer(&post(&world, secret, &format!("{round}-{number}"))).await;
            assert_eq!(answer.status_code, 200, "{round} {number} {}", answer.body);
        }
    }
    assert_eq!(script.reads(), 1 + 3);
}

/// On a first deploy, senders create the secret only for an existing URL.
///
/// Promise: a source without a secret answers 503.
#[tokio::test(start_paused = true)]
async fn webhook_of_source_without_secret_gets_503() {
    for secrets in ["", "secrets = []\n"] {
        let world = TestWorld::new();
        let script = ScriptedDocument::new(&[]);
        script.set_text(format!("[sources.shop]\nprovider = 'standard-webhooks'\n{secrets}handler = 'test'\n"));
        let (ingest, _) = ingest(&world, &script).await;
        pass(SPACING).await;
        let early = ingest.answer(&post(&world, OLD, "1")).await;
        assert_eq!(
            (early.status_code, early.body.as_str()),
            (503, r#"{"error":"this source has no secret yet; send the webhook again"}"#)
        );
        assert!(early.headers.contains_key("retry-after"));
        assert_eq!(script.reads(), 2, "the secret may have been added");
        let mut unsigned = post(&world, OLD, "2");
        unsigned.headers.clear();
        assert_eq!(ingest.answer(&unsigned).await.status_code, 401, "no secret would verify it");

        script.set(&[("shop", OLD)]);
        pass(SPACING).await;
        assert_eq!(ingest.answer(&post(&world, OLD, "1")).await.status_code, 200, "the sender's next try");
        assert_eq!(world.state("shop/order/1").await.waiting(), 1, "nothing was kept before");
        assert_eq!(ingest.answer(&post(&world, NEW, "3")).await.status_code, 401, "refused for good");
    }
}

#[tokio::test(start_paused = true)]
async fn webhook_bypassing_the_proxy_is_refused() {
    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[]);
    let origin = |secrets: &str| format!("[origin]\nsecret = {secrets}\n{}", document(&[("shop", OLD)]));
    script.set_text(origin(&format!("'{SECRET}'")));
    let (ingest, _) = ingest(&world, &script).await;
    let around = ingest.answer(&post(&world, OLD, "1")).await;
    assert_eq!((around.status_code, around.body.contains(SECRET)), (403, false));
    let mut through = post(&world, OLD, "2");
    through.headers.insert("x-origin-secret".into(), SECRET.into());
    assert_eq!(ingest.answer(&through).await.status_code, 200);
    assert_eq!(world.state("shop/order/1").await.waiting(), 1, "only the second was accepted");
    through.headers.remove("webhook-signature");
    assert_eq!(ingest.answer(&through).await.status_code, 401, "the signature is still required");

    let rolled = "fedcba9876543210fedcba9876543210";
    script.set_text(origin(&format!("['{rolled}', '{SECRET}']")));
    pass(SPACING).await;
    let mut through = post(&world, OLD, "3");
    through.headers.insert("x-origin-secret".into(), rolled.into());
    assert_eq!(ingest.answer(&through).await.status_code, 200, "the newest document is asked first");
}

#[tokio::test(start_paused = true)]
async fn first_webhook_of_added_source_is_accepted() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    let (ingest, _) = ingest(&world, &script).await;
    script.set(&[("shop", OLD), ("second", NEW)]);
    pass(SPACING).await;
    let answer = ingest.answer(&request(&webhook(&world, "second", NEW, "1"))).await;
    assert_eq!(answer.status_code, 200, "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn webhook_is_accepted_after_document_corrects_provider() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[]);
    script.set_text(format!("[sources.shop]\nprovider = 'shopify'\nsecrets = ['{OLD}']\nhandler = 'test'\n"));
    let (ingest, _) = ingest(&world, &script).await;
    pass(SPACING).await;
    assert_eq!(ingest.answer(&post(&world, OLD, "1")).await.status_code, 401);
    script.set(&[("shop", OLD)]);
    pass(SPACING).await;
    assert_eq!(ingest.answer(&post(&world, OLD, "2")).await.status_code, 200);
}

/// Promise: repeated forged webhooks cause fewer and fewer rereads of the document.
#[tokio::test(start_paused = true)]
async fn forged_webhooks_reread_document_at_growing_intervals() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    let (ingest, _) = ingest(&world, &script).await;
    pass(SPACING).await;
    let mut unknown = post(&world, OLD, "1");
    unknown.raw_path = "/webhooks/nobody".into();
    let start = world.env.monotonic();
    let mut known = script.reads();
    let mut read_at = Vec::new();
    for number in 0..6_000 {
        assert_eq!(ingest.answer(&post(&world, NEW, &number.to_string())).await.status_code, 401);
        assert_eq!(ingest.answer(&unknown).await.status_code, 404);
        if script.reads() > known {
            known = script.reads();
            read_at.push((world.env.monotonic() - start).as_secs());
        }
        pass(Duration::from_millis(100)).await;
    }
    assert_eq!(read_at[..8], [0, 5, 15, 35, 75, 135, 195, 255], "finally one a minute");
    assert_eq!(known, 1 + 5 + 8, "in ten minutes");
    let mut probe = unknown;
    probe.request_context.http.method = "GET".into();
    pass(SPACING).await;
    assert_eq!(ingest.answer(&probe).await.status_code, 404);
    assert_eq!(script.reads(), known, "a GET caused a read");

    // A new document ends the backoff.
    script.set(&[("shop", NEW)]);
    pass(REFRESH).await;
    assert_eq!(ingest.answer(&post(&world, NEW, "rolled")).await.status_code, 200);
    script.set(&[("shop", OLD)]);
    pass(SPACING).await;
    assert_eq!(ingest.answer(&post(&world, OLD, "rolled back")).await.status_code, 200);
}

#[tokio::test(start_paused = true)]
async fn last_document_is_used_while_service_is_unreachable() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    let (ingest, _) = ingest(&world, &script).await;
    script.fail("ssm does not answer");
    let mut answered = Vec::new();
    for number in 0..30 {
        pass(Duration::from_secs(30)).await;
        answered.push(ingest.answer(&post(&world, OLD, &format!("old-{number}"))).await.status_code);
        // The document may have changed to this secret in the meantime, so the answer must make the sender
        // retry.
        answered.push(ingest.answer(&post(&world, NEW, &format!("new-{number}"))).await.status_code);
        settle().await;
    }
    assert_eq!(answered, [200, 503].repeat(30));
    let events = script.events();
    assert_eq!(
        events.iter().filter(|line| line.starts_with("news: ")).collect::<Vec<_>>(),
        ["news: ssm does not answer"]
    );
    assert_eq!(events.len() as u32, script.reads() - 1, "a failed read has no event: {events:?}");

    script.set(&[("shop", NEW)]);
    pass(SPACING).await;
    assert_eq!(ingest.answer(&post(&world, NEW, "back")).await.status_code, 200);
    assert_eq!(ingest.answer(&post(&world, OLD, "gone")).await.status_code, 401);
    script.fail("ssm does not answer");
    pass(REFRESH).await;
    assert_eq!(ingest.answer(&post(&world, NEW, "out again")).await.status_code, 200);
    settle().await;
    assert_eq!(
        script.events().iter().filter(|line| line.starts_with("news: ")).count(),
        2,
        "the second outage is reported"
    );
}

#[tokio::test(start_paused = true)]
async fn unverifiable_webhook_gets_503_while_document_read_hangs() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    let (ingest, _) = ingest(&world, &script).await;
    script.hang();
    pass(SPACING).await;
    let before = world.env.monotonic();
    let answer = ingest.answer(&post(&world, NEW, "1")).await;
    assert_eq!(answer.status_code, 503);
    assert!(answer.headers.contains_key("retry-after"));
    assert_eq!(world.env.monotonic() - before, PATIENCE);
    // A second request waits for the same read instead of starting another one.
    assert_eq!(ingest.answer(&post(&world, NEW, "2")).await.status_code, 503);
    assert_eq!(script.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn invalid_sources_document_is_ignored_and_not_shown() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    let (ingest, live) = ingest(&world, &script).await;
    live.demand(|sources| if sources.iter().count() < 3 { Ok(()) } else { Err("too many".into()) }).unwrap();
    for (text, reason) in [
        (format!("[sources.shop]\nprovider = 'shopify'\nsecrets = ['{NEW}']\nhandler = 1\n"), "line 4"),
        (format!("{{\"sources\": {{\"shop\": \"{NEW}\"}}}}"), "sources document"),
        (document(&[("a", NEW), ("b", NEW), ("c", NEW)]), "too many"),
        (String::new(), "sources document"),
    ] {
        script.set_text(text);
        pass(REFRESH).await;
        assert_eq!(ingest.answer(&post(&world, OLD, reason)).await.status_code, 200);
        settle().await;
        let event = script.events().pop().unwrap();
        assert!(event.starts_with("news: ") && event.contains(reason) && !event.contains(NEW), "{reason}: {event}");
        assert_eq!(live.newest().await, NewestDocument::Unknown);
    }
    script.set(&[("shop", OLD)]);
    pass(REFRESH).await;
    assert_eq!(live.newest().await, NewestDocument::Known);
}

#[tokio::test(start_paused = true)]
async fn failed_document_read_is_retried_during_initialisation() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[]);
    let opened = async || {
        let document = Box::new(script.clone());
        let begun = world.env.monotonic();
        let opened = LiveSources::open(document, world.env.clone(), Arc::new(script.clone())).await;
        (opened.map(|_| ()).unwrap_err(), world.env.monotonic() - begun)
    };
    script.fail("ssm does not answer");
    let (refused, waited) = opened().await;
    assert_eq!(refused, "ssm does not answer");
    // Lambda allows ten seconds for a function's initialisation.
    assert!((Duration::from_secs(6)..Duration::from_secs(8)).contains(&waited), "{waited:?}");
    assert!((6..15).contains(&script.reads()), "{}", script.reads());
    // An invalid document is not read again.
    script.set(&[]);
    let reads = script.reads();
    let (refused, waited) = opened().await;
    assert!(refused.contains("source") && waited.is_zero() && script.reads() == reads + 1, "{refused} {waited:?}");
}

#[tokio::test]
async fn sources_document_can_be_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sources.toml");
    std::fs::write(&file, document(&[("shop", OLD)])).unwrap();
    let world = TestWorld::new();
    let read = |path| LiveSources::open(Box::new(FileDocument(path)), world.env.clone(), world.events.clone());
    assert_eq!(read(file).await.unwrap().current().iter().count(), 1);
    let missing = read(directory.path().join("none")).await.unwrap_err();
    assert!(missing.contains("none cannot be read"), "{missing}");
}
