//! Orders in trouble, as `status`, `list` and `show` describe them.

use std::{
    io::{BufRead, BufReader, Read, Write as _},
    net::TcpListener,
    process::Output,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use aws_sdk_dynamodb::types::{DeleteGlobalSecondaryIndexAction, GlobalSecondaryIndexUpdate};
use serde_json::Value;
use serializer::view::order_status::Kind;
use webhook_serializer::{
    aws::{Account, Parts},
    config::StoreConfig,
    protocol::{
        entity::EntityKey,
        format::{FORMAT, attribute as a},
        keys::entity_row,
        table::{Row, Write},
    },
    time::Env,
};

use crate::{
    console,
    running::{LocalProcess, coloured, complained, event, file, folder, position, printed, ran, serializer},
};

/// The first source parks at once, the second blocks at once, the third retries after an hour.
const SOURCES: &str = r#"
[sources.shopify]
provider = "shopify"
secrets = ["shopify-development-secret"]
handler = "forward"
forward = { url = "http://ENDPOINT/shop", secret = "whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==", allow_private = true }
retry = { attempts = 1 }

[sources.warehouse]
provider = "standard-webhooks"
secrets = ["whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA=="]
handler = "forward"
forward = { url = "http://ENDPOINT", secret = "whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==", allow_private = true }
on_failure = "block"
retry = { attempts = 1 }

[sources.stripe]
provider = "stripe"
secrets = ["whsec_stripe-development-secret"]
handler = "forward"
forward = { url = "http://ENDPOINT", secret = "whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==", allow_private = true }
retry = { attempts = 8, first = "1h", longest = "2h" }
"#;

pub const BLOCKED: &str = "warehouse/order/450789469";
pub const PARKED: &str = "shopify/order/450789469";

/// Returns the address of an endpoint. It answers 200 to requests to `/shop` with a price, and 500 to all
/// others until it is mended.
fn endpoint(is_mended: &'static AtomicBool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let mut head = String::new();
            let mut body = Vec::new();
            while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
            let head = head.to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            // Unread bytes would reset the connection before the answer is read.
            let _ = reader.take(length.unwrap_or(0)).read_to_end(&mut body);
            let is_fine = is_mended.load(Relaxed)
                || head.starts_with("post /shop ") && String::from_utf8_lossy(&body).contains("total_price");
            let status = if is_fine { "200 OK" } else { "500 Internal Server Error" };
            let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    address
}

/// A deployment whose orders are in trouble.
pub struct Trouble {
    pub local: LocalProcess,
    pub folder: tempfile::TempDir,
    pub is_mended: &'static AtomicBool,
}

impl Trouble {
    pub fn start() -> Self {
        let folder = folder();
        let is_mended: &AtomicBool = Box::leak(Box::default());
        let sources = file(&folder, "sources.toml", &SOURCES.replace("ENDPOINT", &endpoint(is_mended)));
        let environment = folder.path().join("environment");
        let options = ["--sources", sources.to_str().unwrap(), "--env-file", environment.to_str().unwrap()];
        Self { local: LocalProcess::start(&options), folder, is_mended }
    }

    /// Posts a changed sample and waits for the event `what`.
    pub fn send(&mut self, sample: &str, change: impl Fn(String) -> String, what: &str) {
        let text = change(std::fs::read_to_string(event(sample)).expect("there is such a sample"));
        let sample = file(&self.folder, "event.json", &text);
        let sources = self.folder.path().join("sources.toml");
        let sample = sample.to_str().unwrap();
        let sources = sources.to_str().unwrap();
        let sent = ran(&["send", "--to", &self.local.url, "--sources", sources, sample]);
        assert!(sent.status.success(), "{sent:?}");
        self.local.until(|told| told["what"] == what || told["outcome"] == what);
    }

    pub fn park(&mut self, order: &str, id: &str) {
        let broken =
            |text: String| text.replace("total_price", "no_price").replace("450789469", order).replace("15e8d2f1", id);
        self.send("shopify-orders-create.json", broken, "parked");
    }

    pub fn block(&mut self) {
        self.send("standard-webhooks-order-shipped.json", |text| text, "blocked");
    }

    pub fn fail(&mut self) {
        self.send("stripe-charge-refunded.json", |text| text, "failed");
    }

    pub fn ran(&self, command: &[&str]) -> Output {
        self.local.ran(command)
    }

    pub fn json(&self, command: &[&str]) -> Value {
        let done = self.ran(&[command, &["--json"]].concat());
        serde_json::from_str(&printed(&done)).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }

    pub fn said(&self, command: &[&str]) -> String {
        let done = self.ran(command);
        assert!(done.status.success(), "{done:?}");
        printed(&done)
    }

    /// Writes rows to the run's tables.
    pub fn write(&self, writes: impl Iterator<Item = Write>) {
        // The run is not complete when it says that it serves. It is once it answers a command.
        self.said(&["status"]);
        let environment = self.environment();
        let named = |name: &str| environment.iter().find(|(named, _)| named == name).expect(name).1.clone();
        let config = StoreConfig {
            entities_table: named("ENTITIES_TABLE"),
            inbox_table: named("INBOX_TABLE"),
            queue_url: named("QUEUE_URL"),
            fair_queue: false,
            retention: Duration::from_secs(86_400),
            parked_retention: None,
        };
        let account = Account::local(named("AWS_ENDPOINT_URL_DYNAMODB"), named("AWS_ENDPOINT_URL_SQS"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let table = Parts::connect(&account, &config, &Env::system(), None).store.table().clone();
            for write in writes {
                table.write(&write).await.expect("it is written");
            }
        });
    }

    /// Removes an index, as a table of an earlier release has none.
    pub fn remove_index(&self, table: &str, index: &str) {
        let url = self.variable("AWS_ENDPOINT_URL_DYNAMODB");
        let client = Account::local(url.clone(), url);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = client.dynamodb(&client.http_client());
            let delete = DeleteGlobalSecondaryIndexAction::builder().index_name(index).build().unwrap();
            let update = GlobalSecondaryIndexUpdate::builder().delete(delete).build();
            client.update_table().table_name(table).global_secondary_index_updates(update).send().await.unwrap();
        });
    }

    pub fn console(&self) -> std::process::Command {
        serializer(&["console", "--json", self.local.target.as_str()])
    }

    fn variable(&self, name: &str) -> String {
        self.environment().into_iter().find(|(each, _)| each == name).expect("it is named").1
    }

    /// Reads the deployment's environment file.
    pub fn environment(&self) -> Vec<(String, String)> {
        let text = std::fs::read_to_string(self.folder.path().join("environment")).expect("it is written");
        let lines = text.lines().filter_map(|line| line.split_once('='));
        lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

/// Promise: `status` groups by source and error, despite unreadable rows, and estimates lag.
#[test]
fn status_shows_next_command_for_each_group_of_orders() {
    let mut trouble = Trouble::start();
    let nothing = trouble.said(&["status"]);
    assert_eq!(nothing, "0 orders: 0 wait, 0 are failing, 0 are blocked. Nothing is parked.\n");
    trouble.park("450789469", "1");
    trouble.park("450789469", "2");
    let shown = printed(&trouble.local.ran(&["show", PARKED, "--settled", "1"]));
    assert!(!shown.contains("Older deliveries are not shown"), "all are listed as parked: {shown}");
    trouble.park("450789470", "3");
    trouble.block();
    trouble.fail();
    let status = trouble.json(&["status"]);
    let counted = ["orders", "waiting", "failing", "blocked", "parked"].map(|name| status[name].as_u64().unwrap());
    assert_eq!(counted, [4, 0, 1, 1, 3], "{status}");
    let groups: Vec<_> = status["groups"].as_array().unwrap().iter().collect();
    let told: Vec<String> = groups
        .iter()
        .map(|group| format!("{} {} {} {}", group["state"], group["source"], group["orders"], group["deliveries"]))
        .collect();
    let expected = [r#""blocked" "warehouse" 1 1"#, r#""parked" "shopify" 2 3"#, r#""failing" "stripe" 1 1"#];
    assert_eq!(told, expected, "{status}");
    assert_eq!(groups[1]["entity"], PARKED, "the oldest");

    let shown = trouble.said(&["status"]);
    assert!(shown.starts_with("4 orders: 0 wait, 1 is failing, 1 is blocked. 3 deliveries of 2 orders are parked.\n"));
    let error = groups[1]["error"].as_str().unwrap();
    let redrive = format!("serializer redrive {} --source shopify --error ", trouble.local.target);
    assert!(shown.contains(&redrive) && shown.contains(error), "{shown}");
    let show = format!("serializer show {} {BLOCKED}", trouble.local.target);
    assert!(shown.contains(&show), "{shown}");
    let without = trouble.said(&["status", "--no-parked"]);
    assert!(without.contains("Parked deliveries were not read.") && without.contains("warehouse"), "{without}");
}

#[test]
fn status_shows_recent_throughput_and_lag() {
    let mut trouble = Trouble::start();
    trouble.park("450789469", "1");
    trouble.park("450789469", "2");
    trouble.fail();
    let status = trouble.json(&["status"]);
    let minutes = &status["last_minutes"];
    assert_eq!((&minutes["settled"], &minutes["is_at_least"]), (&2.into(), &false.into()), "{status}");
    let sources = minutes["sources"].as_array().expect("they are told");
    let told = |name: &str| {
        let source = sources.iter().find(|source| source["source"] == name).expect(name);
        ["accepted", "settled", "waiting"].map(|what| source[what].as_u64().expect(what))
    };
    assert_eq!((told("shopify"), told("stripe")), ([2, 2, 0], [1, 0, 1]), "{status}");
    assert!(sources[0]["lag_longest_ms"].as_u64() >= sources[0]["lag_median_ms"].as_u64(), "{status}");
    assert!(sources[0]["lag_median_ms"].is_u64() && sources[1]["oldest_waiting"].is_u64(), "{status}");
    let shown = trouble.said(&["status"]);
    assert!(shown.contains("median lag") && shown.contains("the last 5 min (an estimate)"), "{shown}");
    let without = trouble.said(&["status", "--no-parked"]);
    assert!(without.contains("In the last 5 min 2 deliveries were settled. With --no-parked, lag"), "{without}");
}

#[test]
fn list_filters_and_sorts_orders_and_shows_reasons() {
    let mut trouble = Trouble::start();
    trouble.block();
    trouble.park("450789469", "1");
    trouble.fail();
    let listed = |options: &[&str]| -> Vec<String> {
        let done = printed(&trouble.ran(&[&["list", "--json"], options].concat()));
        let lines = done.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| format!("{} {}", line["state"].as_str().unwrap(), line["source"].as_str().unwrap())).collect()
    };
    assert_eq!(listed(&[]), ["failing stripe", "parked shopify", "blocked warehouse"]);
    assert_eq!(listed(&["--since", "1h"]), ["blocked warehouse", "parked shopify", "failing stripe"]);
    assert_eq!(listed(&["--since", "1h", "--limit", "1"]), ["blocked warehouse"]);
    assert_eq!(listed(&["--since", "2099-01-01T00:00:00Z"]), [""; 0]);
    assert_eq!(listed(&["--failing", "--blocked"]), ["blocked warehouse", "failing stripe"]);
    assert_eq!(listed(&["--waiting"]), [""; 0]);
    assert_eq!(listed(&["--blocked"]), ["blocked warehouse"]);
    assert_eq!(listed(&["--parked"]), ["parked shopify"]);
    // Only the parked deliveries were read.
    assert!(printed(&trouble.ran(&["list", "--parked", "--json"])).contains(r#""waiting":null"#));
    assert_eq!(listed(&["--source", "stripe"]), ["failing stripe"]);
    assert_eq!(listed(&["--blocked", "--source", "stripe"]), [""; 0]);
    assert_eq!(listed(&["--error", "500"]), ["blocked warehouse", "parked shopify", "failing stripe"]);
    let shown = trouble.said(&["list", "--since", "1h"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].contains("order.shipped "), "{shown}");
    assert!(lines[1].contains(&format!("serializer show {} {BLOCKED} ", trouble.local.target)), "{shown}");
    assert!(lines[2].contains("1 delivery is parked: "), "{shown}");
    let column = lines[0].find("why").unwrap();
    assert_eq!(lines[2].find("1 delivery is parked"), Some(column), "{shown}");
    assert!(lines[3].contains("The next attempt starts in "), "{shown}");
    assert_eq!(trouble.said(&["list", "--error", "nothing like it"]), "no order matches\n");
    for command in [&["list"][..], &["status"]] {
        assert!(!trouble.said(command).contains('\u{1b}'), "{command:?}");
        let shown = trouble.local.coloured(command);
        for kind in [Kind::Blocked, Kind::Parked, Kind::Failing] {
            assert!(shown.contains(&format!("{} ", coloured(kind))), "{kind:?}: {shown:?}");
        }
    }
}

pub fn parked(trouble: &Trouble) -> Vec<(String, u64)> {
    let lines = printed(&trouble.ran(&["list", "--parked", "--json"]));
    let orders = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let parked = orders.flat_map(|order| order["parked"].as_array().unwrap().clone());
    let mut parked: Vec<(String, u64)> =
        parked.map(|one| (one["entity"].as_str().unwrap().to_owned(), one["sequence"].as_u64().unwrap())).collect();
    parked.sort();
    parked
}

#[test]
fn show_hides_personal_data_and_keeps_numbers() {
    let mut trouble = Trouble::start();
    trouble.park("450789469", "1");
    let (_, first) = parked(&trouble)[0];
    let first = first.to_string();
    let hidden = trouble.said(&["show", PARKED, &first]);
    assert!(hidden.contains("  parked\nIt was parked ") && hidden.contains("orders/create"), "{hidden}");
    let typed = position(first.parse().unwrap()).trim_start_matches('#').to_owned();
    let discard = format!("serializer discard {} {PARKED} {typed} --why TEXT", trouble.local.target);
    assert!(hidden.contains(&discard) && hidden.contains("hidden: /"), "{hidden}");
    let raw = trouble.said(&["show", PARKED, &first, "--raw"]);
    let body = raw.lines().last().unwrap();
    let sent: Value = serde_json::from_str(body).expect("as it was sent");
    let own = sent["email"].as_str().expect("the sample has one");
    assert!(raw.contains(own) && !hidden.contains(own), "{hidden}");

    // The body does not fit one row, and its number does not fit 64 bits.
    let noise: String =
        (0..40_000_u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (n << 40)).to_string()).collect();
    let longer = format!("{{\\\"huge\\\":12345678901234567890123,\\\"noise\\\":\\\"{noise}\\\",");
    trouble.send("shopify-orders-paid.json", |text| text.replacen("\"{", &format!("\"{longer}"), 1), "applied");
    let second = trouble.json(&["show", PARKED])["state"]["head"].to_string();
    let shown = trouble.said(&["show", PARKED, &second]);
    assert!(shown.contains("\n  \"huge\": 12345678901234567890123,\n") && shown.contains(&noise), "{}", shown.len());
    let json = printed(&trouble.ran(&["show", PARKED, &second, "--json"]));
    assert!(json.contains("\"huge\":12345678901234567890123,"), "{}", json.len());
    let none = trouble.ran(&["show", PARKED, &second, "--diff"]);
    assert!(complained(&none).contains("no stored delivery has the topic orders/paid"), "{none:?}");
    let later = |text: String| {
        let text = text.replacen("\"{", &format!("\"{longer}"), 1).replace("15e8d2f1", "2");
        text.replace("\\\"financial_status\\\":\\\"pending\\\"", "\\\"financial_status\\\":\\\"authorized\\\"")
    };
    trouble.send("shopify-orders-create.json", later, "applied");
    let third = trouble.json(&["show", PARKED])["state"]["head"].to_string();
    let diff = trouble.said(&["show", PARKED, &third, "--diff"]);
    assert!(diff.contains(&format!("Against {}, orders/create:\n", position(first.parse().unwrap()))), "{diff}");
    assert!(diff.contains("+ /huge  12345678901234567890123\n"), "{diff}");
    assert!(diff.contains("~ /financial_status  \"pending\" → \"authorized\"\n"), "{diff}");
    assert!(!diff.contains("/currency "), "{diff}");
}

#[test]
fn printed_positions_are_accepted_as_arguments() {
    let mut trouble = Trouble::start();
    trouble.park("450789469", "1");
    let (_, sequence) = parked(&trouble)[0];
    let shown = trouble.said(&["show", PARKED]);
    let marked = position(sequence);
    assert!(shown.contains(&format!("last accepted {marked}, last settled {marked},")), "{shown}");
    let delivery = trouble.json(&["show", PARKED, &marked]);
    assert_eq!(delivery["sequence"], sequence);
    let next = shown.lines().find(|line| line.starts_with("  serializer redrive ")).expect("it is printed");
    let next: Vec<&str> = next.split("  #").next().unwrap().split_whitespace().skip(1).collect();
    assert!(next.contains(&marked.trim_start_matches('#')), "{shown}");
    assert!(printed(&ran(&next)).contains(&format!("{marked} was appended again, as #")), "{next:?}");
    trouble.local.until(|told| told["outcome"] == "parked");
    let again = trouble.json(&["show", PARKED])["state"]["head"].as_u64().unwrap();
    let discarded = trouble.said(&["discard", PARKED, &position(again), "--why", "a test", "--yes"]);
    assert!(discarded.ends_with(&format!("{} is discarded\n", position(again))), "{discarded}");
}

#[test]
fn show_explains_missing_delivery() {
    let mut trouble = Trouble::start();
    trouble.block();
    let next = trouble.json(&["show", BLOCKED])["state"]["tail"].as_u64().unwrap();
    let said = |order: &str, sequence: u64| {
        let done = trouble.ran(&["show", order, &sequence.to_string()]);
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        complained(&done)
    };
    assert!(said("warehouse/order/1", 1).contains("there is no order warehouse/order/1: "));
    assert!(said(BLOCKED, next + 1).contains(&format!("there is no delivery {}", position(next + 1))));
    assert!(said(BLOCKED, 7).contains("the sequence was never used. Deliveries are kept for 30 days"));
    assert!(
        trouble
            .said(&["show", BLOCKED, &next.to_string()])
            .contains(&format!("  blocked\norder.shipped {} failed after 1 attempt: ", position(next)))
    );
}

#[test]
fn expired_delivery_that_blocks_its_order_is_shown() {
    let trouble = Trouble::start();
    let order = EntityKey::parse("shop/order/1").unwrap();
    let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, order.as_str()).with(a::BLOCKED, "expired");
    let row = row.with(a::HEAD, 12_u32).with(a::TAIL, 14_u32).with(a::TOKEN, 3_u32);
    trouble.write([Write::put(entity_row(&order), row)].into_iter());
    let expected = "#13 is empty and so old that its delivery may have expired.";
    let shown = trouble.said(&["show", order.as_str(), "13"]);
    assert!(shown.contains(expected) && shown.contains("serializer resume "), "{shown}");
    for sequence in ["13", "%2313"] {
        let page = console::page_at(&trouble.local.console, &format!("delivery?key={order}&sequence={sequence}"));
        assert!(page.starts_with("HTTP/1.1 200 ") && page.contains(expected), "{page}");
    }
}

#[test]
fn audit_names_order_whose_row_cannot_be_read() {
    let trouble = Trouble::start();
    let order = EntityKey::parse("shop/order/1").unwrap();
    let row = Row::new().with(a::VERSION, FORMAT - 1).with(a::ENTITY, order.as_str());
    trouble.write([Write::put(entity_row(&order), row)].into_iter());
    let said = complained(&trouble.ran(&["audit"]));
    let next = format!("`serializer doctor {}` counts the rows of other versions", trouble.local.target);
    assert!(said.contains("shop/order/1 cannot be read") && said.contains(&next), "{said}");
    assert!(said.contains("a row has format "), "{said}");
}

/// Answers every request as AWS refuses a forbidden one.
fn refusing() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let serving = listener.try_clone().expect("it can be shared");
    std::thread::spawn(move || {
        for stream in serving.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = vec![0; 65_536];
            let _ = stream.read(&mut request);
            let body = r#"{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"User: arn:aws:iam::123456789012:user/ann is not authorized to perform: dynamodb:Scan on resource: entities"}"#;
            let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/x-amz-json-1.0\r\nconnection: close";
            let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        }
    });
    listener
}

#[test]
fn missing_permission_error_names_permission_and_page() {
    let endpoint = refusing();
    let url = format!("http://{}", endpoint.local_addr().unwrap());
    let mut command = serializer(&["status"]);
    command.envs([
        ("ENTITIES_TABLE", "list"),
        ("INBOX_TABLE", "inbox"),
        ("QUEUE_URL", &url),
        ("AWS_REGION", "us-east-1"),
    ]);
    command.envs([("AWS_ENDPOINT_URL_DYNAMODB", &*url), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")]);
    let refused = command.output().expect("it can be run");
    let said = complained(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("is not authorized to perform: dynamodb:Scan"), "{said}");
    assert!(said.contains("the permissions that docs/deploying.md lists"), "{said}");
}

#[test]
fn status_counts_each_waiting_delivery_for_its_source() {
    let folder = folder();
    let mut text = serializer::local::samples::SOURCES.to_owned();
    for source in ["[sources.shopify]", "[sources.warehouse]", "[sources.carrier]"] {
        text = text.replacen(source, &format!("{source}\nentity = \"both/1\""), 1);
    }
    let sources = file(&folder, "sources.toml", &text);
    let mut local = LocalProcess::start(&["--sources", sources.to_str().unwrap()]);
    assert!(local.ran(&["hold", "both/1", "--why", "no worker looks"]).status.success());
    for sample in ["shopify-orders-create", "standard-webhooks-order-shipped", "standard-webhooks-parcel-delivered"] {
        assert!(local.send(&[&format!("{sample}.json")]).status.success());
        local.until(|told| told["what"] == "accepted");
    }
    let told: Value = serde_json::from_str(&printed(&local.ran(&["status", "--json"]))).unwrap();
    let group = &told["groups"][0];
    assert_eq!((&group["source"], &group["deliveries"]), (&"shopify".into(), &3.into()), "{told}");
    assert_eq!(group["of_other_sources"], serde_json::json!({ "carrier": 1, "warehouse": 1 }));
    let paces = told["last_minutes"]["sources"].as_array().unwrap().iter();
    let waiting: Vec<_> = paces.map(|one| (one["source"].as_str(), one["waiting"].as_u64())).collect();
    assert_eq!(waiting, ["carrier", "shopify", "warehouse"].map(|source| (Some(source), Some(1))));
    let status = printed(&local.ran(&["status"]));
    assert!(status.contains(" 3 (1 of carrier, 1 of warehouse) "), "{status}");
    let unread = printed(&local.ran(&["status", "--no-parked"]));
    assert!(unread.contains(" 3 ") && !unread.contains("warehouse"), "{unread}");
}
