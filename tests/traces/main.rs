//! Traces of the real functions. They are built with the feature `otel` and run as processes on the embedded
//! engines: `cargo test -p tests --features otel --test traces`.

mod collector;
#[path = "../../cli/src/document/reference/tests/validator.rs"]
mod validator;

use std::{num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use collector::{ReceivedSpan, TraceCollector, one};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serializer::local::{
    LocalFunction, QUEUE,
    function_pool::FunctionPool,
    function_process::{FunctionProcess, FunctionSettings, ProcessLogs},
};
use tempfile::TempDir;
use tests::{
    deployment::LocalDeployment,
    webhooks::{request, signed, update},
};
use tokio::{net::TcpListener, sync::mpsc};
use validator::Validator;
use webhook_serializer::{
    functions::ingest::Response,
    protocol::entity::{EntityKey, Sequence},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A timeout longer than any test.
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(1200);

/// Returns the sources. A start of `bursts` or of `together` gets up to three deliveries.
fn sources(url: &str) -> String {
    let source = |name: &str, handler: &str, more: &str| {
        format!(
            r#"
            [sources.{name}]
            provider = "standard-webhooks"
            secrets = ["whsec_Zk93bTR6S2dRcTdUaHBY"]
            handler = "{handler}"
            on_outage = "queue"
            retry = {{ attempts = 3, first = "10ms", longest = "10ms" }}
            {more}
            "#
        )
    };
    let forward = format!(r#"forward = {{ url = "{url}/hook", secret = "whsec_d2hvZXZlcg==", allow_private = true }}"#);
    let invoke = r#"invoke = { function = "orders" }"#;
    source("shop", "forward", &forward)
        + &source("bursts", "forward", &format!("{forward}\ndeliver = {{ up_to = 3 }}"))
        + &source("called", "invoke", invoke)
        + &source("together", "invoke", &format!("{invoke}\ndeliver = {{ up_to = 3 }}"))
}

/// The engines and the processes of the two functions.
struct TracedDeployment {
    lane: LocalDeployment,
    ingest: FunctionProcess,
    environment: Vec<(String, String)>,
    log: mpsc::UnboundedReceiver<String>,
    lines: mpsc::UnboundedSender<String>,
    _directory: TempDir,
}

impl TracedDeployment {
    /// Starts the functions. They send spans as `traces` says, and deliveries to `receiver`.
    async fn start(receiver: &str, traces: &[(&str, &str)]) -> Self {
        let sources = sources(receiver);
        let lane = LocalDeployment::start(&sources).await;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("sources.toml");
        std::fs::write(&file, sources).unwrap();
        let mut environment = lane.local.environment(file.to_str().unwrap());
        environment.push(("AWS_ENDPOINT_URL_LAMBDA".into(), receiver.to_owned()));
        environment.extend(traces.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let (lines, log) = mpsc::unbounded_channel();
        let ingest = FunctionProcess::new(settings("ingest", &environment, &lines));
        Self { lane, ingest, environment, log, lines, _directory: directory }
    }

    async fn post(&mut self, source: &str, order: &str, id: &str, traceparent: Option<&str>) -> u16 {
        self.post_body(source, &update(order), id, traceparent).await
    }

    async fn post_body(&mut self, source: &str, body: &str, id: &str, traceparent: Option<&str>) -> u16 {
        let webhook = signed(&self.lane.sources, source, id, body, self.lane.env.now());
        let mut request = request(&webhook);
        request.headers.extend(traceparent.map(|text| ("traceparent".to_owned(), text.to_owned())));
        let answer = self.ingest.invoke(serde_json::to_vec(&request).unwrap()).await.expect("it answers");
        serde_json::from_slice::<Response>(&answer).unwrap().status_code
    }

    /// Starts a worker and waits until the queue is empty.
    async fn work(&mut self) {
        let pool = FunctionPool::new(settings("worker", &self.environment, &self.lines), NonZeroUsize::MIN);
        self.lane.local.feed(LocalFunction::Processes(Arc::new(pool)));
        self.lane.local.engines.queues().until(QUEUE, |counts| counts.total() == 0).await.expect("there is that queue");
    }

    /// Returns how many of the order's deliveries wait, whether its lease is held, and how many deliveries
    /// are parked.
    async fn left(&self, order: &str) -> (u64, bool, usize) {
        let inspected = self.lane.operator().inspect(&EntityKey::parse(order).unwrap()).await.expect("it is answered");
        let state = inspected.state.expect("there is such an order");
        (state.waiting(), state.held.is_some(), inspected.parked.len())
    }

    /// Returns the warnings and errors that the functions have logged so far.
    fn warnings(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Ok(line) = self.log.try_recv() {
            lines.push(line);
        }
        lines.retain(|line| line.contains("WARN") || line.contains("ERROR"));
        lines
    }
}

fn settings(
    function: &str,
    environment: &[(String, String)],
    lines: &mpsc::UnboundedSender<String>,
) -> FunctionSettings {
    let mut environment = environment.to_vec();
    environment.push(("FUNCTION".into(), function.into()));
    FunctionSettings {
        name: format!("the-{function}"),
        program: PathBuf::from(env!("CARGO_BIN_EXE_traced_function")),
        timeout: FUNCTION_TIMEOUT,
        memory_mb: 128,
        environment,
        logs: ProcessLogs::Lines(lines.clone()),
    }
}

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

fn named(spans: &[ReceivedSpan], trace: &str) -> Vec<String> {
    let mut names: Vec<_> =
        spans.iter().filter(|span| span.trace == trace).map(|span| format!("{} {}", span.service, span.name)).collect();
    names.sort();
    names
}

/// Promise: one trace under the request's `traceparent`, without body, secret or signature.
#[tokio::test(flavor = "multi_thread")]
async fn one_trace_covers_request_settle_and_receiver() {
    let collector = TraceCollector::start().await;
    let mut deployed =
        TracedDeployment::start(&collector.url, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)]).await;
    assert_eq!(deployed.post("shop", "7", "a delivery", Some(&traceparent("01"))).await, 200);
    deployed.work().await;
    let spans = collector.drained(1).await;

    let expected = [
        "the-ingest POST /webhooks/shop",
        "the-ingest append",
        "the-ingest verify",
        "the-worker process shop",
        "the-worker run forward",
        "the-worker settle",
    ];
    assert_eq!(named(&spans, TRACE), expected);
    assert_eq!(spans.len(), expected.len() + 1, "and the drain: {spans:#?}");
    let door = one(&spans, "POST /webhooks/shop", TRACE);
    assert_eq!((door.parent.as_str(), door.kind), (PARENT, SpanKind::Server));
    assert_eq!(door.attributes["http.response.status_code"], "200");
    let process = one(&spans, "process shop", TRACE);
    assert_eq!((&process.parent, process.kind), (&door.span, SpanKind::Consumer));
    for (name, parent) in [("verify", door), ("append", door), ("run forward", process), ("settle", process)] {
        let span = one(&spans, name, TRACE);
        assert_eq!(span.parent, parent.span, "{name}");
        assert!(parent.from <= span.from && span.from <= span.to && span.to <= parent.to, "{name} in {parent:?}");
    }
    let run = one(&spans, "run forward", TRACE);
    assert!(run.to <= one(&spans, "settle", TRACE).from);

    // The drain has a separate trace. Links lead in both directions.
    let drain = one(&spans, "drain", "");
    assert_eq!((drain.parent.as_str(), drain.trace != TRACE), ("", true));
    assert_eq!((&process.links, &drain.links), (&vec![drain.place()], &vec![process.place()]));

    for span in [door, process] {
        let seen = ["source", "topic", "entity_key", "delivery_id"].map(|name| span.attribute(name));
        assert_eq!(seen, ["shop", "order.updated", "shop/order/7", "a delivery"]);
    }
    let seen = ["attempt", "outcome"].map(|name| process.attribute(name));
    assert_eq!((seen, run.attribute("outcome")), (["1", "applied"], "done"));
    assert_eq!((door.attribute("outcome"), process.attribute("sequence").is_empty()), ("accepted", false));
    assert_eq!(process.attribute("fencing_token"), drain.attribute("fencing_token"));

    let received = collector.received(1).await;
    assert_eq!(received[0].traceparent, Some(run.traceparent()));
    // Shows that the search finds an id that is there.
    assert!(collector.holds("a delivery"));
    for hidden in ["c2VjcmV0", "v1,", "order_id", "whoever"] {
        assert!(!collector.holds(hidden), "{hidden}");
    }
    assert_eq!(deployed.warnings(), [""; 0]);
}

/// Promise: `invoke` gets the `traceparent` of each delivery's run, `forward` that of the group's run.
#[tokio::test(flavor = "multi_thread")]
async fn trace_shows_group_run_and_each_delivery() {
    let collector = TraceCollector::start().await;
    let mut deployed =
        TracedDeployment::start(&collector.url, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)]).await;
    assert_eq!(deployed.post("called", "1", "alone", Some(&traceparent("01"))).await, 200);
    for (source, id) in [("together", "a"), ("together", "b"), ("bursts", "c"), ("bursts", "d")] {
        assert_eq!(deployed.post(source, "1", id, None).await, 200);
    }
    deployed.work().await;
    let spans = collector.drained(3).await;
    let received = collector.received(3).await;
    let by_source = |name: &str| received.iter().find(|one| one.body["source"] == name).expect("it was handed on");

    let schema = Validator::new(include_str!("../../docs/invoke.schema.json"));
    for source in ["called", "together", "bursts"] {
        assert_eq!(schema.objections(&by_source(source).body), [""; 0]);
    }
    let alone = &by_source("called").body["deliveries"];
    assert_eq!(alone[0]["traceparent"], one(&spans, "run invoke", TRACE).traceparent());
    for (source, run) in [("together", "run invoke"), ("bursts", "run forward")] {
        let drain = spans.iter().find(|span| span.name == "drain" && span.attribute("entity_key").starts_with(source));
        let drain = drain.expect("it was drained");
        let start = one(&spans, run, &drain.trace);
        assert_eq!((&start.parent, start.attribute("deliveries")), (&drain.span, "2"));
        let mut runs = Vec::new();
        for delivery in by_source(source).body["deliveries"].as_array().unwrap() {
            let of_it =
                |span: &&ReceivedSpan| span.attribute("delivery_id") == delivery["delivery_id"].as_str().unwrap();
            let process = spans.iter().filter(of_it).find(|span| span.kind == SpanKind::Consumer).unwrap();
            let run = one(&spans, run, &process.trace);
            assert_eq!((&run.parent, &delivery["traceparent"]), (&process.span, &run.traceparent().into()));
            assert_eq!(process.links, [drain.place()]);
            runs.push(run.place());
        }
        assert_eq!(start.links, runs, "what it was about");
        let header = by_source(source).traceparent.clone();
        assert_eq!(header, (source == "bursts").then(|| start.traceparent()), "Lambda is not asked with one");
    }
}

/// Promise: an invalid `traceparent` begins a new trace; an unsampled one is passed on, without spans.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_traceparent_begins_a_new_trace() {
    let collector = TraceCollector::start().await;
    let mut deployed =
        TracedDeployment::start(&collector.url, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)]).await;
    let two = format!("{0},{0}", traceparent("01"));
    let sent = [None, Some("garbage"), Some(&two[..]), Some("00-0-0-01"), Some("ff-00-00-00"), Some("")];
    for (number, text) in sent.into_iter().enumerate() {
        let number = number.to_string();
        assert_eq!(deployed.post("shop", &number, &number, text).await, 200, "{text:?}");
    }
    deployed.work().await;
    let spans = collector.drained(sent.len()).await;
    let doors: Vec<_> = spans.iter().filter(|span| span.kind == SpanKind::Server).collect();
    let mut traces: Vec<_> = doors.iter().map(|door| &door.trace).collect();
    traces.sort();
    traces.dedup();
    assert_eq!(traces.len(), sent.len());
    for door in doors {
        assert_eq!((door.parent.as_str(), door.trace != TRACE), ("", true));
        assert_eq!(named(&spans, &door.trace).len(), 6);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsampled_trace_is_passed_on_but_not_sent() {
    let collector = TraceCollector::start().await;
    let mut deployed =
        TracedDeployment::start(&collector.url, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)]).await;
    assert_eq!(deployed.post("shop", "1", "1", Some(&traceparent("00"))).await, 200);
    deployed.work().await;
    let received = collector.received(1).await;
    let seen = received[0].traceparent.as_deref().unwrap();
    assert!(seen.starts_with(&format!("00-{TRACE}-")) && seen.ends_with("-00") && !seen.contains(PARENT), "{seen}");
    let spans = collector.drained(1).await;
    assert_eq!(named(&spans, TRACE), [""; 0]);
}

/// Anybody can send webhooks with wrong signatures.
///
/// Promise: rejected requests make no span; attempts and repeats do, without error texts.
#[tokio::test(flavor = "multi_thread")]
async fn unverified_request_makes_no_span() {
    let collector = TraceCollector::start().await;
    let mut deployed =
        TracedDeployment::start(&collector.url, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)]).await;
    let webhook = signed(&deployed.lane.sources, "shop", "1", update("1"), deployed.lane.env.now());
    let mut forged = request(&webhook);
    forged.body = Some(update("2"));
    forged.headers.insert("traceparent".into(), traceparent("01"));
    let answer = deployed.ingest.invoke(serde_json::to_vec(&forged).unwrap()).await.expect("it answers");
    assert_eq!(serde_json::from_slice::<Response>(&answer).unwrap().status_code, 401);
    assert_eq!(deployed.post("shop", "1", "2", None).await, 200);
    let spans = collector.until(|spans| !spans.is_empty()).await;
    assert_eq!(named(&spans, TRACE), [""; 0]);
    one(&spans, "POST /webhooks/shop", "");
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_and_repeats_have_spans_without_error_text() {
    let collector = TraceCollector::start().await;
    let mut deployed =
        TracedDeployment::start(&collector.url, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)]).await;
    let body = r#"{"type":"order.updated","data":{"order_id":"1","note":"fails once"}}"#;
    assert_eq!(deployed.post_body("shop", body, "1", Some(&traceparent("01"))).await, 200);
    assert_eq!(deployed.post_body("shop", body, "1", None).await, 200, "a repeat");
    deployed.work().await;
    let spans = collector.drained(2).await;
    let mut attempts: Vec<_> = spans.iter().filter(|span| span.name == "process shop" && span.trace == TRACE).collect();
    attempts.sort_by_key(|span| span.from);
    let seen: Vec<_> =
        attempts.iter().map(|span| (span.attribute("attempt"), span.attribute("outcome"), span.is_error)).collect();
    assert_eq!(seen, [("1", "retry", true), ("2", "applied", false)]);
    let repeat = spans.iter().find(|span| span.name == "process shop" && span.trace != TRACE).expect("it has a span");
    assert_eq!((repeat.attribute("outcome"), repeat.attribute("attempt")), ("repeat", ""));
    assert_eq!(named(&spans, &repeat.trace).iter().filter(|name| name.contains("run")).count(), 0);
    assert!(!collector.holds("not the first time"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rewind_keeps_trace_and_redrive_begins_new_trace() {
    let collector = TraceCollector::start().await;
    let mut deployed =
        TracedDeployment::start(&collector.url, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)]).await;
    let gone = r#"{"type":"order.updated","data":{"order_id":"1","note":"is gone once"}}"#;
    assert_eq!(deployed.post_body("shop", gone, "parked", Some(&traceparent("01"))).await, 200);
    deployed.work().await;
    let other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert_eq!(deployed.post("shop", "1", "applied", Some(other)).await, 200);
    let spans = collector.drained(2).await;
    let parked = one(&spans, "process shop", TRACE);
    assert_eq!((parked.attribute("outcome"), parked.is_error), ("parked", true));
    let applied = one(&spans, "process shop", &other[3..35]);

    let order = EntityKey::parse("shop/order/1").unwrap();
    let operator = deployed.lane.operator();
    let parked = operator.parked(&order).await.unwrap();
    operator.redrive(&parked[0], None).await.unwrap();
    let spans = collector.drained(3).await;
    let [put_back]: [&ReceivedSpan; 1] = of_delivery(&spans, "parked")
        .filter(|span| span.trace != TRACE)
        .collect::<Vec<_>>()
        .try_into()
        .expect("it is one");
    assert_eq!((put_back.parent.as_str(), put_back.attribute("outcome")), ("", "applied"));

    operator.rewind(&order, Sequence(applied.attribute("sequence").parse().unwrap())).await.unwrap();
    let spans = collector.until(|spans| of_delivery(spans, "applied").count() == 2).await;
    assert!(of_delivery(&spans, "applied").all(|span| span.trace == applied.trace && span.parent == applied.parent));
}

fn of_delivery<'a>(spans: &'a [ReceivedSpan], id: &'a str) -> impl Iterator<Item = &'a ReceivedSpan> {
    spans.iter().filter(move |span| span.name == "process shop" && span.attribute("delivery_id") == id)
}

/// The store is unavailable when the delivery arrives, and available again when it is appended.
///
/// Promise: deferred and rewound deliveries keep their trace; redriven ones begin one.
#[tokio::test(flavor = "multi_thread")]
async fn deferred_delivery_keeps_the_trace() {
    let collector = TraceCollector::start().await;
    let mut deployed =
        TracedDeployment::start(&collector.url, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)]).await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let mut cut_off = deployed.environment.clone();
    cut_off.push(("AWS_ENDPOINT_URL_DYNAMODB".into(), closed));
    deployed.ingest = FunctionProcess::new(settings("ingest", &cut_off, &deployed.lines));
    assert_eq!(deployed.post("shop", "1", "1", Some(&traceparent("01"))).await, 202);
    deployed.work().await;
    let spans = collector.drained(1).await;
    let door = one(&spans, "POST /webhooks/shop", TRACE);
    assert_eq!(door.attribute("outcome"), "deferred");
    let taken_up = one(&spans, "append deferred", TRACE);
    assert_eq!((&taken_up.parent, taken_up.attribute("outcome")), (&door.span, "appended"));
    let process = one(&spans, "process shop", TRACE);
    assert_eq!((&process.parent, process.attribute("outcome")), (&taken_up.span, "applied"));
}

/// Promise: a failing collector or invalid variable changes no answer or outcome; spans are sent after the answer.
#[tokio::test(flavor = "multi_thread")]
async fn failing_collector_changes_no_answer_or_outcome() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    for (traces, warned) in [
        ("http://127.0.0.1:1", "traces not sent"),
        (&silent_url[..], "no answer in time"),
        ("refuses", "404"),
        ("no URL", "nothing is traced"),
    ] {
        let receiver = TraceCollector::start().await;
        let traces = if traces == "refuses" { format!("{}/elsewhere", receiver.url) } else { traces.to_owned() };
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", traces.as_str()), ("OTEL_EXPORTER_OTLP_TIMEOUT", "200")];
        let mut deployed = TracedDeployment::start(&receiver.url, &variables).await;
        for id in ["1", "2", "3"] {
            assert_eq!(deployed.post("shop", "1", id, None).await, 200, "{traces}");
        }
        deployed.work().await;
        assert_eq!(receiver.received(3).await.len(), 3, "{traces}");
        assert_eq!(deployed.left("shop/order/1").await, (0, false, 0), "{traces}");
        // The worker's last warning may still be on its way. Ingest has warned at its second event.
        let warnings = deployed.warnings();
        let seen = warnings.iter().filter(|line| line.contains(warned)).count();
        assert!((1..=4).contains(&seen), "{traces}: each function warns twice at most: {warnings:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sender_is_answered_before_spans_are_sent() {
    let collector = TraceCollector::start().await;
    collector.shut.send_replace(true);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", &FUNCTION_TIMEOUT.as_millis().to_string()),
    ];
    let mut deployed = TracedDeployment::start(&collector.url, &variables).await;
    let parent = traceparent("01");
    let answered = deployed.post("shop", "1", "1", Some(&parent));
    let answered = tokio::time::timeout(FUNCTION_TIMEOUT / 10, answered).await;
    assert_eq!(answered, Ok(200));
    collector.shut.send_replace(false);
    let spans = collector.until(|spans| !spans.is_empty()).await;
    assert_eq!(named(&spans, TRACE).len(), 3);
}

/// Promise: without an endpoint nothing is traced or stored.
#[tokio::test(flavor = "multi_thread")]
async fn no_span_is_sent_when_tracing_is_off() {
    let collector = TraceCollector::start().await;
    for off in [&[][..], &[("OTEL_SDK_DISABLED", "true")], &[("OTEL_TRACES_EXPORTER", "none")]] {
        let mut variables = off.to_vec();
        if !off.is_empty() {
            variables.push(("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url));
        }
        let mut deployed = TracedDeployment::start(&collector.url, &variables).await;
        assert_eq!(deployed.post("shop", "1", "1", Some(&traceparent("01"))).await, 200);
        deployed.work().await;
    }
    let received = collector.received(3).await;
    assert!(received.iter().all(|one| one.traceparent.is_none()), "{received:?}");
    assert!(!collector.holds("shop"));
}
