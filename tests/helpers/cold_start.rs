//! Measures the Lambda functions and, beside them, a hello world that is built the same way: sizes,
//! instructions counted by callgrind, and times.
//!
//! The run fails if a size or an instruction count exceeds its limit, and reports those above their goal.
//! Times depend on the machine, so they are only reported.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use axum::{
    Router,
    extract::State,
    http::HeaderMap,
    response::IntoResponse,
    routing::{get, post},
};
use clap::Parser;
use serde_json::json;
use serializer::local::{Engines, samples};
use tests::webhooks::request;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    process::Command,
    sync::Notify,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivateKeyDer},
};
use webhook_serializer::{sources::Sources, time::Env};

/// The goal of docs/cold-start.md for a function's instructions until its first poll, as a multiple of the
/// hello world's.
const INIT_RATIO: f64 = 5.0;
const TLS_CALL: u64 = 6_000_000;

/// The largest ratio with which the run succeeds. It is above the goal, because the machine's own libraries
/// affect the ratio.
const INIT_RATIO_ALLOWED: f64 = 5.2;

/// The largest allowed sizes of the binaries `ingest`, `worker` and `scheduler`, in bytes. The limit is 5.7 MB
/// for arm64, as deployed; the same code for x86-64 is a tenth larger, and has the paths of the machine that builds it.
const LARGEST_ALLOWED: [u64; 3] =
    if cfg!(target_arch = "aarch64") { [5_700_000; 3] } else { [6_150_000, 6_500_000, 6_330_000] };

const SAMPLE: &str = include_str!("../../events/shopify-orders-create.json");

/// Times are medians of this many runs.
const ROUNDS: usize = 15;

/// Measures sizes and starts of the functions, beside a hello world
#[derive(Debug, Parser)]
struct ColdStartOptions {
    /// The folder of the release binaries
    #[arg(long, default_value = "target/release")]
    binaries: PathBuf,
    /// Only measure; fail at nothing
    #[arg(long)]
    no_gate: bool,
}

/// When a measurement ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The process requests its first event.
    Next,
    /// The process has answered the event.
    Answer,
}

/// The state of the Lambda stand-in.
struct Lambda {
    event: String,
    until: Until,
    reached: Notify,
}

async fn next(State(lambda): State<Arc<Lambda>>) -> impl IntoResponse {
    if lambda.until == Until::Next {
        lambda.reached.notify_one();
        std::future::pending::<()>().await;
    }
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("lambda-runtime-aws-request-id", "8c2ea3a5-6d2e-4a5a-9d1c-0f5f0a1b2c3d"),
        ("lambda-runtime-deadline-ms", "32503680000000"),
        ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:000000000000:function:measured"),
    ] {
        headers.insert(name, value.parse().expect("a header's value"));
    }
    (headers, lambda.event.clone())
}

async fn answered(State(lambda): State<Arc<Lambda>>, body: String) -> &'static str {
    if !body.contains("\"statusCode\":4") && !body.contains("\"statusCode\":5") {
        lambda.reached.notify_one();
    }
    "{}"
}

async fn serve(lambda: Arc<Lambda>) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/2018-06-01/runtime/invocation/next", get(next))
        .route("/2018-06-01/runtime/invocation/{id}/response", post(answered))
        .with_state(lambda);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// Serves TLS in front of the URL `behind`. Returns the server's URL.
async fn tls(acceptor: TlsAcceptor, behind: String) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("https://localhost:{}", listener.local_addr()?.port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            let behind = behind.clone();
            tokio::spawn(async move {
                stream.set_nodelay(true)?;
                let mut inner = TcpStream::connect(behind.trim_start_matches("http://")).await?;
                inner.set_nodelay(true)?;
                copy_bidirectional(&mut acceptor.accept(stream).await?, &mut inner).await
            });
        }
    });
    Ok(address)
}

/// Runs one function until the measurement's end.
async fn run(
    program: &Path,
    environment: &[(String, String)],
    event: &str,
    until: Until,
    under: &[&str],
) -> Result<()> {
    let lambda = Arc::new(Lambda { event: event.to_owned(), until, reached: Notify::new() });
    let address = serve(lambda.clone()).await?;
    let (first, rest) = under.split_first().map_or((None, &[][..]), |(first, rest)| (Some(*first), rest));
    let mut command = match first {
        None => Command::new(program),
        Some(tool) => {
            let mut command = Command::new(tool);
            command.args(rest).arg(program);
            command
        }
    };
    let mut child = command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("AWS_LAMBDA_FUNCTION_NAME", "measured")
        .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
        .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
        .env("AWS_LAMBDA_RUNTIME_API", address.to_string())
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{}", program.display()))?;
    tokio::select! {
        () = lambda.reached.notified() => {}
        status = child.wait() => bail!("{} ended by itself: {}", program.display(), status?),
        () = env().sleep(Duration::from_secs(120)) => bail!("{} does not come so far", program.display()),
    }
    // Callgrind writes its totals on SIGTERM.
    let process = child.id().context("it runs")?.to_string();
    std::process::Command::new("kill").args(["-TERM", &process]).status()?;
    child.wait().await?;
    Ok(())
}

async fn instructions(program: &Path, environment: &[(String, String)], event: &str, until: Until) -> Result<u64> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let out = directory.path().join("out");
    let log_file = format!("--log-file={}", log.display());
    let out_file = format!("--callgrind-out-file={}", out.display());
    run(program, environment, event, until, &["valgrind", "--tool=callgrind", &log_file, &out_file]).await?;
    let log = std::fs::read_to_string(log)?;
    let total = log.lines().find_map(|line| line.split("Collected :").nth(1)).context("callgrind tells a total")?;
    Ok(total.trim().parse()?)
}

async fn time(program: &Path, environment: &[(String, String)], event: &str, until: Until) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let clock = env();
        run(program, environment, event, until, &[]).await?;
        times.push(clock.monotonic());
    }
    times.sort_unstable();
    times.get(ROUNDS / 2).copied().context("some rounds")
}

fn env() -> Env {
    Env::system()
}

fn millions(count: u64) -> f64 {
    count as f64 / 1e6
}

type StartEnvironment = Vec<(String, String)>;

/// The program that the functions are compared with.
struct Hello {
    size: u64,
    instructions: u64,
    time: Duration,
}

impl Hello {
    async fn measure(program: &Path) -> Result<Self> {
        let size = size_of(program)?;
        let instructions = instructions(program, &[], "{}", Until::Next).await?;
        let time = time(program, &[], "{}", Until::Next).await?;
        println!("times are medians of {ROUNDS}, instructions in millions, ratios to hello's");
        let size_mb = millions(size);
        let init = millions(instructions);
        let ms = time.as_secs_f64() * 1e3;
        println!("hello      {size_mb:.2} MB   init {init:.2} M, {ms:.1} ms");
        Ok(Self { size, instructions, time })
    }
}

struct MeasuredFunction<'a> {
    name: &'a str,
    program: PathBuf,
    event: &'a str,
}

/// The goals that a function missed and the limits that it exceeded.
struct Violations {
    missed: Vec<String>,
    failed: Vec<String>,
}

impl MeasuredFunction<'_> {
    /// Measures a function that reaches no engine, one engine, and both.
    async fn measure(
        &self,
        hello: &Hello,
        [alone, one, both]: [&StartEnvironment; 3],
        allowed: u64,
    ) -> Result<Violations> {
        let Self { name, program, event } = self;
        let size = size_of(program)?;
        let init = instructions(program, alone, event, Until::Next).await?;
        let first_call = instructions(program, one, event, Until::Next).await?;
        let warm = instructions(program, both, event, Until::Next).await?;
        let answer = instructions(program, both, event, Until::Answer).await?;
        let init_time = time(program, alone, event, Until::Next).await?;
        let warm_time = time(program, both, event, Until::Next).await?;
        let answer_time = time(program, both, event, Until::Answer).await?;
        let ratio = init as f64 / hello.instructions as f64;
        let call = first_call.saturating_sub(init);
        let of = |time: Duration| {
            format!("{:.1} ms ({:.1} x)", time.as_secs_f64() * 1e3, time.as_secs_f64() / hello.time.as_secs_f64())
        };
        println!(
            "{name:10} {:.2} MB ({:.1} x)   init {:.2} M ({ratio:.1} x), {}   one TLS call +{:.2} M   \
             both connections {:.2} M, {}   first answer {:.2} M, {}",
            millions(size),
            size as f64 / hello.size as f64,
            millions(init),
            of(init_time),
            millions(call),
            millions(warm),
            of(warm_time),
            millions(answer),
            of(answer_time),
        );
        let unless = |met: bool, what: String| (!met).then(|| format!("{name}: {what}"));
        let too_slow = format!("init takes {ratio:.2} times hello's instructions");
        let too_long = format!("the first TLS call takes {call} instructions");
        let missed = [
            unless(ratio <= INIT_RATIO, format!("{too_slow}, not {INIT_RATIO}")),
            unless(call <= TLS_CALL, format!("{too_long}, more than {TLS_CALL}")),
        ];
        let failed = [
            unless(size <= allowed, format!("{size} bytes, more than {allowed}")),
            unless(ratio <= INIT_RATIO_ALLOWED, too_slow),
            unless(call <= TLS_CALL, too_long),
        ];
        Ok(Violations {
            missed: missed.into_iter().flatten().collect(),
            failed: failed.into_iter().flatten().collect(),
        })
    }
}

fn size_of(program: &Path) -> Result<u64> {
    Ok(std::fs::metadata(program).with_context(|| format!("{}", program.display()))?.len())
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = ColdStartOptions::parse();
    let engines = Engines::start(None).await?;
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let dynamodb = tls(acceptor.clone(), engines.dynamodb_url()).await?;
    let sqs = tls(acceptor, engines.queue_endpoint()).await?;

    let directory = tempfile::tempdir()?;
    let bundle = directory.path().join("roots.pem");
    let sources = directory.path().join("sources.toml");
    std::fs::write(&bundle, certificate.cert.pem())?;
    std::fs::write(&sources, a_shop_s_sources())?;
    let config = engines.config();
    let environment = |dynamodb: &str, sqs: &str| -> StartEnvironment {
        [
            ("AWS_ACCESS_KEY_ID", "local"),
            ("AWS_SECRET_ACCESS_KEY", "local"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL_DYNAMODB", dynamodb),
            ("AWS_ENDPOINT_URL_SQS", sqs),
            ("ENTITIES_TABLE", &config.entities_table),
            ("INBOX_TABLE", &config.inbox_table),
            ("QUEUE_URL", &config.queue_url),
            ("SOURCES", &format!("file:{}", sources.display())),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    };
    const NOBODY: &str = "http://127.0.0.1:1";
    // Without a bundle, the function trusts the same roots as in Lambda.
    let alone = environment(NOBODY, NOBODY);
    let trusting = |dynamodb: &str, sqs: &str| {
        let bundle = ("AWS_CA_BUNDLE".to_owned(), bundle.to_string_lossy().into_owned());
        [environment(dynamodb, sqs).as_slice(), &[bundle]].concat()
    };
    let one = trusting(&dynamodb, NOBODY);
    let both = trusting(&dynamodb, &sqs);

    let parsed = Sources::parse(samples::SOURCES)?;
    let webhook = samples::webhook(SAMPLE, &parsed, env().now())?;
    let wake_up = json!({ "entity": "shopify/order/1" }).to_string();
    let batch =
        json!({ "Records": [{ "messageId": "1", "body": wake_up, "attributes": { "ApproximateReceiveCount": "1" } }] });
    let events = [
        ("ingest", serde_json::to_string(&request(&webhook))?),
        ("worker", batch.to_string()),
        ("scheduler", json!({ "time": "2026-01-01T00:00:00Z" }).to_string()),
    ];

    let hello = Hello::measure(&arguments.binaries.join("hello")).await?;
    let mut missed = Vec::new();
    let mut failed = Vec::new();
    for ((name, event), allowed) in events.iter().zip(LARGEST_ALLOWED) {
        let function = MeasuredFunction { name, program: arguments.binaries.join(name), event };
        let found = function.measure(&hello, [&alone, &one, &both], allowed).await?;
        missed.extend(found.missed);
        failed.extend(found.failed);
    }
    for what in &missed {
        println!("above the goal  {what}");
    }
    for what in &failed {
        println!("FAILED  {what}");
    }
    engines.stop().await?;
    Ok(if failed.is_empty() || arguments.no_gate { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns a document with as many sources as one shop may have, because reading each source takes time.
fn a_shop_s_sources() -> String {
    let of_a_shop = |part: &&str| {
        let table = part.split(']').next().unwrap_or_default();
        let name = table.strip_prefix("sources.").and_then(|rest| rest.split('.').next());
        name.is_none_or(|name| ["shopify", "stripe", "woocommerce", "custom", "warehouse"].contains(&name))
    };
    samples::SOURCES.split("\n[").filter(of_a_shop).collect::<Vec<_>>().join("\n[")
}
