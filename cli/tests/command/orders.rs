//! `send`, `show`, `audit` and `erase`.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use serializer::view::tone::Word;
use webhook_serializer::protocol::receipt::Settlement;

use crate::running::{LocalProcess, coloured, complained, event, file, folder, position, printed, ran, serializer};

const ORDER: &str = "shopify/order/450789469";

/// Promise: `send` prints the order that ingest names or, if rejected, the file of its secrets.
#[test]
fn send_prints_the_order_that_the_server_names() {
    let folder = folder();
    let sources = format!("{}\n", serializer::local::samples::SOURCES);
    let otherwise = sources.replacen("[sources.shopify]", "[sources.shopify]\nentity = \"elsewhere/{/id}\"", 1);
    let otherwise = file(&folder, "sources.toml", &otherwise);
    let local = LocalProcess::start(&["--sources", otherwise.to_str().unwrap()]);
    let sent = local.send(&["shopify-orders-create.json"]);
    assert!(printed(&sent).starts_with("200 elsewhere/450789469 accepted as "), "{sent:?}");
}

/// Sends a delivery whose id, key and body hold control characters for terminals.
fn hostile(folder: &tempfile::TempDir) -> (LocalProcess, String) {
    let sources = serializer::local::samples::SOURCES
        .replace("delivery_id = \"x-acme-delivery\"", "delivery_id = \"/id\"")
        .replace("entity = \"/order/id\"", "entity = \"/key\"");
    let sources = file(folder, "sources.toml", &sources);
    let mut event: Value =
        serde_json::from_str(&std::fs::read_to_string(event("generic-order-updated.json")).unwrap()).unwrap();
    event["body"] = serde_json::json!({
        "event": "order.updated", "id": "\u{1b}[31mred\u{9b}2J\u{202e}di", "key": "7\u{202e}8\u{2066}", "x": "\u{202e}\u{1b}[2J",
    })
    .to_string()
    .into();
    let event = file(folder, "event.json", &event.to_string());
    let mut local = LocalProcess::start(&["--sources", sources.to_str().unwrap()]);
    let sent = ran(&["send", "--to", &local.url, "--sources", sources.to_str().unwrap(), event.to_str().unwrap()]);
    assert_eq!(plain(&sent), printed(&sent));
    let settled = local.until(|told| told["what"] == "settled");
    let sequence = settled["sequence"].to_string();
    (local, sequence)
}

/// Returns the standard output. Asserts that it has no control characters that a terminal would obey.
fn plain(output: &Output) -> String {
    let hidden = |c: char| c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c) || c == '\u{2066}';
    let text = printed(output);
    assert!(!text.contains(hidden), "{text:?}");
    text
}

#[test]
fn hidden_characters_from_senders_are_escaped() {
    let folder = folder();
    let (local, sequence) = hostile(&folder);
    let order = "custom/order/7\u{202e}8\u{2066}";
    let shown = plain(&local.ran(&["show", order, &sequence]));
    assert!(shown.contains("\ndelivery      \\u001b[31mred\\u009b2J\\u202edi\n"), "{shown}");
    assert!(shown.starts_with("custom/order/7\\u202e8\\u2066 "), "{shown}");
    assert!(plain(&local.ran(&["show", order])).contains("\\u001b[31mred"));
    for command in [&["show", "--json", order][..], &["show", "--raw", "--json", order, &sequence]] {
        let told: Value = serde_json::from_str(&plain(&local.ran(command))).expect("it is JSON");
        assert_eq!(told["entity"], order, "{command:?}");
    }
    let page = crate::console::page_at(&local.console, "order?key=custom/order/7%E2%80%AE8%E2%81%A6");
    let without_forms = page.replace(&format!("value=\"{order}\""), "");
    assert!(without_forms.contains(r"custom/order/7\u202e8\u2066") && !without_forms.contains('\u{202e}'), "{page}");
}

#[test]
fn raw_body_in_a_pipe_is_byte_exact() {
    let folder = folder();
    let (local, sequence) = hostile(&folder);
    let body = serde_json::from_str::<Value>(&std::fs::read_to_string(folder.path().join("event.json")).unwrap());
    let shown = local.ran(&["show", "--raw", "custom/order/7\u{202e}8\u{2066}", &sequence]);
    assert!(printed(&shown).ends_with(&format!("\n\n{}\n", body.unwrap()["body"].as_str().unwrap())), "{shown:?}");
}

#[test]
fn raw_body_on_a_terminal_is_escaped() {
    let folder = folder();
    let (local, sequence) = hostile(&folder);
    let command = format!(
        "{} show --raw {} custom/order/7\u{202e}8\u{2066} {sequence}",
        env!("CARGO_BIN_EXE_serializer"),
        local.target
    );
    let Ok(shown) = Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output() else {
        // Writes past the test harness's output capture.
        let _ = writeln!(std::io::stderr(), "not run: raw_body_on_a_terminal_is_escaped: there is no `script`");
        return;
    };
    let shown = printed(&shown);
    assert!(
        shown.contains(r"\u202e\u001b[2J") && !shown.contains('\u{202e}') && !shown.contains("\u{1b}[2J"),
        "{shown:?}"
    );
}

/// Each sample is signed freshly, or it keeps its signature by the public development key.
#[test]
fn every_sample_is_accepted() {
    let local = LocalProcess::start(&[]);
    let events = std::fs::read_dir(event("")).unwrap().map(|entry| entry.unwrap().file_name());
    let events: Vec<String> = events.map(|name| name.into_string().unwrap()).filter(|n| n.ends_with(".json")).collect();
    let sent = local.send(&events.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(sent.status.success(), "{sent:?}");
    let orders =
        ["paypal/order/5O190127TN364715T", "adobe/order/9007199254740993", "shipstation/tracking/1Z999AA10123456784"];
    for order in orders {
        assert!(printed(&sent).contains(&format!("200 {order} accepted as ")), "{order}: {sent:?}");
    }
}

#[test]
fn send_posts_samples_of_the_given_provider() {
    let local = LocalProcess::start(&[]);
    let sent = ran(&["send", "--to", &local.url, "--provider", "paypal"]);
    let lines: Vec<String> = printed(&sent).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{sent:?}");
    assert!(lines.iter().all(|line| line.starts_with("200 paypal/order/5O190127TN364715T accepted as ")), "{sent:?}");
    let neither = ran(&["send", "--to", &local.url]);
    assert!(complained(&neither).contains("<FILE>") && neither.status.code() == Some(2), "{neither:?}");
}

const OWN: &str = "
[origin]
secret = '0123456789-0123456789-0123456789-new'
[sources.checkout]
provider = 'paypal'
webhook_id = ['8PT597110X687430LKGECATA']
handler = 'log'
[sources.commerce]
provider = 'adobe-io-events'
client_id = '4fc8b9b2d2f14f4e8f6f3a6d1b1c0a55'
handler = 'log'
[sources.parcels]
provider = 'shipstation-v2'
handler = 'log'
[sources.early]
provider = 'shopify'
handler = 'log'
[sources.shop]
provider = 'shopify'
secrets = ['q7mZ4kT1u3rVw8Yd']
handler = 'log'
";

#[test]
fn own_document_takes_samples_of_its_providers() {
    let folder = folder();
    let document = file(&folder, "sources.toml", OWN);
    let document = document.to_str().expect("a path in UTF-8");
    let local = LocalProcess::start(&["--sources", document, "--development-keys"]);
    let send = |provider| ran(&["send", "--to", &local.url, "--sources", document, "--provider", provider]);
    for (provider, order) in [
        ("paypal", "checkout/order/5O190127TN364715T"),
        ("adobe-io-events", "commerce/order/9007199254740993"),
        ("shipstation-v2", "parcels/tracking/1Z999AA10123456784"),
        ("shopify", "shop/order/450789469"),
    ] {
        let sent = send(provider);
        assert!(sent.status.success(), "{provider}: {sent:?}");
        assert!(printed(&sent).contains(&format!("200 {order} accepted as ")), "{provider}: {sent:?}");
    }
    let none = send("square");
    assert!(complained(&none).contains("has no source with the provider square"), "{none:?}");
    let strict = LocalProcess::start(&["--sources", document]);
    let refused = ran(&["send", "--to", &strict.url, "--sources", document, "--provider", "shopify"]);
    assert!(refused.status.success(), "{refused:?}");
}

#[test]
fn send_with_refused_signature_names_secrets_file_and_no_order() {
    let mut local = LocalProcess::start(&[]);
    let folder = folder();
    let forged = serializer::local::samples::SOURCES.replace("shopify-development-secret", "guessed");
    let forged = file(&folder, "sources.toml", &forged);
    let sample = event("shopify-orders-create.json");
    let sent = ran(&["send", "--json", "--to", &local.url, "--sources", forged.to_str().unwrap(), &sample]);
    let said: Value = serde_json::from_str(&printed(&sent)).unwrap();
    assert_eq!((&said["status"], &said["entity"], &said["accepted"]), (&401.into(), &Value::Null, &Value::Null));
    assert_eq!(sent.status.code(), Some(1));
    let next = format!("The server refused a signature made with the secrets in {}; name", forged.display());
    assert!(complained(&sent).starts_with(&next), "{sent:?}");
    let refused = local.until(|told| told["what"] == "refused");
    assert_eq!((&refused["source"], &refused["why"]), (&"shopify".into(), &"not verified".into()), "{refused}");
}

#[test]
fn send_skips_files_that_are_no_webhooks() {
    let local = LocalProcess::start(&[]);
    let sent = local.send(&["schedule.json", "wake-up.json", "shopify-orders-create.json"]);
    assert!(sent.status.success() && printed(&sent).starts_with("200 "), "{sent:?}");
    let skipped: Vec<bool> = complained(&sent).lines().map(|line| line.contains(": skipped; ")).collect();
    assert_eq!(skipped, [true, true]);
    let none = local.send(&["schedule.json"]);
    assert!(!none.status.success() && complained(&none).contains("none of these files is an event"), "{none:?}");
}

#[test]
fn send_continues_after_unknown_source() {
    let local = LocalProcess::start(&[]);
    let folder = folder();
    let unknown = std::fs::read_to_string(event("shopify-orders-create.json")).unwrap();
    let unknown = file(&folder, "unknown.json", &unknown.replace("/webhooks/shopify", "/webhooks/shop"));
    let known = event("shopify-orders-paid.json");
    let sent = ran(&["send", "--to", &local.url, unknown.to_str().unwrap(), &known]);
    assert!(complained(&sent).contains("source `shop` is not in the sources document"), "{sent:?}");
    assert!(printed(&sent).starts_with("200 ") && sent.status.code() == Some(1), "{sent:?}");
}

/// The limit includes repeats whose receipts have left the order's row.
#[test]
fn show_lists_requested_number_of_settled_deliveries() {
    let mut local = LocalProcess::start(&[]);
    for _ in 0..30 {
        local.apply_sample();
    }
    let seen: Value =
        serde_json::from_str(&printed(&local.ran(&["show", ORDER, "--settled", "25", "--json"]))).unwrap();
    assert_eq!(seen["settled"].as_array().map(Vec::len), Some(25));
    assert_eq!(seen["settled"][24]["sequence"], seen["state"]["head"]);
    let shown = printed(&local.ran(&["show", ORDER, "--settled", "25"]));
    assert!(shown.contains("Older deliveries are not shown"), "{shown}");
}

#[test]
fn show_prints_repeats_until_order_is_erased() {
    let mut local = LocalProcess::start(&[]);
    for _ in 0..2 {
        local.apply_sample();
    }
    let shown = printed(&local.ran(&["show", ORDER]));
    let seen: Value = serde_json::from_str(&printed(&local.ran(&["show", ORDER, "--json"]))).unwrap();
    let first = seen["settled"][0]["sequence"].as_u64().expect("a receipt");
    assert!(shown.contains(&format!("repeat of {}", position(first))), "{shown}");
    assert!(shown.contains("All deliveries are settled."), "{shown}");
    let settled = local.coloured(&["show", ORDER]);
    let repeat = Word::new(format!("repeat of {}", position(first)), Settlement::Repeat);
    assert!(settled.contains(&coloured(Settlement::Applied)) && settled.contains(&coloured(repeat)), "{settled:?}");
    assert_eq!((&seen["settled"][1]["outcome"], &seen["settled"][1]["of"]), (&"repeat".into(), &first.into()));
    let asked = local.ran(&["erase", ORDER]);
    assert!(
        complained(&asked).contains(
            "nothing has been changed yet: the command asks a question, but has no terminal to ask on: add --yes"
        ),
        "{asked:?}"
    );
    assert_eq!(printed(&local.ran(&["show", ORDER])), shown, "nothing is erased");
    let erased = local.ran(&["erase", ORDER, "--yes"]);
    assert!(erased.status.success(), "{erased:?}");
    let seen: Value = serde_json::from_str(&printed(&local.ran(&["show", ORDER, "--json"]))).unwrap();
    assert_eq!(seen["settled"], serde_json::json!([]));
    assert!(printed(&local.ran(&["erase", ORDER, "--yes"])).contains("nothing was left to erase"));
    for command in [
        &["erase", "shop/order/none", "--yes"][..],
        &["audit", "shop/order/none"],
        &["show", "shop/order/none", "--history"],
    ] {
        let unknown = local.ran(command);
        assert!(complained(&unknown).contains("there is no order shop/order/none"), "{command:?}: {unknown:?}");
        assert_eq!(unknown.status.code(), Some(1), "{command:?}");
    }
}

#[test]
fn show_names_a_paused_source() {
    let folder = folder();
    let sources =
        serializer::local::samples::SOURCES.replacen("[sources.shopify]", "[sources.shopify]\npaused = true", 1);
    let sources = file(&folder, "sources.toml", &sources);
    let mut local = LocalProcess::start(&["--sources", sources.to_str().unwrap()]);
    local.send(&["shopify-orders-create.json"]);
    local.until(|told| told["what"] == "accepted");
    let seen = |local: &LocalProcess| -> Value {
        serde_json::from_str(&printed(&local.ran(&["show", ORDER, "--json"]))).unwrap()
    };
    // A worker finds the source paused and looks again after a quarter of an hour.
    assert!((0..1_000).any(|_| seen(&local)["is_pause_seen"] == true), "no worker saw the pause");
    let shown = printed(&local.ran(&["show", ORDER]));
    assert!(
        shown.contains("1 delivery waits. A worker looks again in 15 min.\nThe source shopify is paused.\n"),
        "{shown}"
    );
    let resume = format!("serializer source resume {} shopify", local.target);
    let sequence = seen(&local)["state"]["tail"].to_string();
    for command in [&["show", ORDER][..], &["show", ORDER, &sequence], &["list"], &["status"]] {
        let shown = printed(&local.ran(command));
        assert!(shown.contains(&resume) && !shown.contains("serializer resume "), "{command:?}: {shown}");
    }
    let status = printed(&local.ran(&["status"]));
    assert!(status.contains("\nThe source shopify is paused: its deliveries wait. `"), "{status}");
    assert_eq!(seen(&local)["paused_source"], "shopify");
    assert!(local.ran(&["hold", ORDER, "--why", "counted"]).status.success());
    let resumed = printed(&local.ran(&["resume", ORDER]));
    assert!(resumed.contains(&format!("still wait. `{resume}` ends the pause.")), "{resumed}");
    file(&folder, "sources.toml", "this is no TOML");
    for command in [&["show", ORDER][..], &["list"], &["status"]] {
        let unknown = local.ran(command);
        assert!(unknown.status.success());
        assert!(complained(&unknown).contains("paused and removed sources are not known: "), "{unknown:?}");
    }
}

#[test]
fn show_says_workers_follow_new_pause_within_minute() {
    let folder = folder();
    let text = serializer::local::samples::SOURCES.to_owned();
    let sources = file(&folder, "sources.toml", &text);
    let mut local = LocalProcess::start(&["--sources", sources.to_str().unwrap()]);
    assert!(local.ran(&["hold", ORDER, "--why", "no worker looks"]).status.success());
    local.send(&["shopify-orders-create.json"]);
    local.until(|told| told["what"] == "accepted");
    file(&folder, "sources.toml", &text.replacen("[sources.shopify]", "[sources.shopify]\npaused = true", 1));
    let shown = printed(&local.ran(&["show", ORDER]));
    let expected = "The sources document pauses the source shopify, and workers follow within 1 min.\n";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn show_reports_deliveries_run_again_by_rewind() {
    let mut local = LocalProcess::start(&[]);
    local.send(&["shopify-orders-create.json", "shopify-orders-paid.json"]);
    for _ in 0..2 {
        local.until(|told| told["outcome"] == "applied");
    }
    let seen = |local: &LocalProcess| -> Value {
        let told = local.ran(&["show", ORDER, "--json"]);
        serde_json::from_str(&printed(&told)).unwrap_or_else(|_| panic!("{told:?}"))
    };
    let run = |local: &LocalProcess, arguments: &[&str]| {
        let why = ["--why", "the table was emptied", "--by", "ada"];
        local.ran(&[&["rewind", ORDER], arguments, &why].concat())
    };
    let before = seen(&local);
    let first = before["settled"][0]["sequence"].to_string();
    let beyond = (first.parse::<u64>().unwrap() + 2).to_string();
    let wrong = run(&local, &[&beyond, "--yes"]);
    assert!(complained(&wrong).contains("the last settled delivery of shopify/order/450789469 is "), "{wrong:?}");
    let ended = run(&local, &["--end"]);
    assert!(complained(&ended).contains("no rewind of shopify/order/450789469 is under way"), "{ended:?}");
    let asked = run(&local, &[&first]);
    assert!(complained(&asked).contains("add --yes"), "{asked:?}");
    let rewound = run(&local, &[&first, "--yes"]);
    assert!(printed(&rewound).starts_with("2 deliveries run again on shopify/order/450789469, from "), "{rewound:?}");
    for _ in 0..2 {
        local.until(|told| told["outcome"] == "applied");
    }
    let after = seen(&local);
    let token = |inspected: &Value| inspected["settled"][0]["token"].as_u64().unwrap();
    assert!(token(&after) > token(&before), "{before} {after}");
    local.ran(&["hold", ORDER, "--why", "look first"]);
    let rewound = run(&local, &[&first, "--yes"]);
    assert!(printed(&rewound).contains("The order is on hold: `serializer resume"), "{rewound:?}");
    let waits = printed(&local.ran(&["show", ORDER, &first]));
    assert!(
        waits.contains("It was applied before, under token ") && waits.contains("; a rewind runs it again."),
        "{waits}"
    );
    let waiting = local.coloured(&["show", ORDER]);
    assert_eq!(waiting.matches(&coloured(Settlement::Applied)).count(), 2, "{waiting:?}");
    let history = printed(&local.ran(&["show", ORDER, "--history"]));
    for wanted in ["rewind", "the table was emptied", "2 deliveries from "] {
        assert!(history.contains(wanted), "{history}");
    }
}

#[test]
fn audit_excludes_jobs_and_keys_without_deliveries() {
    let local = LocalProcess::with_order();
    // Each of these keys has a row from now on.
    for key in ["cron/sweep", "invoice_gen/SUB-1234"] {
        assert!(local.ran(&["lease", "run", key, "--", "true"]).status.success());
    }
    let audited = printed(&local.ran(&["audit"]));
    assert_eq!(
        audited.trim(),
        "1 receipt of 1 order: settled in the order of arrival, one at a time, none applied twice"
    );
}

#[test]
fn unknown_order_is_reported_with_next_command() {
    let local = LocalProcess::start(&[]);
    let shown = local.ran(&["show", "shopify/order/0"]);
    let next = format!("`serializer lease list {} --all` lists all keys", local.target);
    assert!(printed(&shown).contains(&next) && !shown.status.success(), "{shown:?}");
}

#[test]
fn unknown_order_is_reported_with_similar_keys() {
    let local = LocalProcess::with_order();
    let shown = local.ran(&["show", "shopify/order/45078946"]);
    assert!(printed(&shown).contains(&format!("Similar keys: {ORDER}.\n")), "{shown:?}");
    let similar = format!("has expired or was erased. Similar keys: {ORDER}\n");
    for refused in [
        &["show", "order/450789469", "7"][..],
        &["resume", "shopify/orders/450789469", "--why", "a test"],
        &["retry", "shopify/order/450789496", "--why", "a test"],
        &["rewind", "shop/order/450789469", "7", "--yes", "--why", "a test"],
        &["redrive", "shopify/order/450789460", "--yes", "--why", "a test"],
    ] {
        let done = local.ran(refused);
        assert!(complained(&done).contains(&similar) && !done.status.success(), "{done:?}");
    }
    let job = complained(&local.ran(&["jobs", "run", "nightly"]));
    assert!(job.contains("there is no job `nightly`. No job is registered yet; "), "{job}");
    let none = local.ran(&["resume", "warehouse/invoice/1", "--why", "a test"]);
    assert!(complained(&none).contains("lists orders") && !complained(&none).contains("Similar"), "{none:?}");
}

/// Promise: `SERIALIZER_LOCAL` replaces `--local` in each command, and in the commands that the output suggests.
#[test]
fn variable_stands_for_the_local_option() {
    let local = LocalProcess::with_order();
    let ran = |arguments: &[&str]| {
        let mut command = serializer(arguments);
        command.env("SERIALIZER_LOCAL", &local.url).output().expect("it can be run")
    };
    let sent = ran(&["send", &event("shopify-orders-updated.json")]);
    assert!(sent.status.success(), "{sent:?}");
    for shown in [&["show", ORDER][..], &["show", "--local", ORDER]] {
        assert!(printed(&ran(shown)).contains("orders/create"));
    }
    let tested = ran(&["source", "test", "shopify", "--sources", &event("sources.toml")]);
    assert!(printed(&tested).contains(&local.url), "{tested:?}");
    assert!(complained(&ran(&["source", "list"])).contains(&local.url));
    let unknown = printed(&ran(&["show", "shopify/order/0"]));
    assert!(unknown.contains("`serializer lease list --all` lists all keys"), "{unknown}");
    let document = ran(&["source", "list", "--sources", &event("sources.toml")]);
    assert!(document.status.success(), "{document:?}");
    let stack = complained(&ran(&["show", "--stack", "none", "--profile", "none", ORDER]));
    assert!(!stack.contains("cannot be used with") && !stack.contains("local"), "{stack}");
}

/// Promise: a command that the output suggests begins as its caller typed it, such as with `npx`.
#[test]
fn suggested_command_begins_as_the_caller_typed_it() {
    let local = LocalProcess::with_order();
    let ran = |arguments: &[&str]| {
        let mut command = serializer(arguments);
        let done = command.env("SERIALIZER_COMMAND", "npx typed").output().expect("it can be run");
        printed(&done) + &complained(&done)
    };
    let here = format!("--local={}", local.url);
    let nowhere = "http://127.0.0.1:1";
    let document = event("sources.toml");
    for (arguments, suggested) in [
        (&["show", &here, "shopify/order/0"][..], "`npx typed lease list --local="),
        (&["list", "--local=http://127.0.0.1:1"], "start it with `npx typed local`"),
        (&["send", "--to", nowhere, &event("shopify-orders-updated.json")], "start `npx typed local`"),
        (
            &["source", "add", "shopify", "--provider", "shopify", "--handler", "log", "--sources", &document],
            "`npx typed source rotate shopify`",
        ),
        (&["source", "list", "--sources", "none.toml"], "`npx typed source add`"),
    ] {
        let shown = ran(arguments);
        assert!(shown.contains(suggested), "{arguments:?}: {shown}");
    }
}

#[test]
fn local_option_with_port_only_is_refused_with_example() {
    let shown = ran(&["show", "--local=9001", ORDER]);
    assert!(
        complained(&shown).contains("9001 does not begin with http://; write --local=http://127.0.0.1:9000, with"),
        "{shown:?}"
    );
}

#[test]
fn space_instead_of_equals_after_local_option_is_refused() {
    for arguments in
        [&["show", "--local", "http://127.0.0.1:9007", ORDER][..], &["list", "--local", "http://127.0.0.1:9007"]]
    {
        let refused = ran(arguments);
        assert!(complained(&refused).contains("use: --local=http://127.0.0.1:9007\n"), "{refused:?}");
        assert_eq!(refused.status.code(), Some(2));
    }
}
