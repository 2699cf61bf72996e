//! `forward` and `invoke` with an endpoint that refuses connections or is unavailable. The endpoint runs by
//! the machine's clock while the paused clock stands still.

use std::sync::{LazyLock, mpsc};

use axum::{
    Json,
    http::{StatusCode, Uri},
    response::IntoResponse,
};
use tests::prelude::*;
use tokio::{net::TcpSocket, runtime::Runtime};
use webhook_serializer::handlers::{forward::Forward, invoke::Invoke};

use super::*;

const ANSWER: Duration = Duration::from_secs(30);

static MACHINE: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime")
});

#[derive(Debug, Clone, Copy, PartialEq)]
enum DownMode {
    Refuses,
    Answers(u16),
}

/// An HTTP endpoint or a Lambda. Its path `well` is down only when its port is.
struct DestinationEndpoint {
    url: String,
    closed: Option<TcpSocket>,
    is_down: Arc<AtomicBool>,
}

impl DestinationEndpoint {
    fn start(down: Option<DownMode>) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let url = format!("http://{}", socket.local_addr().expect("it is bound"));
        let mut endpoint = Self { url, closed: None, is_down: Arc::new(AtomicBool::new(down.is_some())) };
        match down {
            // The port is bound and not listening: connections are refused, and nobody else gets the port.
            Some(DownMode::Refuses) => endpoint.closed = Some(socket),
            down => endpoint.listen(socket, down),
        }
        endpoint
    }

    fn listen(&self, socket: TcpSocket, down: Option<DownMode>) {
        let is_down = self.is_down.clone();
        let answer = async move |asked: Uri| {
            let is_down = is_down.load(Relaxed) && !asked.path().contains("well");
            let status = match down.filter(|_| is_down) {
                Some(DownMode::Answers(status)) => status,
                Some(DownMode::Refuses) | None => 200,
            };
            let status = StatusCode::from_u16(status).expect("a status");
            (status, Json(serde_json::json!({ "outcome": "done" }))).into_response()
        };
        let _on = MACHINE.enter();
        let listener = socket.listen(1024).expect("it listens");
        MACHINE.spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    }

    fn is_back(&mut self) {
        self.is_down.store(false, Relaxed);
        if let Some(socket) = self.closed.take() {
            self.listen(socket, None);
        }
    }
}

/// Calls a handler on the machine's clock. A start also takes a second on the paused clock.
#[derive(Clone)]
struct Timed<H> {
    handler: H,
    refusals: Arc<Mutex<BTreeMap<String, Vec<Outcome>>>>,
}

impl<H: Handler> Timed<H> {
    fn new(handler: H) -> Self {
        Self { handler, refusals: Arc::default() }
    }

    fn refusals(&self, source: &str) -> Vec<Outcome> {
        self.refusals.lock().expect("no panic").get(source).cloned().unwrap_or_default()
    }
}

impl<H: Handler + Clone> Handler for Timed<H> {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        context.env().sleep(SECOND).await;
        let handler = self.handler.clone();
        let token = context.token();
        let (answer, answered) = mpsc::channel();
        let source = delivery.source().to_string();
        let delivery = delivery.clone();
        MACHINE.spawn(async move {
            let context = Context::detached(token, ANSWER, Env::system());
            answer.send(handler.handle(&delivery, &context).await).expect("it is waited for");
        });
        // Blocks the only thread, on which the paused clock runs.
        let outcome = answered.recv().expect("it answers")?;
        if outcome != Outcome::Done {
            self.refusals.lock().expect("no panic").entry(source).or_default().push(outcome.clone());
        }
        Ok(outcome)
    }

    fn answers_to(&self, name: &str) -> bool {
        self.handler.answers_to(name)
    }
}

fn source(name: &str, handler: &str) -> String {
    format!(
        "[sources.{name}]\nprovider = 'standard-webhooks'\nsecrets = ['whsec_Zk93bTR6S2dRcTdUaHBY']\n{handler}\n\
         handler_timeout = '10s'\n"
    )
}

fn forwarding(shop: &DestinationEndpoint, well: &DestinationEndpoint) -> (TestWorld, Timed<Forward>) {
    let to = |endpoint: &DestinationEndpoint| {
        let url = &endpoint.url;
        format!(
            "handler = 'forward'\nforward = {{ url = '{url}', secret = 'whsec_Zk93bTR6S2dRcTdUaHBY', allow_private = true }}"
        )
    };
    let world = TestWorld::new().with_sources(&(source("shop", &to(shop)) + &source("well", &to(well))));
    let handler = Timed::new(Forward::new(world.sources()));
    (world, handler)
}

fn invoking(lambda: &DestinationEndpoint) -> (TestWorld, Timed<Invoke>) {
    let of = |name: &str| source(name, &format!("handler = 'invoke'\ninvoke = {{ function = '{name}' }}"));
    let world = TestWorld::new().with_sources(&(of("shop") + &of("well")));
    let account = Account { lambda_endpoint: Some(lambda.url.clone()), ..Account::local(&lambda.url, &lambda.url) };
    let handler = Invoke::new(world.sources(), &account, &account.http_client(), &Env::system());
    (world, Timed::new(handler))
}

fn is_unavailable(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unavailable { .. } | Outcome::NotNow { .. })
}

/// Keeps the endpoint down for six hours. Returns the number of attempts, and how long the backlog took.
async fn six_hours_at<H: Handler + Clone>(
    world: TestWorld,
    handler: Timed<H>,
    mut shop: DestinationEndpoint,
    orders: usize,
) -> (usize, Duration) {
    let recovers = async {
        world.env.sleep(6 * HOUR).await;
        shop.is_back();
    };
    let ((), took) = tokio::join!(recovers, super::six_hours_down(&world, orders, handler.clone()));
    let refusals = handler.refusals("shop");
    assert!(refusals.iter().all(is_unavailable), "{refusals:?}");
    assert_eq!(handler.refusals("well"), []);
    (refusals.len(), took)
}

#[tokio::test(start_paused = true)]
async fn forward_delivers_after_six_hours_of_refused_connections() {
    // A single order waits alone. Ten share the probes, in ten processes.
    for (orders, most, longest) in [(1, 140, 6 * MINUTE), (10, 2_000, 7 * MINUTE)] {
        let shop = DestinationEndpoint::start(Some(DownMode::Refuses));
        let well = DestinationEndpoint::start(None);
        let (world, handler) = forwarding(&shop, &well);
        let (attempts, took) = six_hours_at(world, handler, shop, orders).await;
        assert!((60..=most).contains(&attempts), "{orders} orders: {attempts} attempts");
        assert!(took <= longest, "{orders} orders: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn invoke_delivers_after_six_hours_without_function() {
    for (orders, most, longest) in [(1, 140, 6 * MINUTE), (10, 2_000, 7 * MINUTE)] {
        let lambda = DestinationEndpoint::start(Some(DownMode::Answers(404)));
        let (world, handler) = invoking(&lambda);
        let (attempts, took) = six_hours_at(world, handler, lambda, orders).await;
        assert!((60..=most).contains(&attempts), "{orders} orders: {attempts} attempts");
        assert!(took <= longest, "{orders} orders: {took:?}");
    }
}
