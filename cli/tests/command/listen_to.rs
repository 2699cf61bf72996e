//! `serializer listen --to`: accepted deliveries, posted to the user's own receiver.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Child, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::{
    aws::StackWithLocal,
    endpoint::{self, Post},
    listen::{event as log_event, page},
    running::{LocalProcess, complained, event, file, folder, interrupt, position, printed, ran, serializer},
};

const ORDER: &str = "warehouse/order/450789469";
const SECRET: &str = "whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==";

/// The longest wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run whose source `warehouse` has the given handler.
struct WarehouseRun {
    local: LocalProcess,
    sources: String,
    folder: tempfile::TempDir,
}

impl WarehouseRun {
    fn start(handler: &str) -> Self {
        let folder = folder();
        let document =
            format!("[sources.warehouse]\nprovider = 'standard-webhooks'\nsecrets = ['{SECRET}']\n{handler}\n");
        let sources = file(&folder, "sources.toml", &document).to_str().expect("a path in UTF-8").to_owned();
        Self { local: LocalProcess::start(&["--sources", &sources]), sources, folder }
    }

    /// Sends a delivery with this id and `padding` bytes more than the sample.
    fn send(&self, id: &str, order: &str, padding: usize) {
        let sample = std::fs::read_to_string(event("standard-webhooks-order-shipped.json")).expect("a sample");
        let mut sample: Value = serde_json::from_str(&sample).expect("JSON");
        let body = sample["body"].as_str().expect("a body").replace("450789469", order);
        sample["body"] = body.replacen('{', &format!("{{\"pad\":\"{}\",", noise(padding)), 1).into();
        sample["headers"]["webhook-id"] = id.into();
        let sample = file(&self.folder, "event.json", &sample.to_string());
        let sample = sample.to_str().expect("a path in UTF-8");
        let sent = ran(&["send", "--to", &self.local.url, "--sources", &self.sources, sample]);
        assert!(sent.status.success(), "{sent:?}");
    }

    fn inspected(&self) -> Value {
        serde_json::from_str(&printed(&self.local.ran(&["show", ORDER, "--json"]))).expect("JSON")
    }

    fn listen(&self, arguments: &[&str]) -> Listening {
        Listening::start(serializer(&[&["listen", &self.local.target, "--json"], arguments].concat()))
    }
}

/// Returns text that does not compress to less than half.
fn noise(length: usize) -> String {
    let next = |seed: &mut u64| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from_digit((*seed >> 60) as u32, 16)
    };
    (0..length).scan(7, |seed, _| next(seed)).collect()
}

/// The running command.
struct Listening {
    child: Child,
    lines: Receiver<String>,
    said: Receiver<String>,
}

fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    let mut read = BufReader::new(output).lines().map_while(Result::ok);
    std::thread::spawn(move || read.try_for_each(|line| sender.send(line)));
    lines
}

impl Listening {
    fn start(mut command: std::process::Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it can be started");
        let lines = lines_of(child.stdout.take().expect("it is piped"));
        let said = lines_of(child.stderr.take().expect("it is piped"));
        Self { child, lines, said }
    }

    /// Reads the next line: its word and its JSON object.
    fn next(&mut self) -> (String, Value) {
        let line = self.lines.recv_timeout(PATIENCE).expect("a line");
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        (line["what"].as_str().expect("a word").to_owned(), line)
    }

    fn until_said(&self, text: &str) -> String {
        let mut said = Vec::new();
        loop {
            match self.said.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => said.push(line),
                Err(_) => panic!("it does not say {text}: {said:?}"),
            }
        }
    }

    fn press(&mut self, key: &str) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(key.as_bytes()).expect("it reads");
    }

    fn ended(&mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ok() -> (String, String) {
    ("200 OK".to_owned(), "heard".to_owned())
}

/// Returns the next request to `/mine…`.
fn next_post(posted: &Receiver<Post>) -> Post {
    loop {
        let post = posted.recv_timeout(PATIENCE).expect("it was sent");
        if post.path.starts_with("/mine") {
            return post;
        }
    }
}

fn is_signed(post: &Post, secret: &str) -> bool {
    let folder = folder();
    let body = folder.path().join("body");
    std::fs::write(&body, &post.body).expect("a file can be written");
    let mut verify = vec!["verify", "--provider", "standard-webhooks", "--secret", secret];
    for header in post.headers.iter().filter(|header| header.to_lowercase().starts_with("webhook-")) {
        verify.extend(["-H", header.as_str()]);
    }
    verify.push(body.to_str().expect("a path in UTF-8"));
    ran(&verify).status.success()
}

/// Promise: `listen --to` posts what `forward` would, in each order's sequence, by reads only.
#[test]
fn listen_posts_forwarded_request_again_with_new_signature() {
    // The first body is stored in parts, the second in one row.
    for padding in [900_000, 0] {
        let (url, posted) = endpoint::endpoint(|_, _| ok());
        let forward = format!("forward = {{ url = '{url}/first', secret = '{SECRET}', allow_private = true }}");
        let mut warehouse = WarehouseRun::start(&format!("handler = 'forward'\n{forward}"));
        warehouse.send("1", "450789469", padding);
        warehouse.local.until(|told| told["outcome"] == "applied");
        let first = posted.recv().expect("it was forwarded");
        let before = warehouse.inspected();
        // The first delivery is named by its whole sequence, the second as `show` prints it.
        let sequence = before["settled"][0]["sequence"].as_u64().expect("a sequence");
        let place = if padding > 0 { sequence.to_string() } else { position(sequence) };
        let to = format!("{url}/mine?a=b");
        let mut listening = warehouse.listen(&["--order", ORDER, "--since", &place, "--limit", "1", "--to", &to]);
        let (what, line) = listening.next();
        assert_eq!((what.as_str(), &line["status"], &line["words"]), ("200", &200.into(), &"heard".into()), "{line}");
        listening.until_said(
            "listen signs the deliveries of warehouse with their `forward` secrets, and all others with whsec_",
        );
        assert_eq!(listening.ended(), Some(0));
        assert!(!listening.said.iter().any(|line| line.contains("holds no delivery")), "{place} is found");
        let again = next_post(&posted);
        assert_eq!(again.path, "/mine?a=b");
        assert!(again.body == first.body && again.body.len() > padding, "{} bytes", again.body.len());
        for same in ["webhook-id", "content-type", "serializer-topic", "serializer-sequence", "serializer-attempt"] {
            assert_eq!(again.header(same), first.header(same), "{same}");
        }
        let token = |post: &Post| post.header("serializer-fencing-token").and_then(|token| token.parse::<u64>().ok());
        assert!(token(&again) >= token(&first), "a receiver that remembers tokens takes it");
        assert_eq!((first.header("serializer-listen"), again.header("serializer-listen")), (None, Some("true")));
        assert!(is_signed(&again, SECRET));
        assert_eq!(warehouse.inspected(), before);
        assert!(posted.try_recv().is_err(), "no handler was started");
    }
}

#[test]
fn orders_are_posted_in_parallel_each_order_in_sequence() {
    let warehouse = WarehouseRun::start("handler = 'log'");
    for (id, order) in [("1", "1"), ("2", "1"), ("3", "1"), ("4", "2")] {
        warehouse.send(id, order, 0);
    }
    // The first delivery of order 1 is answered only after the delivery of order 2 has arrived.
    let other = Arc::new((Mutex::new(false), Condvar::new()));
    let open: Arc<Mutex<BTreeMap<String, (u32, u32)>>> = Arc::default();
    let there = other.clone();
    let opened = open.clone();
    let (url, posted) = endpoint::endpoint(move |_, post| {
        let order = post.header("serializer-entity-key").expect("a key").to_owned();
        let count = |by: i32| {
            let mut open = opened.lock().unwrap();
            let (now, most) = open.entry(order.clone()).or_default();
            *now = now.checked_add_signed(by).unwrap();
            *most = (*now).max(*most);
        };
        count(1);
        let mut is_there = there.0.lock().unwrap();
        *is_there |= order.ends_with("/2");
        there.1.notify_all();
        let waited = there.1.wait_timeout_while(is_there, PATIENCE, |is_there| !*is_there).unwrap().1;
        count(-1);
        if waited.timed_out() { ("504 Late".to_owned(), String::new()) } else { ok() }
    });
    let to = format!("{url}/mine");
    let mut listening = warehouse.listen(&["--since", "5m", "--limit", "4", "--to", &to]);
    let lines: Vec<(String, Value)> = (0..4).map(|_| listening.next()).collect();
    assert!(lines.iter().all(|(what, _)| what == "200"), "{lines:?}");
    assert_eq!(listening.ended(), Some(0));
    let posts: Vec<Post> = (0..4).map(|_| next_post(&posted)).collect();
    let its = posts.iter().filter(|post| post.header("serializer-entity-key") == Some("warehouse/order/1"));
    let ids: Vec<_> = its.map(|post| post.header("serializer-delivery-id").unwrap_or_default()).collect();
    assert_eq!(ids, ["1", "2", "3"]);
    assert!(open.lock().unwrap().values().all(|(now, most)| (*now, *most) == (0, 1)), "{open:?}");
}

/// Promise: `listen --to` goes on with a receiver that fails, is slow or is away, and `r` repeats the last.
#[test]
fn failing_answer_is_shown_and_order_continues() {
    let warehouse = WarehouseRun::start("handler = 'log'");
    // The second webhook is the first one, sent again.
    for id in ["1", "1", "2"] {
        warehouse.send(id, "450789469", 0);
    }
    let (url, posted) = endpoint::endpoint(|number, _| match number {
        0 => ("500 No".to_owned(), "no\nstock".to_owned()),
        _ => ok(),
    });
    let to = format!("{url}/mine");
    let mut listening = warehouse.listen(&["--since", "5m", "--limit", "2", "--secret", "--to", &to]);
    listening.press(SECRET);
    listening.child.stdin.take();
    let lines = [listening.next(), listening.next(), listening.next()];
    assert_eq!(lines.each_ref().map(|(what, _)| what.as_str()), ["500", "repeat", "200"]);
    assert_eq!((&lines[0].1["words"], &lines[0].1["posted_again"]), (&"no stock".into(), &false.into()));
    listening.until_said("2 deliveries were posted; 1 got no 2xx");
    assert_eq!(listening.ended(), Some(1));
    let posts = [next_post(&posted), next_post(&posted)];
    assert!(posts.iter().all(|post| is_signed(post, SECRET)));
}

#[test]
fn delivery_waits_until_receiver_is_reachable_again() {
    let warehouse = WarehouseRun::start("handler = 'log'");
    warehouse.send("1", "1", 0);
    warehouse.send("2", "1", 0);
    // Bound but not listening, the socket refuses connections, and nobody else gets its port.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
    let address = socket.local_addr().expect("an address");
    let mut listening = warehouse.listen(&["--since", "5m", "--to", &format!("http://{address}/mine")]);
    listening.until_said("cannot be reached (Connection refused");
    let listener = {
        let _entered = runtime.enter();
        socket.listen(8).and_then(tokio::net::TcpListener::into_std).expect("it listens")
    };
    listener.set_nonblocking(false).expect("it blocks");
    let answers = std::thread::spawn(move || {
        [(); 2].map(|()| {
            let mut stream = BufReader::new(listener.accept().expect("a connection").0);
            let post = Post::read(&mut stream).expect("a request");
            write!(stream.get_mut(), "HTTP/1.1 204 No Content\r\n\r\n").expect("it listens");
            post.header("serializer-delivery-id").map(str::to_owned)
        })
    });
    assert_eq!([listening.next(), listening.next()].map(|(what, _)| what), ["204", "204"]);
    listening.until_said("answers again");
    listening.until_said("2 past deliveries were posted; listen posts further deliveries");
    assert_eq!(answers.join().expect("it answers"), [Some("1".to_owned()), Some("2".to_owned())]);
}

#[test]
fn request_without_answer_is_posted_three_times() {
    let warehouse = WarehouseRun::start("handler = 'log'");
    warehouse.send("1", "1", 0);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = format!("http://{}/mine", listener.local_addr().expect("an address"));
    let closed = std::thread::spawn(move || {
        // Reads the request and closes the connection without an answer.
        [(); 3].map(|()| {
            let post = Post::read(&mut BufReader::new(listener.accept().expect("a connection").0));
            post.expect("a request").header("webhook-id").map(str::to_owned)
        })
    });
    let mut listening = warehouse.listen(&["--since", "5m", "--limit", "1", "--to", &to]);
    let lines = [listening.next(), listening.next(), listening.next()];
    let seen = lines.each_ref().map(|(what, line)| (what.as_str(), line["posted_again"].as_bool()));
    assert_eq!(seen, [("no answer", Some(true)), ("no answer", Some(true)), ("no answer", Some(false))]);
    assert_eq!(listening.ended(), Some(1));
    let ids = closed.join().expect("it reads");
    assert!(ids[0].is_some() && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn answer_after_timeout_counts_as_no_answer() {
    let warehouse = WarehouseRun::start("handler = 'log'");
    warehouse.send("1", "1", 0);
    // The first request is answered after the second.
    let (second, arrived) = channel();
    let second = Mutex::new(second);
    let arrived = Mutex::new(arrived);
    let (url, _posted) = endpoint::endpoint(move |number, _| {
        match number {
            0 => arrived.lock().unwrap().recv_timeout(PATIENCE).expect("there is a second"),
            _ => second.lock().unwrap().send(()).expect("the first waits"),
        }
        ok()
    });
    let to = format!("{url}/mine");
    let mut listening = warehouse.listen(&["--since", "5m", "--limit", "1", "--timeout", "1", "--to", &to]);
    assert_eq!(listening.next().0, "no answer");
    // On a slow machine, the answer to the second request may be late too.
    let second = listening.next().0;
    let answered = if second == "no answer" { listening.next().0 } else { second };
    assert_eq!((answered.as_str(), listening.ended()), ("200", Some(0)));
}

#[test]
fn pressing_r_posts_last_delivery_again() {
    let warehouse = WarehouseRun::start("handler = 'log'");
    let (url, posted) = endpoint::endpoint(|_, _| ok());
    let mut listening = warehouse.listen(&["--since", "5m", "--to", &format!("{url}/mine")]);
    let signed = listening.until_said("listen signs with whsec_");
    let secret = signed.split(' ').next_back().expect("a secret");
    listening.until_said("0 past deliveries were posted");
    listening.press("r\n");
    listening.until_said("no delivery has been posted yet");
    warehouse.send("1", "1", 0);
    let (what, first) = listening.next();
    listening.press("r\n");
    let (again, second) = listening.next();
    assert_eq!((what.as_str(), again.as_str(), &first["sequence"]), ("200", "200", &second["sequence"]));
    let posts = [next_post(&posted), next_post(&posted)];
    assert!(posts.iter().all(|post| is_signed(post, secret)), "{signed}");
    assert_eq!(posts[0].header("webhook-id"), posts[1].header("webhook-id"));
    interrupt(&listening.child);
    assert_eq!(listening.ended(), Some(0));
    listening.until_said("2 deliveries were posted; 0 got no 2xx");
}

/// Promise: bodies are posted to another machine only when agreed.
#[test]
fn posting_to_another_machine_requires_yes_option() {
    // Nothing serves at port 1.
    let listen =
        |arguments: &[&str]| complained(&ran(&[&["listen", "--local=http://127.0.0.1:1", "--to"], arguments].concat()));
    let asked = listen(&["http://192.0.2.1:3000/hooks"]);
    assert!(asked.contains("192.0.2.1 is not this machine") && asked.contains("add --yes"), "{asked}");
    for agreed in [&["http://192.0.2.1:3000/hooks", "--yes"] as &[&str], &["http://localhost:3000"]] {
        assert!(listen(agreed).contains("no `serializer local` answers"), "{agreed:?}");
    }
    assert!(listen(&["localhost"]).contains("--to: the URL must be a whole URL, such as https://"));
    let sequence = listen(&["http://localhost:3000", "--since", "41"]);
    assert!(sequence.contains("--since with a delivery's position needs --order and --to"), "{sequence}");
    let neither = complained(&ran(&["listen", "--local", "--since", "soon"]));
    assert!(neither.contains("such as 30m or 2h") && neither.contains("position, such as 7011"), "{neither}");
}

#[test]
fn missing_delivery_named_by_since_option_is_reported() {
    let warehouse = WarehouseRun::start("handler = 'log'");
    warehouse.send("1", "450789469", 0);
    let (url, _posted) = endpoint::endpoint(|_, _| ok());
    for (since, shown, posted) in
        [("10007", "#0007", "1 past delivery was posted"), ("9999999999999", "#9999", "0 past deliveries were posted")]
    {
        let listening = warehouse.listen(&["--order", ORDER, "--since", since, "--to", &url]);
        listening.until_said(&format!("{ORDER} has no delivery {shown}; `serializer show "));
        listening.until_said(posted);
    }
}

/// Starts a proxy in front of a DynamoDB. Returns its URL and a channel with the requests.
fn recorded(upstream: &str) -> (String, Receiver<Post>) {
    let address = upstream.strip_prefix("http://").expect("an address").trim_end_matches('/').to_owned();
    endpoint::endpoint(move |_, post| {
        let mut stream = BufReader::new(TcpStream::connect(&address).expect("it listens"));
        let head = format!("POST {} HTTP/1.1\r\n{}\r\n\r\n", post.path, post.headers.join("\r\n"));
        stream.get_mut().write_all(&[head.as_bytes(), &post.body].concat()).expect("it reads");
        // `Post` parses the answer's status as its path: both are the second word of the first line.
        let answer = Post::read(&mut stream).expect("an answer");
        (format!("{} .", answer.path), String::from_utf8(answer.body).expect("JSON"))
    })
}

#[test]
fn listen_to_stack_posts_in_sequence_and_writes_nothing() {
    const SHOPIFY: &str = "shopify/order/450789469";
    let stack = StackWithLocal::start();
    for sample in ["shopify-orders-create.json", "shopify-refunds-create.json", "shopify-orders-paid.json"] {
        assert!(stack.local.send(&[sample]).status.success());
    }
    assert!(stack.local.send(&["woocommerce-order-created.json"]).status.success());
    let last = |order: &str| {
        let shown = stack.local.ran(&["show", order, "--json"]);
        let shown: Value = serde_json::from_str(&printed(&shown)).expect("JSON");
        shown["state"]["tail"].as_u64().expect("a number")
    };
    let order = SHOPIFY;
    let third = last(SHOPIFY);
    let line = |id: &str, order: &str, sequence: u64| {
        let fields = json!({ "level": "INFO", "message": "accepted", "entity": order, "sequence": sequence,
            "source": "any", "topic": "any" });
        log_event(id, 1, &fields)
    };
    let other = "woocommerce/order/727";
    // The log line of the order's last delivery comes first.
    let pages = [
        page(&[line("c", order, third)], None),
        page(&[], None),
        page(&[line("a", order, third - 2), line("b", order, third - 1)], None),
        page(&[line("d", other, last(other))], None),
        page(&[], None),
    ];
    stack.aws.answer_in_turn("Logs_20140328.FilterLogEvents", &pages);
    stack.aws.deny("AmazonSSM.GetParameter");
    let (dynamodb, operations) = recorded(&stack.dynamodb);
    let (url, posted) = endpoint::endpoint(|_, _| ok());
    let to = format!("{url}/mine");
    let arguments = ["listen", "--stack", "shop", "--region", "eu-central-1", "--json", "--since", "5m", "--to", &to];
    let arguments = [&arguments[..], &["--topic", "order*", "--limit", "3"]].concat();
    let mut listening = Listening::start(stack.aws.command(&dynamodb, &arguments));
    let lines = [listening.next(), listening.next(), listening.next()];
    assert!(listening.until_said("it cannot read the sources' own secrets").contains("ssm:GetParameter"));
    assert_eq!(listening.ended(), Some(0));
    let posts = [next_post(&posted), next_post(&posted), next_post(&posted)];
    let (its, others): (Vec<_>, Vec<_>) =
        posts.iter().partition(|post| post.header("serializer-entity-key") == Some(order));
    let topics = |posts: &[&Post]| -> Vec<String> {
        posts.iter().filter_map(|post| post.header("serializer-topic").map(str::to_owned)).collect()
    };
    assert_eq!(
        (topics(&its), topics(&others)),
        (vec!["orders/create".into(), "orders/paid".into()], vec!["order.created".into()])
    );
    assert!(listening.lines.recv_timeout(PATIENCE).is_err(), "{lines:?}");
    let operations: BTreeSet<_> = operations
        .try_iter()
        .filter_map(|post| post.header("x-amz-target")?.split('.').next_back().map(str::to_owned))
        .collect();
    assert_eq!(operations, ["BatchGetItem", "GetItem"].map(str::to_owned).into());
}
