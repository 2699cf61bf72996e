//! `serializer source`, on files and on a local run.

use std::{
    io::Write,
    path::Path,
    process::{Output, Stdio},
};

use serde_json::Value;

use crate::running::{LocalProcess, complained, file, folder, printed, ran, serializer};

/// Runs a command with `input` on its standard input, without a terminal.
fn piped(arguments: &[&str], input: &str) -> Output {
    let mut command = serializer(arguments);
    for name in ["SOURCES", "WEBHOOK_URL"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it can be started");
    // The command may end without reading; the test's assertions show that.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it can be read")
}

const SHOP: &str =
    "# The shop.\n[sources.shop]\nprovider = \"shopify\"\nsecrets = [\"old-u3rVw8Yd\"] # of May\nhandler = \"log\"\n";

#[test]
fn source_commands_never_print_a_secret() {
    let folder = folder();
    let path = file(&folder, "sources.toml", SHOP);
    let at = ["--sources", path.to_str().expect("a path in UTF-8")];
    let run = |arguments: &[&str], input: &str| {
        let done = piped(&[&["source"], arguments, &at].concat(), input);
        let shown = printed(&done) + &complained(&done);
        for secret in ["old-u3rVw8Yd", "hush", "newer-q7mZ4kT1"] {
            let hidden = shown.replace("the old one", "").replace("beside the old", "");
            assert!(!hidden.contains(&format!("\"{secret}\"")) && !hidden.contains("hush"), "{shown}");
        }
        assert!(done.status.success(), "{shown}");
        shown
    };
    let url = "https://example.com/hook?key=hush";
    let forward = format!("forward={url}");
    let added = run(
        &["add", "pay", "--provider", "stripe", "--handler", &forward, "--ignore", "customer.*", "--yes"],
        "whsec_hush-q7mZ4kT1\n",
    );
    assert!(added.contains("within 1 min; until then, ingest may answer the source's webhooks 404"), "{added}");
    assert!(added.contains("+ [sources.pay]\n") && added.contains("\"https://example.com/…\""), "{added}");
    let text = read(&path);
    assert!(
        text.starts_with(SHOP) && text.contains("secrets = [\"whsec_hush-q7mZ4kT1\"]\n") && text.contains(url),
        "{text}"
    );

    let rotated = run(&["rotate", "shop", "--yes"], "newer-q7mZ4kT1");
    assert!(rotated.contains("wait 1 min") && rotated.contains("4 h at most"), "{rotated}");
    assert!(read(&path).contains("secrets = [\"newer-q7mZ4kT1\", \"old-u3rVw8Yd\"] # of May\n"));
    assert!(rotated.contains("serializer source rotate --sources "), "{rotated}");
    run(&["rotate", "shop", "--finish", "--yes"], "");
    assert!(read(&path).starts_with(&SHOP.replace("\"old-u3rVw8Yd\"", "\"newer-q7mZ4kT1\"")), "{}", read(&path));

    let listed = run(&["list"], "");
    assert!(listed.contains("forward to example.com") && listed.contains("not customer.*"), "{listed}");
    let listed: Vec<Value> =
        run(&["list", "--json"], "").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((listed.len(), &listed[1]["source"], &listed[1]["secrets"]), (2, &"shop".into(), &1.into()));
    let before = read(&path);
    let paused = run(&["pause", "pay", "--yes"], "");
    assert!(paused.contains("+ paused = true") && paused.contains("is paused: its webhooks are accepted"), "{paused}");
    let resume = format!("\n  serializer source resume --sources {} pay\n", at[1]);
    assert!(paused.contains(&resume), "{paused}");
    assert!(paused.contains("within 1 min; from then on, its deliveries are accepted and wait"), "{paused}");
    assert!(run(&["pause", "pay", "--yes"], "").contains("already paused"));
    assert!(run(&["list"], "").contains("`pay` is paused"));
    let resumed = run(&["resume", "pay", "--yes"], "");
    assert!(resumed.contains("the command woke no worker, so the source's orders continue within 15 min"), "{resumed}");
    assert_eq!(read(&path), before, "the rest of the document is as it was");
    assert!(run(&["resume", "pay", "--yes"], "").contains("pay is not paused"));
    run(&["remove", "pay", "--yes"], "");
    run(&["add", "late", "--provider", "stripe", "--handler", "log", "--no-secret", "--yes"], "");
    let first = run(&["rotate", "late", "--yes"], "whsec_hush-q7mZ4kT1");
    assert!(first.contains("has its first secret in") && !first.contains("--finish"), "{first}");
    run(&["remove", "late", "--yes"], "");
    assert_eq!(read(&path), SHOP.replace("\"old-u3rVw8Yd\"", "\"newer-q7mZ4kT1\""));
}

#[test]
fn source_with_queue_is_added_without_a_secret() {
    let folder = folder();
    let path = file(&folder, "sources.toml", SHOP);
    let queue = "queue=arn:aws:sqs:eu-central-1:123456789012:amazon";
    let add =
        ["source", "add", "amazon", "--provider", "amazon-sp-api", "--handler", "log", "--option", queue, "--yes"];
    let done = piped(&[&add[..], &["--sources", path.to_str().expect("a path in UTF-8")]].concat(), "");
    assert!(done.status.success(), "{done:?}");
    let text = read(&path);
    let added = text.strip_prefix(SHOP).expect("the rest is as it was");
    assert!(added.contains(&queue.replace("queue=", "queue = \"")) && !added.contains("secrets"), "{added}");
}

/// Nobody deploys the queue of a local run.
#[test]
fn change_of_queue_source_names_the_local_queue() {
    let folder = folder();
    let path = file(&folder, "sources.toml", SHOP);
    let mut local = LocalProcess::start(&["--sources", path.to_str().expect("a path in UTF-8")]);
    let queue = "queue=arn:aws:sqs:eu-central-1:123456789012:amazon";
    let add = ["add", "amazon", "--provider", "amazon-sp-api", "--handler", "log", "--option", queue];
    let url = format!("{}/eu-central-1/123456789012/amazon", local.queue);
    for (change, says) in [
        (&add[..], format!("`local` then makes the queue {url}\n")),
        (&["remove", "amazon"], format!("let nothing send to {url}: messages that arrive later stay there")),
    ] {
        let done = piped(&[&["source"], change, &["--yes", &local.target]].concat(), "");
        let shown = printed(&done) + &complained(&done);
        assert!(done.status.success() && shown.contains(&says) && !shown.contains("docs/queues.md"), "{shown}");
        if change == add {
            assert_eq!(local.until(|told| told["what"] == "queue added")["url"], url);
        }
    }
}

/// A provider that never retries leaves nothing to wait for between the two steps.
#[test]
fn rotation_waits_as_long_as_the_provider_retries() {
    let folder = folder();
    for (provider, begins, finishes) in [
        ("woocommerce", "then run this; woocommerce never retries, so there is nothing", "woocommerce never retries"),
        ("stripe", "signed, 3 d at most, and run:", "wait until stripe no longer retries"),
        ("klarna", "then wait until klarna no longer retries webhooks that the old one signed, and run:", "wait until"),
    ] {
        let document = format!(
            "[sources.pay]\nprovider = \"{provider}\"\nsecrets = [\"whsec_old-u3rVw8Yd\"]\nhandler = \"log\"\n"
        );
        let path = file(&folder, &format!("{provider}.toml"), &document);
        let at = ["--sources", path.to_str().expect("a path in UTF-8"), "--yes"];
        let run = |step: &[&str], input: &str| {
            let done = piped(&[&["source", "rotate", "pay"], step, &at].concat(), input);
            let shown = printed(&done) + &complained(&done);
            assert!(done.status.success() && !shown.contains(" ms"), "{shown}");
            shown
        };
        let shown = run(&[], "whsec_newer-q7mZ4kT1");
        assert!(shown.contains(begins), "{shown}");
        let shown = run(&["--finish"], "");
        assert!(shown.contains(finishes), "{shown}");
    }
}

#[test]
fn refused_source_change_says_why() {
    let folder = folder();
    let path = file(&folder, "sources.toml", SHOP);
    let at = ["--sources", path.to_str().expect("a path in UTF-8")];
    let add = ["add", "pay", "--provider", "stripe", "--handler"];
    let with = |more: &'static [&'static str]| [add.as_slice(), more].concat();
    for (arguments, input, said) in [
        (with(&["log", "--yes"]), "", "the secret of stripe is empty"),
        (
            with(&["log", "--yes"]),
            "whsec_hush-q7mZ4kT1\nwhsec_hush-u3rVw8Yd\n",
            "the secret of stripe has several lines",
        ),
        (with(&["log", "--yes"]), "sk_live_hush-q7mZ4kT1", "it is an API key"),
        (with(&["log"]), "whsec_hush-q7mZ4kT1", "add --yes to continue without it"),
        (with(&["forward", "--yes"]), "whsec_hush-q7mZ4kT1", "--handler forward=https://"),
        (with(&["forward=http://127.0.0.1/", "--yes"]), "whsec_hush-q7mZ4kT1", "http:// needs allow_private = true"),
        (with(&["orders=x", "--yes"]), "whsec_hush-q7mZ4kT1", "only `forward` takes a URL"),
        (
            with(&["log", "--option", "secrets=hush", "--yes"]),
            "whsec_hush-q7mZ4kT1",
            "a secret cannot be given as an option",
        ),
        (with(&["log", "--option", "no_such=1", "--yes"]), "whsec_hush-q7mZ4kT1", "unknown field `no_such`"),
        (with(&["log", "--option", "on_outages=queue", "--yes"]), "whsec_hush-q7mZ4kT1", "(did you mean `on_outage`?)"),
        (with(&["log", "--entity", "{order}", "--yes"]), "whsec_hush-q7mZ4kT1", "there is no field {order}"),
        (
            with(&["log", "--entity", "{entitiy}", "--yes"]),
            "whsec_hush-q7mZ4kT1",
            "there is no field {entitiy} (did you mean `entity`?)",
        ),
        (with(&["log", "--yes"]), "whsec_", "it is a placeholder"),
        (with(&["log", "--yes"]), "whsec_${HUSH}", "it is a reference that nothing has replaced by its value"),
        (with(&["log", "--yes"]), "whsec_YQ==", "it is a placeholder"),
        (vec!["rotate", "shop", "--yes"], "…", "it is a placeholder"),
        (vec!["rotate", "shop", "--yes"], "old-u3rVw8Yd", "`shop` has this secret already"),
        (vec!["rotate", "shop", "--finish", "--yes"], "", "there is no old one to remove"),
        (vec!["rotate", "pay", "--yes"], "hush", "has no source `pay`; its sources are `shop`"),
        (vec!["remove", "pay", "--yes"], "", "has no source `pay`; its sources are `shop`"),
        (
            vec!["rotate", "shpo", "--yes"],
            "hush",
            "has no source `shpo` (did you mean `shop`?); its sources are `shop`",
        ),
        (vec!["remove", "shop", "--yes"], "", "is the only source"),
    ] {
        let done = piped(&[&["source"], arguments.as_slice(), &at].concat(), input);
        let complained = complained(&done);
        assert!(!done.status.success() && complained.contains(said), "{arguments:?}: {complained}");
        assert!(!complained.contains("hush"), "{complained}");
        assert_eq!(read(&path), SHOP, "{arguments:?}");
    }
    let nowhere = piped(&["source", "list"], "");
    assert!(complained(&nowhere).contains("name the sources document: --sources FILE"), "{}", complained(&nowhere));
    let by_name = piped(&["source", "list", "--sources-secret", "sources"], "");
    assert!(complained(&by_name).contains("needs the secret's ARN"), "{}", complained(&by_name));
}

#[test]
fn local_run_rereads_document_and_prints_ignored_deliveries() {
    let folder = folder();
    let path = file(&folder, "sources.toml", SHOP);
    let mut local = LocalProcess::start(&["--sources", path.to_str().expect("a path in UTF-8")]);
    let target = local.target.clone();
    let piped = |arguments: &[&str], input: &str| {
        let done = piped(&[&["source"], arguments, &[&target]].concat(), input);
        assert!(done.status.success(), "{}", complained(&done));
        done
    };
    let tested =
        |name: &str| -> Value { serde_json::from_str(&printed(&piped(&["test", name, "--json"], ""))).unwrap() };
    assert_eq!(tested("shop")["status"], 200);
    // The source may be new: before `test` reports that a source is refused, it waits for the changed
    // document.
    piped(
        &["add", "woo", "--provider", "woocommerce", "--handler", "log", "--take", "order.created", "--yes"],
        "q7mZ4kT1",
    );
    let made = tested("woo");
    assert_eq!((&made["status"], &made["entity"]), (&200.into(), &"woo/order/727".into()), "{made}");
    assert_eq!(local.until(|told| told["what"] == "sources changed")["sources"], 2);
    // The sample has another topic of the same source, one that is ignored.
    let event = crate::running::event("woocommerce-order-updated.json");
    let sent: Value =
        serde_json::from_str(&printed(&piped(&["test", "woo", "--json", "--sample", &event], ""))).unwrap();
    assert_eq!((&sent["status"], &sent["ignored"]), (&200.into(), &"order.updated".into()), "{sent}");
    local.until(|told| told["what"] == "ignored" && told["delivery"] == "order.updated");
    let dry: Value = serde_json::from_str(&printed(&piped(&["test", "woo", "--dry-run", "--json"], ""))).unwrap();
    assert_eq!((&dry["valid"], &dry["sent"]), (&true.into(), &false.into()), "{dry}");
}

/// A source that gets no webhooks has no URL at a sender.
#[test]
fn removal_says_where_the_sources_deliveries_stay() {
    let folder = folder();
    let queue = "arn:aws:sqs:eu-central-1:123456789012:events";
    let others = format!(
        "[sources.events]\nprovider = \"generic\"\nqueue = \"{queue}\"\nhandler = \"log\"\n\
         generic = {{ entity = \"/id\" }}\n\n\
         [sources.all]\nprovider = \"shopify\"\nsecrets = [\"old-u3rVw8Yd\"]\nhandler = \"fan-out\"\n\n\
         [sources.mails]\nfrom = \"all\"\nhandler = \"log\"\n\n\
         [sources.stock]\nfrom = \"all\"\nhandler = \"log\"\n"
    );
    let path = file(&folder, "sources.toml", &format!("{SHOP}\n{others}"));
    for (name, says) in [
        ("events", format!("messages that arrive later stay in {queue} until its dead-letter queue takes them")),
        ("mails", "the webhooks of `all` go to its other sources only".to_owned()),
        ("shop", "remove the webhook's URL at the sender now".to_owned()),
    ] {
        let removed = piped(&["source", "remove", name, "--yes", "--sources", path.to_str().expect("UTF-8")], "");
        let shown = printed(&removed) + &complained(&removed);
        assert!(removed.status.success() && shown.contains(&says), "{shown}");
        assert_eq!(shown.contains("URL"), name == "shop", "{shown}");
    }
}

/// Nobody can disable a subscriber's webhooks at a sender.
#[test]
fn refused_removal_of_subscriber_names_its_parent() {
    let folder = folder();
    let text = format!(
        "{}\n[sources.mails]\nfrom = \"shop\"\nhandler = \"forward\"\n\
         forward = {{ url = \"http://127.0.0.1:1/\", secret = \"whsec_Zk93bTR6S2dRcTdUaHBY\", allow_private = true }}\n",
        SHOP.replace("\"log\"", "\"fan-out\"")
    );
    let path = file(&folder, "sources.toml", &text);
    let mut local = LocalProcess::start(&["--sources", path.to_str().expect("a path in UTF-8")]);
    let sent = piped(&["source", "test", "shop", &local.target], "");
    assert!(printed(&sent).contains("200 "), "{sent:?}");
    local.until(|told| told["outcome"] == "applied");
    let refused = complained(&piped(&["source", "remove", "mails", "--yes", &local.target], ""));
    assert!(refused.contains("1 delivery of `mails` waits, in mails/"), "{refused}");
    assert!(refused.contains(". Pause `shop` until nothing waits, or add --park-waiting"), "{refused}");
}

#[test]
fn source_with_waiting_deliveries_is_not_removed() {
    let folder = folder();
    // Nothing listens at the handler's endpoint, so the deliveries wait.
    let text = format!(
        "{SHOP}\n[sources.pay]\nprovider = \"stripe\"\nsecrets = [\"whsec_q7mZ4kT1\"]\nhandler = \"forward\"\n\
         forward = {{ url = \"http://127.0.0.1:1/\", secret = \"whsec_Zk93bTR6S2dRcTdUaHBY\", allow_private = true }}\n"
    );
    let path = file(&folder, "sources.toml", &text);
    let local = LocalProcess::start(&["--sources", path.to_str().expect("a path in UTF-8")]);
    let sent = piped(&["source", "test", "pay", &local.target], "");
    assert!(printed(&sent).contains("200 "), "{sent:?}");
    let refused = piped(&["source", "remove", "pay", "--yes", &local.target], "");
    assert!(
        complained(&refused).contains("nothing was written: 1 delivery of `pay` waits, in pay/"),
        "{}",
        complained(&refused)
    );
    assert_eq!(read(&path), text);
    // The other source has no waiting deliveries.
    let other = piped(&["source", "remove", "shop", "--yes", "--json", &local.target], "");
    assert!(printed(&other).contains("\"waiting\":0"), "{other:?}");
    std::fs::write(&path, &text).expect("it can be written");
    let removed = piped(&["source", "remove", "pay", "--yes", "--park-waiting", &local.target], "");
    assert!(removed.status.success(), "{}", complained(&removed));
    assert_eq!(read(&path).trim_end(), SHOP.trim_end());
    assert!(ran(&["check", path.to_str().expect("a path in UTF-8")]).status.success());
}
