//! The job of alerts, with receivers that check the form of messages, fail, hang or are slow.

use axum::{
    body::Bytes,
    http::{HeaderMap, StatusCode, Uri},
};
use serde_json::{Value as Json, json};
use tests::{
    forwarding::{Forwarding, Layer, TableReply, TableRequest},
    prelude::*,
    source,
};
use webhook_serializer::{
    alerts::{Alerting, AlertsDocument, AlertsError, DeploymentNaming},
    config::FileDocument,
    engine::sweep::{Sweeper, mend_all},
    functions::scheduler::{SWEEP, ScheduledEvent, Scheduler, SchedulerSettings},
    jobs::{TickReport, switch::Switch},
    protocol::{
        alert::AlertsRow,
        budget::{ALERTS_READS, JOB_MINUTE_READS, TICK_WRITES},
        format::FORMAT,
        keys::{alerts_row, outage_row},
        waits::{SourceTag, WaitClass, Waits},
    },
    sources::{LiveSources, Sources},
    time::{Env, SystemClock, Timestamp},
};

const MINUTE: Duration = Duration::from_secs(60);
const TOKEN: &str = "Zx81kQ92mVb7TtR4hush";
const KEY: &str = "whsec_Zk93bTR6S2dRcTdUaHBY";

/// A message that a receiver got.
#[derive(Debug, Clone)]
struct Received {
    headers: HeaderMap,
    body: String,
}

impl Received {
    fn id(&self) -> String {
        self.headers["webhook-id"].to_str().expect("it is ASCII").to_owned()
    }

    fn json(&self) -> Json {
        serde_json::from_str(&self.body).expect("it is JSON")
    }
}

/// A receiver that gives the answer, and keeps what it got.
#[derive(Clone)]
struct AlertReceiver {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
    answer: Arc<Mutex<(u16, String)>>,
}

impl AlertReceiver {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/services/T0/B0/{TOKEN}", listener.local_addr().expect("it is bound"));
        let receiver = Self { url, received: Arc::default(), answer: Arc::new(Mutex::new((200, "ok".to_owned()))) };
        let AlertReceiver { received, answer, .. } = receiver.clone();
        let answers = async move |uri: Uri, headers: HeaderMap, body: Bytes| {
            assert_eq!(uri.path(), format!("/services/T0/B0/{TOKEN}"));
            let body = String::from_utf8(body.to_vec()).expect("it is UTF-8");
            received.lock().expect("no panic").push(Received { headers, body });
            let (status, text) = answer.lock().expect("no panic").clone();
            (StatusCode::from_u16(status).expect("a status"), text)
        };
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answers)).await });
        receiver
    }

    fn answers(&self, status: u16, text: &str) {
        *self.answer.lock().expect("no panic") = (status, text.to_owned());
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no panic").clone()
    }

    fn only(&self) -> Received {
        let received = self.received();
        assert_eq!(received.len(), 1, "{received:?}");
        received[0].clone()
    }
}

/// Returns a document whose alerts go to `url`.
fn document(url: &str, fields: &str) -> String {
    format!("[alerts]\nto = '{url}'\nallow_private = true\n{fields}\n{}", source!("shop"))
}

fn refused() -> TableError {
    TableError::from_reply("AccessDeniedException", "not allowed", false)
}

/// A table whose indexes cannot be read.
struct NoIndexes;

impl Layer for NoIndexes {
    async fn call(&self, inner: &Arc<dyn Table>, request: TableRequest<'_>) -> Result<TableReply, TableError> {
        match request {
            TableRequest::ScanIndex(_) => Err(refused()),
            _ => request.of(inner).await,
        }
    }
}

/// A deployment whose clock the test sets forward.
struct WatchedShop {
    world: TestWorld,
    clock: ShiftedClock,
    sources: LiveSources,
}

impl WatchedShop {
    async fn start(url: &str, fields: &str) -> Self {
        Self::by(ShiftedClock::new(SystemClock::start()), url, fields).await
    }

    async fn by(clock: ShiftedClock, url: &str, fields: &str) -> Self {
        let world = TestWorld::by(clock.clone().env(1));
        mend_all(&world.store()).await.expect("memory answers");
        let sources = Sources::parse(&document(url, fields)).expect("the document is right");
        Self { world, clock, sources: LiveSources::fixed(Arc::new(sources)) }
    }

    /// Writes the row of an order that is blocked.
    async fn block(&self, order: &str, error: &str) {
        self.trouble(order, WaitClass::Blocked, |row| row.with(a::BLOCKED, "attempts").with(a::LAST_ERROR, error))
            .await;
    }

    /// Writes the row of an order in trouble, with the attributes that `change` adds.
    async fn trouble(&self, order: &str, class: WaitClass, change: impl Fn(Row) -> Row) {
        let waits = Waits { class, source: SourceTag::of(&SourceName::parse("shop").unwrap()) };
        let row = entity_row(&key(order)).to_row().with(a::VERSION, FORMAT).with(a::TAIL, 2_u32).with(a::HEAD, 1_u32);
        let row = row.with(a::TOKEN, 1_u32).with(a::PENDING_SINCE, self.world.env.now().as_millis());
        self.put(entity_row(&key(order)), change(row.with(a::WAITS, waits.to_stored()))).await;
    }

    async fn put(&self, key: Key, row: Row) {
        let put = Write { key, condition: Condition::Always, action: Action::Put(row) };
        self.world.memory.write(&put).await.expect("memory answers");
    }

    fn alerting(&self) -> Alerting {
        let env = self.world.env.clone();
        let document = AlertsDocument::opened(self.sources.clone(), env, self.world.events.clone());
        let deployment = DeploymentNaming { name: "shop".to_owned(), option: " --stack shop".to_owned() };
        Alerting::new(self.world.operator(), self.world.store(), document, deployment)
    }

    async fn look(&self) -> Result<(), AlertsError> {
        let looked = self.alerting().run(self.world.env.now()).await;
        self.clock.pass(MINUTE);
        looked
    }

    async fn looks(&self, number: usize) {
        for _ in 0..number {
            self.look().await.expect("it looks and tells");
        }
    }

    async fn recorded(&self) -> Option<String> {
        let row = self.world.memory.get(&alerts_row()).await.expect("memory answers")?;
        Some(AlertsRow::parse(&row).expect("it is readable").groups)
    }
}

/// Promise: an alert names the orders in trouble, once they have been so for two minutes, in the form of its receiver.
#[tokio::test]
async fn alert_names_orders_in_the_form_of_its_receiver() {
    for (form, fields) in [
        ("slack", String::new()),
        ("teams", String::new()),
        ("discord", String::new()),
        ("webhook", format!("secret = '{KEY}'\n")),
    ] {
        let receiver = AlertReceiver::start().await;
        let watched =
            WatchedShop::start(&receiver.url, &format!("form = '{form}'\nkeys = true\nerrors = true\n{fields}")).await;
        watched.block("shop/order/1001", "422 <no> address").await;
        watched.looks(2).await;
        assert!(receiver.received().is_empty(), "it has not lasted yet");
        watched.looks(3).await;
        let received = receiver.only();
        assert_eq!(received.headers["content-type"], "application/json");
        let text = match form {
            "slack" => slack(&received.json()),
            "teams" => teams(&received.json()),
            "discord" => discord(&received.json()),
            _ => signed(&received),
        };
        assert!(text.contains("shop: 1 order or delivery is in trouble"), "{text}");
        assert!(text.contains("1 blocked order of shop") && text.contains("422 <no> address"), "{text}");
        assert!(text.contains("serializer show --stack shop shop/order/1001"), "{text}");
    }
}

/// Checks a message as Slack does, and returns the text that people see:
/// <https://api.slack.com/messaging/webhooks>, <https://api.slack.com/reference/surfaces/formatting>.
fn slack(message: &Json) -> String {
    let text = message["text"].as_str().expect("a text");
    assert!(text.len() <= 40_000 && !text.contains(['<', '>']), "{text}");
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// Checks a message as Teams' workflows do, and returns the text that people see:
/// <https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using>.
fn teams(message: &Json) -> String {
    assert!(message.to_string().len() <= 28_000, "Teams takes 28 KB");
    assert_eq!(message["type"], "message");
    let attachment = &message["attachments"][0];
    assert_eq!(attachment["contentType"], "application/vnd.microsoft.card.adaptive");
    let card = &attachment["content"];
    assert_eq!((&card["type"], &card["version"]), (&json!("AdaptiveCard"), &json!("1.2")));
    let blocks = card["body"].as_array().expect("a list of blocks");
    let text = |block: &Json| {
        assert_eq!((&block["type"], &block["inlines"][0]["type"]), (&json!("RichTextBlock"), &json!("TextRun")));
        block["inlines"][0]["text"].as_str().expect("a text").to_owned()
    };
    blocks.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// Checks a message as Discord does: <https://discord.com/developers/docs/resources/webhook#execute-webhook>.
fn discord(message: &Json) -> String {
    let content = message["content"].as_str().expect("a text");
    assert!(content.chars().count() <= 2000);
    assert_eq!(message["allowed_mentions"], json!({ "parse": [] }));
    content.to_owned()
}

/// Checks a message as a receiver of Standard Webhooks does: <https://www.standardwebhooks.com/>.
fn signed(received: &Received) -> String {
    let source = format!("[sources.a]\nprovider = 'standard-webhooks'\nsecrets = ['{KEY}']\nhandler = 'h'");
    let sources = Sources::parse(&source).expect("it is right");
    let header = |name: &str| received.headers[name].to_str().expect("it is ASCII").to_owned();
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers = names.into_iter().map(|name| (name, header(name))).collect::<Vec<_>>();
    let headers = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let at = Timestamp::from_secs(header("webhook-timestamp").parse().expect("a number"));
    let request = webhook_serializer::providers::Request { headers: &headers, body: received.body.as_bytes() };
    sources.get("a").expect("it is there").verify(request, at).expect("the signature is right");
    let message = received.json();
    assert_eq!(message["type"], "serializer.alert");
    let group = &message["data"]["groups"][0];
    assert_eq!(
        (&group["change"], &group["state"], &group["source"]),
        (&json!("began"), &json!("blocked"), &json!("shop"))
    );
    assert_eq!(message["data"]["orders"][0]["order"], "shop/order/1001");
    message["data"]["text"].as_str().expect("a text").to_owned()
}

/// Promise: an alert that is not delivered is sent again a minute later, and the failure shows no secret.
#[tokio::test]
async fn undelivered_alert_is_sent_by_the_next_look() {
    let receiver = AlertReceiver::start().await;
    let watched = WatchedShop::start(&receiver.url, "form = 'slack'").await;
    watched.block("shop/order/1001", "no").await;
    watched.looks(2).await;
    for status in [429, 500, 404] {
        receiver.answers(status, &format!("no /services/T0/B0/{TOKEN}"));
        let failed = watched.look().await.expect_err("it is refused").to_string();
        assert!(failed.contains(&format!("127.0.0.1 answered {status}")) && !failed.contains(TOKEN), "{failed}");
    }
    receiver.answers(200, "ok");
    watched.looks(3).await;
    let ids: BTreeSet<String> = receiver.received().iter().map(Received::id).collect();
    assert_eq!((receiver.received().len(), ids.len()), (4, 1), "the same message each time");
}

#[tokio::test(start_paused = true)]
async fn receiver_that_hangs_or_is_gone_fails_the_look() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/{TOKEN}", listener.local_addr().expect("it is bound"));
    let watched = WatchedShop::by(ShiftedClock::new(TokioClock::start()), &url, "form = 'slack'").await;
    watched.block("shop/order/1001", "no").await;
    watched.looks(2).await;
    // The listener accepts nothing, and the paused clock runs on while nothing else happens.
    let hangs = watched.look().await.expect_err("nobody answers").to_string();
    assert!(hangs.contains("no answer within 10 s from 127.0.0.1"), "{hangs}");
    drop(listener);
    let gone = watched.look().await.expect_err("nobody listens").to_string();
    assert!(gone.contains("cannot connect to 127.0.0.1") && !gone.contains(TOKEN), "{gone}");
}

/// Promise: a crash between an alert and its record repeats it under the same `webhook-id`.
#[tokio::test]
async fn alert_that_was_not_recorded_is_repeated_under_its_id() {
    let receiver = AlertReceiver::start().await;
    let mut watched = WatchedShop::start(&receiver.url, "form = 'slack'").await;
    watched.block("shop/order/1001", "no").await;
    watched.looks(2).await;
    let before = watched.recorded().await;
    let is_record = |call: &TableCall<'_>| call.writes.iter().any(|write| write.key == alerts_row());
    watched.world.fail(Fault::Before(refused()), is_record);
    watched.look().await.expect_err("it cannot record");
    assert_eq!(watched.recorded().await, before);
    watched.world.table = watched.world.memory.clone();
    watched.looks(3).await;
    let ids: Vec<String> = receiver.received().iter().map(Received::id).collect();
    assert_eq!((ids.len(), &ids[0]), (2, &ids[1]));
}

#[tokio::test]
async fn record_whose_reply_is_lost_is_recognised() {
    let receiver = AlertReceiver::start().await;
    let mut watched = WatchedShop::start(&receiver.url, "form = 'slack'").await;
    watched.block("shop/order/1001", "no").await;
    let lost = AtomicBool::new(false);
    let is_first = move |call: &TableCall<'_>| {
        call.writes.iter().any(|write| write.key == alerts_row()) && !lost.swap(true, Relaxed)
    };
    watched.world.fail(Fault::ReplyLost, is_first);
    watched.looks(5).await;
    receiver.only();
}

#[tokio::test]
async fn two_schedulers_at_once_send_the_same_id() {
    let receiver = AlertReceiver::start().await;
    let watched = WatchedShop::start(&receiver.url, "form = 'slack'").await;
    watched.block("shop/order/1001", "no").await;
    watched.looks(2).await;
    let one = watched.alerting();
    let other = watched.alerting();
    let now = watched.world.env.now();
    let (one, other) = tokio::join!(one.run(now), other.run(now));
    one.expect("it tells");
    other.expect("it tells");
    watched.looks(2).await;
    let ids: BTreeSet<String> = receiver.received().iter().map(Received::id).collect();
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn order_counts_once_without_its_key_and_quiet_looks_write_nothing() {
    let receiver = AlertReceiver::start().await;
    let watched = WatchedShop::start(&receiver.url, "form = 'slack'").await;
    let now = watched.world.env.now().as_millis();
    let on_hold = |row: Row| row.with(a::HOLD, now).with(a::LAST_ERROR, "no");
    watched.trouble("shop/order/1", WaitClass::Blocked, |row| on_hold(row).with(a::BLOCKED, "attempts")).await;
    watched.trouble("shop/order/2", WaitClass::Failed, on_hold).await;
    watched.trouble("shop/order/3", WaitClass::Unavailable, |row| row.with(a::LAST_ERROR, "503")).await;
    let sources = watched.sources.current();
    let key = outage_row(sources.get("shop").expect("it is there").destination().id());
    let outage = key.to_row().with(a::VERSION, FORMAT).with(a::DESTINATION, "the shop").with(a::DOWN_SINCE, now);
    let outage = outage.with(a::ERROR, "503").with(a::NONCE, "n").with(a::DUE, now);
    watched.put(key, outage).await;
    watched.looks(3).await;
    let text = slack(&receiver.only().json());
    assert!(text.contains("3 orders or deliveries are in trouble"), "{text}");
    for part in ["\nthe shop is down since ", ". 1 order waits.", "\n1 blocked order of shop", "\n1 order on hold"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("shop/order") && !text.contains("503"), "{text}");
    let before = watched.world.memory.get(&alerts_row()).await.expect("memory answers");
    watched.looks(2).await;
    let after = watched.world.memory.get(&alerts_row()).await.expect("memory answers");
    assert_eq!(after, before, "nothing has changed");
}

/// Promise: thousands of orders in trouble give one alert of limited size.
#[tokio::test]
async fn flood_gives_one_alert() {
    let receiver = AlertReceiver::start().await;
    let watched = WatchedShop::start(&receiver.url, "form = 'discord'\nkeys = true\nerrors = true").await;
    for number in 0..3000 {
        watched.block(&format!("shop/order/{number}"), &format!("error {}", number % 500)).await;
    }
    watched.looks(6).await;
    let text = discord(&receiver.only().json());
    assert!(text.contains("3000 orders or deliveries are in trouble"), "{text}");
    let row = watched.world.memory.get(&alerts_row()).await.expect("memory answers").expect("it is recorded");
    assert!(row.size() <= AlertsRow::MOST_BYTES, "{} bytes", row.size());
}

#[tokio::test]
async fn index_that_cannot_be_read_fails_the_look_and_ends_nothing() {
    let receiver = AlertReceiver::start().await;
    let mut watched = WatchedShop::start(&receiver.url, "form = 'slack'").await;
    watched.block("shop/order/1001", "no").await;
    watched.looks(3).await;
    watched.world.table = Arc::new(Forwarding::through(NoIndexes, watched.world.memory.clone()));
    for _ in 0..4 {
        let blind = watched.look().await.expect_err("it sees nothing").to_string();
        assert!(blind.starts_with("an index cannot be read, so alerts about its orders are missing"), "{blind}");
    }
    receiver.only();
}

#[tokio::test]
async fn incomplete_index_ends_nothing() {
    let receiver = AlertReceiver::start().await;
    let watched = WatchedShop::start(&receiver.url, "form = 'slack'").await;
    watched.block("shop/order/1001", "no").await;
    watched.looks(3).await;
    watched.world.memory.purge(&TableName::Entities, |_| true);
    watched.world.memory.purge(&TableName::Inbox, |row| key_of(&TableName::Inbox, row) != Some(alerts_row()));
    watched.looks(4).await;
    receiver.only();
    mend_all(&watched.world.store()).await.expect("memory answers");
    watched.looks(3).await;
    let last = receiver.received().pop().expect("it is over").json();
    assert!(slack(&last).contains("Over: blocked orders of shop, 1 in the last message"), "{last}");
}

/// Runs the scheduler's jobs of one minute, with an alerts job whose document is in `file`.
async fn scheduled(file: &std::path::Path) -> TickReport {
    let world = TestWorld::by(Env::system());
    let none: &[(&str, &str)] = &[];
    let path = file.to_owned();
    let open =
        move || -> Box<dyn webhook_serializer::sources::SourcesDocument> { Box::new(FileDocument(path.clone())) };
    let document = AlertsDocument::new(open, world.env.clone(), world.events.clone());
    let settings = SchedulerSettings { switch: Switch::On, ..SchedulerSettings::read(&none).expect("defaults") };
    let retention = Duration::from_secs(86_400);
    let alerting = settings.alerting(world.store(), world.waker(), retention, document, world.events.clone());
    let store = world.store();
    let sweeper = world.sweeper();
    let events = world.events.clone();
    let scheduler = Scheduler::new(store, sweeper, Jobs::new(), settings, events, Some(alerting)).expect("it is right");
    let now = world.env.now();
    scheduler.tick(&ScheduledEvent { time: now.to_string() }, now + MINUTE).await.expect("memory answers")
}

/// Returns what the scheduler's second minute costs with this document and empty tables.
async fn second_minute(document: &str) -> Reading {
    let testbed = TestBed::start().await;
    let Parts { store, waker, queue, .. } = testbed.parts();
    let env = testbed.env().clone();
    let observer = Arc::new(TracingLog);
    let none: &[(&str, &str)] = &[];
    let settings = SchedulerSettings { switch: Switch::On, ..SchedulerSettings::read(&none).expect("defaults") };
    let retention = Duration::from_secs(86_400);
    let sources = LiveSources::fixed(Arc::new(Sources::parse(document).expect("the document is right")));
    let document = AlertsDocument::opened(sources, env.clone(), observer.clone());
    let alerting = settings.alerting(store.clone(), waker.clone(), retention, document, observer.clone());
    let sweeper = Sweeper::new(store.clone(), waker, queue, retention);
    let scheduler =
        Scheduler::new(store, sweeper, Jobs::new(), settings, observer, Some(alerting)).expect("it is right");
    let first = env.now();
    let mut before = testbed.meter.reading();
    for due in [first, first + MINUTE] {
        before = testbed.meter.reading();
        let report = scheduler.tick(&ScheduledEvent { time: due.to_string() }, first + MINUTE).await;
        assert!(report.expect("the store answers").ran.iter().all(|run| run.ending == TickOutcome::Done));
    }
    testbed.meter.reading() - before
}

#[tokio::test]
async fn minute_of_alerts_without_trouble_costs_two_writes_and_four_reads() {
    let without = second_minute(source!("shop")).await;
    let more = second_minute(&document("http://127.0.0.1:1/", "form = 'slack'")).await - without;
    let write_units = TICK_WRITES as f64;
    let read_units = JOB_MINUTE_READS as f64 + ALERTS_READS;
    // The job's row is read with the sweep's. Three indexes and the record are read.
    assert_eq!(more, Reading { write_units, writes: 2, read_units, reads: 4, ..Reading::default() });
}

/// Promise: a document that cannot be read stops no other job.
#[tokio::test]
async fn job_of_alerts_runs_while_the_document_wants_it_or_is_unreadable() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sources.toml");
    let ran = |report: &TickReport| {
        report.ran.iter().map(|run| (run.job.to_string(), run.ending == TickOutcome::Done)).collect::<BTreeMap<_, _>>()
    };
    let report = scheduled(&file).await;
    assert_eq!(ran(&report), BTreeMap::from([(SWEEP.to_owned(), true), ("alerts".to_owned(), false)]));
    std::fs::write(&file, source!("shop")).expect("it is written");
    assert_eq!(ran(&scheduled(&file).await), BTreeMap::from([(SWEEP.to_owned(), true)]));
    std::fs::write(&file, document("http://127.0.0.1:1/", "form = 'slack'")).expect("it is written");
    assert_eq!(ran(&scheduled(&file).await), BTreeMap::from([(SWEEP.to_owned(), true), ("alerts".to_owned(), true)]));
}
