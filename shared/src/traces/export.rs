//! Sending spans to a collector: after an invocation was answered, all that it made,
//! once, for a short time.
//!
//! The SDK's own processors send from a thread, which Lambda would freeze between two
//! invocations, halfway. Here nothing runs beside the work: [`flush`] is called when the
//! answer has been posted, before another event is asked for. So a collector costs the
//! sender of a webhook nothing; one that does not answer costs the function up to
//! [`PATIENCE`], and is then left alone for [`PAUSE`].

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use opentelemetry::{
    Context, global,
    trace::{SpanId, TraceId, TracerProvider},
};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{
        IdGenerator, RandomIdGenerator, SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter as Exporter,
        SpanProcessor,
    },
};

use crate::{
    time::{Surroundings, Timestamp},
    tls::Roots,
};

/// How long a collector may take where nobody says.
const PATIENCE: Duration = Duration::from_secs(1);

/// However long somebody says: the function takes no other event meanwhile.
const MOST_PATIENCE: Duration = Duration::from_secs(2);

/// Less time than this is not begun to be sent in.
const LEAST: Duration = Duration::from_millis(100);

/// How long one is left alone that said nothing in all its time, or refused twice in a
/// row: once may have been a connection that had ended. What ends meanwhile is dropped.
const PAUSE: Duration = Duration::from_secs(30);

/// No more spans than this are kept, should an invocation make so many.
const MOST: usize = 4096;

/// What is left of an invocation's time when the last of it is sent.
const MARGIN: Duration = Duration::from_millis(100);

/// Longer than the pauses between the sends of a busy function, shorter than a
/// collector keeps a connection.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// More than any answer that is one.
const ANSWER_BYTES: usize = 64 * 1024;

/// The value of an environment variable that is set and not empty.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

static TRACING: OnceLock<Tracing> = OnceLock::new();

/// Where the process's spans go.
struct Tracing {
    tracer: SdkTracer,
    outbox: Outbox<SpanExporter>,
}

/// Begins to trace, if `variables` name a collector; once in a process. What is wrong with
/// them is logged, and nothing is traced: no delivery is to wait for that.
pub fn begin(variables: Variables<'_>, surroundings: &Surroundings) {
    match Tracing::configured(variables, surroundings) {
        Ok(Some(tracing)) => drop(TRACING.set(tracing)),
        Ok(None) => {}
        Err(reason) => tracing::error!(reason, "nothing is traced"),
    }
}

pub(super) fn tracer() -> Option<&'static SdkTracer> {
    TRACING.get().map(|tracing| &tracing.tracer)
}

/// An invocation begins, which is to have ended at `deadline`, in milliseconds since the
/// epoch.
pub fn invoked(deadline: u64) {
    if let Some(tracing) = TRACING.get() {
        tracing.outbox.invoked(Timestamp::from_millis(deadline));
    }
}

/// Sends what has ended. Never fails; what could not be sent is dropped.
pub async fn flush() {
    if let Some(tracing) = TRACING.get() {
        tracing.outbox.send().await;
    }
}

impl Tracing {
    /// As the standard's variables say; `None`: they name no collector.
    fn configured(variables: Variables<'_>, surroundings: &Surroundings) -> Result<Option<Self>, String> {
        let is = |name: &str, value: &str| variables(name).is_some_and(|is| is.eq_ignore_ascii_case(value));
        let Some((name, endpoint)) = first(variables, ENDPOINT) else { return Ok(None) };
        let endpoint =
            if name == ENDPOINT[0] { endpoint } else { endpoint.trim_end_matches('/').to_owned() + "/v1/traces" };
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let host = match endpoint.parse::<Uri>() {
            Ok(uri) if matches!(uri.scheme_str(), Some("http" | "https")) => uri.host().unwrap_or_default().to_owned(),
            _ => return Err(format!("{name}: not an http:// or https:// URL")),
        };
        // The crates would trace everything, or send without what is wrong, and say nothing.
        sampler(variables)?;
        headers(variables)?;
        let patience = patience(variables)?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new(variables, patience)?)
            .with_endpoint(endpoint)
            // The one that is built in.
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(patience)
            // A retry would wait by blocking the thread.
            .with_retry_policy(RetryPolicy::disabled())
            .build();
        let mut exporter = exporter.map_err(|error| error.to_string())?;
        let resource = resource(variables);
        exporter.set_resource(&resource);
        let outbox = Outbox::new(exporter, host, patience, surroundings.clone());
        // The sampler, and limits, are read by the SDK.
        let provider = SdkTracerProvider::builder()
            .with_span_processor(outbox.ended.clone())
            .with_id_generator(Ids { random: RandomIdGenerator::default(), surroundings: surroundings.clone() })
            .with_resource(resource)
            .build();
        // So that a handler's own spans go the same way.
        global::set_tracer_provider(provider.clone());
        let tracer = provider.tracer("webhook-serializer");
        Ok(Some(Self { tracer, outbox }))
    }
}

/// What is said of traces goes before what is said of everything.
type Names = [&'static str; 2];

const ENDPOINT: Names = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const TIMEOUT: Names = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const CERTIFICATE: Names = ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
const HEADERS: Names = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];

/// The first that is set, by its name.
fn first(variables: Variables<'_>, names: Names) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| Some((name, variables(name)?)))
}

fn patience(variables: Variables<'_>) -> Result<Duration, String> {
    let Some((name, value)) = first(variables, TIMEOUT) else { return Ok(PATIENCE) };
    match value.parse() {
        // The standard's word for no limit.
        Ok(0) => Ok(MOST_PATIENCE),
        Ok(millis) => Ok(Duration::from_millis(millis).min(MOST_PATIENCE)),
        Err(_) => Err(format!("{name}: {value:?} is not a number of milliseconds")),
    }
}

/// Whether the SDK knows the sampler, and what it is to go by.
fn sampler(variables: Variables<'_>) -> Result<(), String> {
    let (name, argument) = ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG");
    let said = variables(name);
    match said.as_deref().map(|sampler| sampler.strip_prefix("parentbased_").unwrap_or(sampler)) {
        None | Some("always_on" | "always_off") => Ok(()),
        Some("traceidratio") => {
            let ratio = variables(argument).map_or(Ok(1.0), |ratio| ratio.parse::<f64>());
            let is_one = ratio.is_ok_and(|ratio| (0.0..=1.0).contains(&ratio));
            if is_one { Ok(()) } else { Err(format!("{argument}: not a number from 0 to 1")) }
        }
        Some(_) => Err(format!("{name}: {:?} is not a sampler that is built in", said.unwrap_or_default())),
    }
}

/// Whether each header has a name. They may be secret: no word of them is said.
fn headers(variables: Variables<'_>) -> Result<(), String> {
    let Some((name, headers)) = first(variables, HEADERS) else { return Ok(()) };
    let is_one = |header: &str| header.split_once('=').is_some_and(|(name, _)| !name.trim().is_empty());
    let mut headers = headers.split(',').filter(|header| !header.trim().is_empty());
    if headers.all(is_one) {
        Ok(())
    } else {
        Err(format!("{name}: not a list of name=value, with commas between them"))
    }
}

/// What all spans have in common: what `OTEL_RESOURCE_ATTRIBUTES` says, and a name, which
/// is the function's where nobody gave another.
fn resource(variables: Variables<'_>) -> Resource {
    let is_name = |one: &str| one.trim_start().starts_with("service.name=");
    let named = variables("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|all| all.split(',').any(is_name));
    let function = variables("AWS_LAMBDA_FUNCTION_NAME").filter(|_| !named);
    match variables("OTEL_SERVICE_NAME").or(function) {
        Some(name) => Resource::builder().with_service_name(name).build(),
        None => Resource::builder().build(),
    }
}

/// Traces are named as X-Ray wants them named, by the second in which they begin and at
/// random behind that: it drops others, depending on who sends them there. Nobody else
/// minds.
#[derive(Debug)]
struct Ids {
    random: RandomIdGenerator,
    surroundings: Surroundings,
}

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        let mut id = self.random.new_trace_id().to_bytes();
        let second = (self.surroundings.now().as_millis() / 1000) as u32;
        id[..4].copy_from_slice(&second.to_be_bytes());
        TraceId::from_bytes(id)
    }

    fn new_span_id(&self) -> SpanId {
        self.random.new_span_id()
    }
}

/// Spans that have ended.
#[derive(Debug, Clone, Default)]
struct Ended(Arc<Mutex<Vec<SpanData>>>);

impl Ended {
    fn lock(&self) -> MutexGuard<'_, Vec<SpanData>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpanProcessor for Ended {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        let mut ended = self.lock();
        if span.span_context.is_sampled() && ended.len() < MOST {
            ended.push(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// What has ended, and who takes it.
struct Outbox<E> {
    ended: Ended,
    exporter: E,
    host: String,
    patience: Duration,
    surroundings: Surroundings,
    /// Until when the invocation may last, in milliseconds since the epoch.
    deadline: AtomicU64,
    mood: Mutex<Mood>,
}

/// What the collector has done last.
#[derive(Debug, Default)]
struct Mood {
    has_refused: bool,
    /// Until when it is left alone, by our monotonic clock.
    paused: Duration,
}

impl<E: Exporter> Outbox<E> {
    fn new(exporter: E, host: String, patience: Duration, surroundings: Surroundings) -> Self {
        let (ended, deadline, mood) = (Ended::default(), AtomicU64::new(u64::MAX), Mutex::default());
        Self { ended, exporter, host, patience, surroundings, deadline, mood }
    }

    fn mood(&self) -> MutexGuard<'_, Mood> {
        self.mood.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A moment that is past tells nothing: `cargo lambda watch` names one of 1970.
    fn invoked(&self, deadline: Timestamp) {
        let told = if deadline > self.surroundings.now() { deadline.as_millis() } else { u64::MAX };
        self.deadline.store(told, Relaxed);
    }

    async fn send(&self) {
        let deadline = Timestamp::from_millis(self.deadline.load(Relaxed));
        let left = deadline.since(self.surroundings.now()).saturating_sub(MARGIN);
        if left < LEAST {
            // They go with those of the next invocation.
            return;
        }
        let spans = std::mem::take(&mut *self.ended.lock());
        let now = self.surroundings.monotonic();
        if spans.is_empty() || now < self.mood().paused {
            return;
        }
        let count = spans.len();
        let sent = self.surroundings.within(self.patience.min(left), self.exporter.export(spans)).await;
        let is_paused = match &sent {
            Some(answer) => {
                let had_refused = std::mem::replace(&mut self.mood().has_refused, answer.is_err());
                had_refused && answer.is_err()
            }
            // It had all its time, not what was left of the invocation's.
            None => self.patience <= left,
        };
        if is_paused {
            self.mood().paused = self.surroundings.monotonic() + PAUSE;
        }
        let reason = match sent {
            Some(Ok(())) => return,
            Some(Err(error)) => error.to_string(),
            None => "no answer in time".to_owned(),
        };
        tracing::warn!(host = self.host, reason, spans = count, "traces not sent; dropped");
    }
}

/// The connections to the collector.
#[derive(Debug)]
struct Client(legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl Client {
    fn new(variables: Variables<'_>, patience: Duration) -> Result<Self, String> {
        let mut roots = Roots::mozilla();
        if let Some((name, path)) = first(variables, CERTIFICATE) {
            let pem = std::fs::read(&path).map_err(|error| format!("{name}: {path} cannot be read: {error}"))?;
            roots.add(&pem).map_err(|reason| format!("{name}: {path} {reason}"))?;
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(patience));
        let tls = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(roots.trusted());
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_timer(TokioTimer::new())
            .build(tls.https_or_http().enable_http1().wrap_connector(tcp));
        Ok(Self(client))
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = self.0.request(request.map(Full::new)).await?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    }
}

impl HttpClient for Client {
    fn send_bytes<'s, 'f>(
        &'s self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(self.send(request))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use opentelemetry::trace::{SpanBuilder, Tracer};
    use opentelemetry_sdk::{error::OTelSdkError, trace::Sampler};

    use super::*;

    /// Takes what it is sent, refuses it, or says nothing, and counts.
    #[derive(Debug, Default)]
    struct Taker {
        asked: AtomicUsize,
        spans: AtomicUsize,
        does: Mutex<Does>,
    }

    #[derive(Debug, Default, Clone, Copy)]
    enum Does {
        #[default]
        Takes,
        Refuses,
        Hangs,
    }

    impl Exporter for &'static Taker {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.asked.fetch_add(1, Relaxed);
            let does = *self.does.lock().unwrap();
            match does {
                Does::Takes => {
                    self.spans.fetch_add(batch.len(), Relaxed);
                    Ok(())
                }
                Does::Refuses => Err(OTelSdkError::InternalFailure("no".into())),
                Does::Hangs => std::future::pending().await,
            }
        }
    }

    struct Case {
        outbox: Outbox<&'static Taker>,
        taker: &'static Taker,
        tracer: SdkTracer,
        surroundings: Surroundings,
    }

    impl Case {
        fn new(sampler: Sampler) -> Self {
            let taker: &'static Taker = Box::leak(Box::default());
            let surroundings = Surroundings::system();
            let outbox = Outbox::new(taker, "collector".into(), PATIENCE, surroundings.clone());
            let provider = SdkTracerProvider::builder().with_span_processor(outbox.ended.clone()).with_sampler(sampler);
            Self { outbox, taker, tracer: provider.build().tracer("test"), surroundings }
        }

        /// A span ends, and what has ended is sent, with so long left of the invocation.
        async fn sends(&self, left: Duration) -> (usize, usize) {
            drop(self.tracer.build(SpanBuilder::from_name("one")));
            self.outbox.invoked(self.surroundings.now() + left);
            self.outbox.send().await;
            (self.taker.asked.load(Relaxed), self.taker.spans.load(Relaxed))
        }

        fn now(&self, does: Does) {
            *self.taker.does.lock().unwrap() = does;
        }

        /// The pause is over.
        fn later(&self) {
            self.outbox.mood().paused = Duration::ZERO;
        }
    }

    const AMPLE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn what_has_ended_is_sent_once() {
        let case = Case::new(Sampler::AlwaysOn);
        assert_eq!(case.sends(AMPLE).await, (1, 1));
        assert_eq!(case.sends(AMPLE).await, (2, 2));
        case.outbox.send().await;
        assert_eq!(case.taker.asked.load(Relaxed), 2, "nobody is asked for nothing");
    }

    #[tokio::test]
    async fn a_collector_that_took_nothing_is_left_alone_for_a_while() {
        let case = Case::new(Sampler::AlwaysOn);
        case.now(Does::Refuses);
        assert_eq!(case.sends(AMPLE).await, (1, 0));
        for _ in 0..3 {
            assert_eq!(case.sends(AMPLE).await, (2, 0), "once it may have been a connection");
        }
        assert!(case.outbox.mood().paused > case.surroundings.monotonic() + PAUSE / 2);
        case.later();
        case.now(Does::Takes);
        assert_eq!(case.sends(AMPLE).await, (3, 1), "what ended meanwhile is dropped");
        case.now(Does::Refuses);
        assert_eq!(case.sends(AMPLE).await, (4, 1));
        case.now(Does::Takes);
        assert_eq!(case.sends(AMPLE).await, (5, 2), "it had taken some since");
    }

    #[tokio::test]
    async fn one_that_says_nothing_is_waited_for_no_longer_than_the_invocation_lasts() {
        let case = Case::new(Sampler::AlwaysOn);
        case.now(Does::Hangs);
        // Without the limit this would not come back.
        assert_eq!(case.sends(MARGIN + LEAST * 2).await, (1, 0));
        case.now(Does::Takes);
        assert_eq!(case.sends(MARGIN + LEAST / 2).await, (1, 0), "no time is left");
        assert_eq!(case.sends(AMPLE).await, (2, 2), "not paused, with those of the invocation before");
        case.now(Does::Hangs);
        assert_eq!(case.sends(AMPLE).await, (3, 2));
        assert_eq!(case.sends(AMPLE).await, (3, 2), "it had all its time");
    }

    #[tokio::test]
    async fn a_deadline_that_is_past_is_none() {
        let case = Case::new(Sampler::AlwaysOn);
        drop(case.tracer.build(SpanBuilder::from_name("one")));
        case.outbox.invoked(Timestamp::from_millis(600_000));
        case.outbox.send().await;
        assert_eq!(case.taker.spans.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn what_is_not_sampled_is_not_kept_and_no_more_than_so_much_is() {
        let case = Case::new(Sampler::AlwaysOff);
        assert_eq!(case.sends(AMPLE).await, (0, 0));
        let case = Case::new(Sampler::AlwaysOn);
        for _ in 0..MOST + 10 {
            drop(case.tracer.build(SpanBuilder::from_name("one")));
        }
        assert_eq!(case.sends(AMPLE).await, (1, MOST));
    }

    /// As an environment has it in which these are set.
    fn variable(set: &[(&str, &str)], name: &str) -> Option<String> {
        set.iter().find(|(held, _)| *held == name).map(|(_, value)| (*value).to_owned())
    }

    fn configured(set: &[(&str, &str)]) -> Result<Option<String>, String> {
        let tracing = Tracing::configured(&|name| variable(set, name), &Surroundings::system())?;
        Ok(tracing.map(|tracing| format!("{} {:?}", tracing.outbox.host, tracing.outbox.patience)))
    }

    #[tokio::test]
    async fn the_standards_variables_decide_and_the_wrong_one_is_named() {
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318/");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector.example/otlp");
        for off in [&[][..], &[base, ("OTEL_SDK_DISABLED", "True")], &[traces, ("OTEL_TRACES_EXPORTER", "none")]] {
            assert_eq!(configured(off), Ok(None));
        }
        let on = |set: &[(&str, &str)]| configured(set).unwrap().unwrap();
        assert_eq!(on(&[base]), "localhost 1s");
        assert_eq!(on(&[base, traces, ("OTEL_EXPORTER_OTLP_TIMEOUT", "250")]), "collector.example 250ms");
        assert_eq!(on(&[base, ("OTEL_EXPORTER_OTLP_TIMEOUT", "10000")]), "localhost 2s");
        assert_eq!(on(&[base, ("OTEL_EXPORTER_OTLP_TIMEOUT", "0")]), "localhost 2s");
        let ratio = ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio");
        assert_eq!(on(&[base, ratio, ("OTEL_TRACES_SAMPLER_ARG", "0.05")]), "localhost 1s");
        assert_eq!(on(&[base, ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hush=, x=1,")]), "localhost 1s");
        for (wrong, named) in [
            (("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318"), "OTEL_EXPORTER_OTLP_ENDPOINT: "),
            (("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "localhost"), "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "),
            (("OTEL_TRACES_SAMPLER", "some"), "OTEL_TRACES_SAMPLER: \"some\""),
            (("OTEL_EXPORTER_OTLP_HEADERS", "hush"), "OTEL_EXPORTER_OTLP_HEADERS: not a list"),
            (("OTEL_EXPORTER_OTLP_TIMEOUT", "1s"), "OTEL_EXPORTER_OTLP_TIMEOUT: "),
            (("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere"), "OTEL_EXPORTER_OTLP_CERTIFICATE: /nowhere cannot"),
        ] {
            let reason = configured(&[wrong, traces][..if wrong.0.ends_with("ENDPOINT") { 1 } else { 2 }]);
            let reason = reason.unwrap_err();
            assert!(reason.starts_with(named) && !reason.contains("hush"), "{reason}");
        }
        let percent = configured(&[base, ratio, ("OTEL_TRACES_SAMPLER_ARG", "5%")]).unwrap_err();
        assert!(percent.starts_with("OTEL_TRACES_SAMPLER_ARG: "), "{percent}");
    }

    #[test]
    fn a_trace_is_named_by_its_second_and_at_random() {
        let surroundings = Surroundings::system();
        let ids = Ids { random: RandomIdGenerator::default(), surroundings: surroundings.clone() };
        let second = |id: &TraceId| u32::from_be_bytes(id.to_bytes()[..4].try_into().unwrap());
        let before = (surroundings.now().as_millis() / 1000) as u32;
        let [one, other] = [ids.new_trace_id(), ids.new_trace_id()];
        assert!((before..before + 60).contains(&second(&one)));
        assert_ne!(one.to_bytes()[4..], other.to_bytes()[4..]);
    }

    #[test]
    fn spans_are_the_functions_where_nobody_gave_another_name() {
        let name = |set: &[(&str, &str)]| {
            resource(&|name| variable(set, name)).get(&"service.name".into()).unwrap().to_string()
        };
        let function = ("AWS_LAMBDA_FUNCTION_NAME", "shop-Worker");
        assert_eq!(name(&[function]), "shop-Worker");
        assert_eq!(name(&[function, ("OTEL_SERVICE_NAME", "webhooks")]), "webhooks");
        assert_eq!(name(&[function, ("OTEL_RESOURCE_ATTRIBUTES", "peer.service.name=other")]), "shop-Worker");
    }
}
