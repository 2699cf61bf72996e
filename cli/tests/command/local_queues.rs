//! `serializer local` and `send` with sources whose events come by a queue.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use aws_sdk_sqs::{
    Client,
    error::ProvideErrorMetadata,
    types::{MessageAttributeValue, QueueAttributeName},
};
use serde_json::{Value, json};
use serializer::local::{
    queue::{QueueSettings, Queues, Receive, clock::ManualClock},
    samples::SOURCES,
};
use webhook_serializer::{aws::Account, protocol::entity::EntityKey};

use crate::{
    endpoint::endpoint,
    running::{LocalProcess, complained, event, file, folder, printed, ran, serializer},
};

const ORDERS: &str = "
[sources.orders]
provider = 'generic'
queue = 'arn:aws:sqs:eu-central-1:123456789012:orders.fifo'
handler = 'log'
generic = { topic = 'x-topic', entity_kind = 'order', entity = '/order' }
";

struct OrdersQueue {
    local: LocalProcess,
    sqs: Client,
    url: String,
    folder: tempfile::TempDir,
}

impl OrdersQueue {
    /// Starts a run with a FIFO queue, and reaches the queue as its senders do.
    fn start() -> Self {
        let folder = folder();
        let sources = file(&folder, "sources.toml", ORDERS);
        let local = LocalProcess::start(&["--sources", sources.to_str().unwrap()]);
        let account = Account::local("", local.queue.clone());
        let sqs = account.sqs(&account.http_client());
        let url = format!("{}/eu-central-1/123456789012/orders.fifo", local.queue);
        Self { local, sqs, url, folder }
    }

    async fn send(&self, id: &str, order: &str) -> Result<String, String> {
        let topic = MessageAttributeValue::builder().data_type("String").string_value(format!("order.{id}"));
        let send = self
            .sqs
            .send_message()
            .queue_url(&self.url)
            .message_body(json!({ "order": order }).to_string())
            .message_attributes("x-topic", topic.build().expect("it is complete"))
            .message_group_id(order)
            .message_deduplication_id(id);
        let sent = send.send().await.map_err(|error| error.code().unwrap_or_default().to_owned())?;
        Ok(sent.message_id.expect("each message has one"))
    }

    /// Returns the numbers of visible messages, and of those that were received and not deleted.
    async fn counts(&self) -> [String; 2] {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let asked = self.sqs.get_queue_attributes().queue_url(&self.url).attribute_names(QueueAttributeName::All);
        let mut attributes = asked.send().await.expect("answered").attributes.expect("attributes");
        names.map(|name| attributes.remove(&name).expect("a count"))
    }

    /// Returns the topics of the order's first `count` settled deliveries.
    fn settled(&mut self, order: &str, count: usize) -> Vec<String> {
        let entity = format!("orders/order/{order}");
        let delivered = |_| {
            let settled = self.local.until(|told| told["what"] == "settled" && told["entity"] == entity.as_str());
            assert_eq!(settled["outcome"], "applied", "{settled}");
            settled["delivery"].as_str().expect("a name").to_owned()
        };
        (0..count).map(delivered).collect()
    }
}

/// Promise: `local` hands the messages of a source's queue to ingest in the order of a FIFO queue's group, and deletes
/// those that are stored.
#[tokio::test]
async fn local_run_applies_messages_of_fifo_queue_in_order() {
    let mut queue = OrdersQueue::start();
    let mut ids = Vec::new();
    for n in 0..25 {
        ids.push(queue.send(&format!("e{n}"), "7").await.expect("sent"));
    }
    let topics: Vec<String> = (0..25).map(|n| format!("order.e{n}")).collect();
    assert_eq!(queue.settled("7", 25), topics);
    // Messages of one group come one batch after the other, so the others are deleted before the last is received.
    assert_eq!(queue.send("e24", "7").await, Ok(ids.pop().expect("the last one's")), "it is a repeat");
    queue.send("e25", "8").await.expect("sent");
    assert_eq!(queue.settled("8", 1), ["order.e25"]);
}

/// Promise: a message that ingest does not store stays in the local queue, and `local` says why.
#[tokio::test]
async fn message_without_source_stays_in_local_queue() {
    let mut queue = OrdersQueue::start();
    let arn = "arn:aws:sqs:eu-central-1:123456789012:orders.fifo";
    file(&queue.folder, "sources.toml", &ORDERS.replace("orders.fifo", "other.fifo"));
    queue.local.until(|told| told["what"] == "sources changed");
    queue.send("e1", "7").await.expect("sent");
    let refused = queue.local.until(|told| told["what"] == "refused");
    assert_eq!(refused["why"], "no source for the queue");
    let reason = refused["reason"].as_str().unwrap();
    assert!(reason.contains(&format!("no source has queue = \"{arn}\"")) && reason.contains("other.fifo"), "{reason}");
    assert_eq!(queue.counts().await, ["0", "1"]);
    // The queue of the source that was added is fed, too.
    queue.url = queue.url.replace("orders.fifo", "other.fifo");
    while queue.send("e2", "8").await == Err("AWS.SimpleQueueService.NonExistentQueue".to_owned()) {}
    assert_eq!(queue.settled("8", 1), ["order.e2"]);
}

/// Promise: `send` puts the samples of `events/queues/` into the local queues of their sources, and each is applied.
#[test]
fn samples_of_queues_are_sent_and_applied() {
    let document = event("queues/sources.toml");
    let mut local = LocalProcess::start(&["--sources", &document]);
    let mut samples: Vec<String> = std::fs::read_dir(event("queues"))
        .expect("it is there")
        .map(|entry| entry.expect("it can be read").path().to_str().expect("a path in UTF-8").to_owned())
        .filter(|path| path.ends_with(".json"))
        .collect();
    samples.sort();
    let sent = ["send", "--to", &local.url, "--sources", &document, "--json"];
    let sent = ran(&[&sent[..], &samples.iter().map(String::as_str).collect::<Vec<_>>()].concat());
    assert!(sent.status.success(), "{sent:?}");
    let told: Vec<Value> = printed(&sent).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(told.len(), samples.len());
    let mut orders: Vec<&str> = told.iter().map(|told| told["entity"].as_str().expect("an order")).collect();
    orders.sort_unstable();
    let mut applied: Vec<String> = samples
        .iter()
        .map(|_| {
            let settled = local.until(|told| told["what"] == "settled");
            settled["entity"].as_str().expect("an order").to_owned()
        })
        .collect();
    applied.sort_unstable();
    assert_eq!(applied, orders);
    assert!(orders.contains(&"amazon-sp-api/order/903-8868176-2219830"), "{orders:?}");
}

/// Promise: `local` prints the URL of each source's queue, and a `send` line that works.
#[test]
fn greeting_names_queues_and_a_send_line_that_succeeds() {
    let folder = folder();
    let amazon = "[sources.a]\nprovider = 'amazon-sp-api'\nhandler = 'log'\n";
    for (name, text, provider) in [
        ("standard.toml", format!("{amazon}queue = 'arn:aws:sqs:eu-west-1:123456789012:a'\n"), Some("amazon-sp-api")),
        ("fifo.toml", format!("{amazon}queue = 'arn:aws:sqs:eu-west-1:123456789012:a.fifo'\n"), Some("amazon-sp-api")),
        ("generic.toml", ORDERS.to_owned(), None),
    ] {
        let path = file(&folder, name, &text);
        let options = ["local", "--port", "0", "--console-port", "0", "--sources", path.to_str().unwrap()];
        let mut local = serializer(&options).stdout(Stdio::piped()).spawn().expect("it can be started");
        // The run ends if nobody reads what it prints.
        let mut lines = BufReader::new(local.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let greeting: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("Ctrl-C stops")).collect();
        let is_queue = |line: &&String| line.contains("/123456789012/") && line.contains(" is the queue of ");
        assert_eq!(greeting.iter().filter(is_queue).count(), 1, "{name}: {greeting:?}");
        let line = greeting.iter().find(|line| line.contains(" send "));
        match provider {
            Some(provider) => {
                let line = line.unwrap_or_else(|| panic!("{name}: {greeting:?}"));
                assert!(line.ends_with(&format!("--provider {provider}")), "{name}: {line}");
                let typed: Vec<&str> = line.split(' ').skip_while(|word| *word != "send").collect();
                let sent = ran(&typed);
                assert!(sent.status.success(), "{name}: {sent:?}");
                lines.find(|line| line.contains(" applied")).expect("it applies one");
            }
            None => assert!(
                line.is_none() && greeting.join("\n").contains("events/ has none for these queues"),
                "{greeting:?}"
            ),
        }
        local.kill().expect("it runs");
        local.wait().expect("it has ended");
    }
}

/// Promise: `local` prints the queue's URL of a source that is added while it runs. `--queue-port` sets the queues' port.
#[test]
fn queue_of_an_added_source_is_printed_with_the_chosen_port() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it has an address").port();
    let folder = folder();
    let document = file(&folder, "sources.toml", SOURCES);
    let options = ["--sources", document.to_str().expect("a path in UTF-8"), "--queue-port", &port.to_string()];
    let mut local = LocalProcess::start(&options);
    file(&folder, "sources.toml", &format!("{SOURCES}{ORDERS}"));
    let added = local.until(|told| told["what"] == "queue added");
    let url = format!("http://127.0.0.1:{port}/eu-central-1/123456789012/orders.fifo");
    assert_eq!((&added["source"], &added["url"]), (&json!("orders"), &json!(url)));
    let taken = ran(&["local", "--port", "0", "--console-port", "0", "--queue-port", &port.to_string()]);
    let expected = format!("port {port} is taken; choose another with --queue-port");
    assert!(complained(&taken).contains(&expected), "{taken:?}");
    let same = complained(&ran(&["local", "--queue-port", "9000"]));
    assert!(same.contains("--port and --queue-port both name port 9000"), "{same}");
    let same = complained(&ran(&["local", "--queue-port", "9007", "--console-port", "9007"]));
    assert!(same.contains("--console-port and --queue-port both name port 9007"), "{same}");
}

/// A shell that is set up for a stack has the variables.
#[test]
fn variables_of_a_stack_do_not_keep_the_demonstration_from_starting() {
    let mut demo = serializer(&["local", "--demo", "--act", "repeats", "--plain"]);
    demo.envs([("FAIR_QUEUE", "false"), ("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:1")]);
    let played = demo.output().expect("it can be started");
    assert!(played.status.success(), "{played:?}");
}

/// Promise: `local --fair-queue` sends wake-ups with their account's group, and so do functions and commands that it gives
/// its variables.
#[tokio::test]
async fn wake_ups_of_local_run_have_a_group_with_fair_queue() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it has an address");
    let forward = format!(
        "handler = \"forward\"\nforward = {{ url = \"http://{closed}\", secret = \"whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==\", allow_private = true }}"
    );
    let order = EntityKey::parse("shopify/order/450789469").expect("a key");
    for (option, group) in [(None, None), (Some("--fair-queue"), Some(order.account_hash()))] {
        let folder = folder();
        let sources = file(&folder, "sources.toml", &SOURCES.replacen("handler = \"log\"", &forward, 1));
        let data = folder.path().join("data");
        let [sources, data] = [&sources, &data].map(|path| path.to_str().expect("a path in UTF-8"));
        let options = ["--sources", sources, "--data", data].into_iter().chain(option);
        let mut local = LocalProcess::start(&options.collect::<Vec<_>>());
        assert!(local.send(&["shopify-orders-create.json"]).status.success());
        local.until(|told| told["what"] == "failed");
        // The wake-up of the retry, and that of the command.
        assert!(local.ran(&["hold", order.as_str(), "--why", "a test"]).status.success());
        assert!(local.ran(&["resume", order.as_str(), "--why", "a test"]).status.success());
        drop(local);
        let clock = Arc::new(ManualClock::starting_at(Duration::from_secs(4_000_000_000)));
        let queue = Path::new(data).join("queue.sqlite");
        let queues = Queues::open(&queue, [QueueSettings::named("wake-ups")]).expect("it is free").with_clock(clock);
        let all = Receive { max_messages: 100, visibility_timeout: None, wait: Duration::ZERO };
        let groups: Vec<_> =
            queues.receive("wake-ups", all).await.expect("received").into_iter().map(|message| message.group).collect();
        assert!(!groups.is_empty() && groups.iter().all(|found| *found == group), "{option:?}: {groups:?}");
    }
}

/// Promise: with `--no-functions`, the messages of the sources' queues are sent to the URL that invokes your functions.
#[test]
fn messages_invoke_ingest_that_runs_elsewhere() {
    let (invoked, posts) = endpoint(|_, _| ("200 OK".to_owned(), r#"{"batchItemFailures":[]}"#.to_owned()));
    let document = event("queues/sources.toml");
    let options = ["local", "--no-functions", "--port", "0", "--invoke", &invoked, "--sources", &document];
    let mut local = serializer(&options).stdout(Stdio::piped()).spawn().expect("it can be started");
    let mut lines = BufReader::new(local.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let queue = lines.find_map(|line| line.strip_suffix(" is the queue of shopify").map(|url| url.trim().to_owned()));
    lines.find(|line| line.starts_with("Ctrl-C stops")).expect("it serves");
    let send = async {
        let endpoint = queue.as_deref().and_then(|url| url.strip_suffix("/us-east-1/123456789012/shopify"));
        let account = Account::local("", endpoint.expect("the queue's URL"));
        let send = account.sqs(&account.http_client()).send_message();
        send.set_queue_url(queue.clone()).message_body("{}").send().await.expect("sent");
    };
    tokio::runtime::Runtime::new().expect("a runtime").block_on(send);
    let posted = posts.iter().find(|post| post.path.ends_with("/functions/ingest/invocations")).expect("an event");
    let posted: Value = serde_json::from_slice(&posted.body).expect("JSON");
    let record = &posted["Records"][0];
    assert_eq!(record["eventSourceARN"], "arn:aws:sqs:us-east-1:123456789012:shopify");
    assert_eq!((&record["body"], posted["Records"].as_array().map(Vec::len)), (&json!("{}"), Some(1)));
    local.kill().expect("it runs");
    local.wait().expect("it has ended");
}

#[test]
fn message_that_cannot_be_sent_is_explained() {
    let local = LocalProcess::start(&[]);
    let sample = event("queues/amazon-sp-api-order-change.json");
    let document = event("queues/sources.toml");
    let sent = |options: &[&str]| {
        let sent = ran(&[&["send", "--to", &local.url], options].concat());
        assert_eq!(sent.status.code(), Some(1), "{sent:?}");
        complained(&sent)
    };
    for (options, expected) in [
        (&[sample.as_str()][..], "name the document that has it with --sources FILE"),
        (&[&sample, "--sources", &document], "start it with the same --sources FILE"),
        (&[&sample, "--sources", &document, "--curl"], "--curl prints webhooks only"),
        (&["--provider", "amazon-sp-api"], "name a document that has one with --sources FILE"),
    ] {
        let complaint = sent(options);
        assert!(complaint.contains(expected), "{options:?}: {complaint}");
    }
}
