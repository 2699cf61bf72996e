//! Workers read the document too: for a new, removed or paused source.

use super::*;

/// Drains the order of the source `second` once.
async fn drain(world: &TestWorld, script: &ScriptedDocument, live: &LiveSources) -> Acknowledgement {
    let info = HolderInfo::new("a worker in memory");
    let store = world.store();
    let waker = world.waker();
    let settings = world.settings.clone();
    let observer: Arc<dyn Observer> = Arc::new(script.clone());
    let drainer = Drainer::new(store, waker, live, Done, settings, info, observer).isolated(Isolation::Inline);
    let received = ReceivedWakeUp::new(EntityKey::parse("second/order/1").unwrap(), 1);
    let deadline = world.env.monotonic() + world.function_time;
    drainer.process(&received, deadline, &SuspectGate::new(1)).await
}

/// Promise: a clock that is a minute off parks no delivery of a new source; a source with waiting deliveries is not
/// removed.
#[tokio::test(start_paused = true)]
async fn worker_with_fast_clock_finds_an_added_source() {
    for ahead in [2, 59] {
        let world = TestWorld::new();
        let script = ScriptedDocument::new(&[("shop", OLD)]);
        pass(Duration::from_secs(3600)).await;
        let live = open(&world, &script).await;
        pass(Duration::from_secs(1)).await;
        script.set(&[("shop", OLD), ("second", OLD)]);
        let accepted = Timestamp::from_millis(world.env.now().as_millis() - ahead * 1000);
        let found = live.find(&SourceName::parse("second").unwrap(), accepted).await;
        assert!(matches!(found, SourceLookup::Source(_)), "{ahead} s ahead: {found:?}");
        // A source that is in no document counts as removed, whatever the clocks say.
        let found = live.find(&SourceName::parse("third").unwrap(), accepted).await;
        assert!(matches!(found, SourceLookup::Gone), "{ahead} s ahead: {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn worker_with_slow_clock_notices_source_removal() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    let live = open(&world, &script).await;
    pass(Duration::from_secs(1)).await;
    let accepted = world.env.now() + Duration::from_secs(3600);
    let found = live.find(&SourceName::parse("second").unwrap(), accepted).await;
    assert!(matches!(found, SourceLookup::Gone), "{found:?}");
    assert_eq!(script.reads(), 2);
}

/// Otherwise a webhook that comes right after the pause would wait for a quarter of an hour.
#[tokio::test(start_paused = true)]
async fn worker_rereads_document_before_requeueing_for_paused_source() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[]);
    let resumed = document(&[("second", OLD)]);
    script.set_text(format!("{resumed}paused = true\n"));
    let live = open(&world, &script).await;
    let incoming = world.incoming_from("second", "second/order/1", "1");
    world.inbox().append(&incoming).await.unwrap();

    // The document was just read.
    assert_eq!(drain(&world, &script, &live).await, Acknowledgement::Delete);
    let paused = format!("requeued: {:?}", RequeueReason::Paused);
    assert_eq!((script.events().pop(), script.reads()), (Some(paused.clone()), 1));

    // Several orders cause one read, also while it fails.
    script.fail("ssm does not answer");
    for _ in 0..3 {
        pass(SPACING / 2).await;
        drain(&world, &script, &live).await;
    }
    assert_eq!((script.events().pop(), script.reads()), (Some(paused), 2));

    script.set_text(resumed);
    pass(SPACING).await;
    drain(&world, &script, &live).await;
    assert_eq!((script.events().pop().unwrap().as_str(), script.reads()), ("settled: applied", 3));
}

#[tokio::test(start_paused = true)]
async fn worker_requeues_wake_up_for_delivery_of_unknown_source() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    let live = open(&world, &script).await;
    pass(Duration::from_secs(1)).await;
    let mut incoming = world.incoming_from("second", "second/order/1", "1");
    world.inbox().append(&incoming).await.unwrap();

    script.fail("ssm does not answer");
    assert_eq!(drain(&world, &script, &live).await, Acknowledgement::Delete);
    assert!(
        script.events().contains(&format!("requeued: {:?}", RequeueReason::UnknownSource)),
        "{:?}",
        script.events()
    );
    assert_eq!(world.state("second/order/1").await.waiting(), 1);

    script.set(&[("shop", OLD), ("second", OLD)]);
    pass(SPACING).await;
    assert_eq!(drain(&world, &script, &live).await, Acknowledgement::Delete);
    assert_eq!(script.events().pop().unwrap(), "settled: applied");

    // This delivery was accepted before the read, so no further read is needed to know that its source was
    // removed.
    script.set(&[("shop", OLD)]);
    incoming = world.incoming_from("second", "second/order/1", "2");
    world.inbox().append(&incoming).await.unwrap();
    pass(REFRESH).await;
    live.beside(async {}).await;
    settle().await;
    let reads = script.reads();
    assert_eq!(drain(&world, &script, &live).await, Acknowledgement::Delete);
    assert_eq!(script.events().pop().unwrap(), "settled: parked");
    assert_eq!(script.reads(), reads);
}
