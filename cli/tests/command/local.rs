//! `serializer local`: its refusals, and how it stops.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use crate::running::{LocalProcess, complained, event, file, folder, printed, ran, serializer};

/// Promise: a data folder in use, or a file that is not a worker, is refused at once.
#[test]
fn error_names_process_that_uses_the_data_folder() {
    let folder = folder();
    let data = folder.path().to_str().unwrap();
    let local = LocalProcess::start(&["--data", data]);
    let second = ran(&["local", "--port", "0", "--data", data]);
    let complaint = complained(&second);
    assert!(complaint.contains(&format!("in use by another `serializer local`, process {}", local.child.id())));
    assert_eq!(second.status.code(), Some(1));
    drop(local);
    // The first process has ended, in whatever way, so the folder is free.
    drop(LocalProcess::start(&["--data", data]));
}

/// Promise: `--listen` serves a container's neighbours; otherwise only this machine is served.
#[test]
fn listen_names_the_address_that_is_served() {
    let refused = ran(&["local", "--port", "0", "--listen", "203.0.113.1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(complained(&refused).contains("nothing can listen on 203.0.113.1:0: "), "{}", complained(&refused));
    // Everywhere but on Linux, a machine has only one loopback address.
    if cfg!(target_os = "linux") {
        for (options, is_served) in [([].as_slice(), false), (&["--listen", "0.0.0.0"], true)] {
            let local = LocalProcess::start(options);
            for url in [&local.url, &local.console] {
                let port = url.strip_prefix("http://127.0.0.1:").expect(url).split('/').next().expect("a port");
                let reached = TcpStream::connect(format!("127.0.0.2:{port}"));
                assert_eq!(reached.is_ok(), is_served, "{url}: {reached:?}");
            }
        }
    }
}

/// SQLite goes on writing into a removed file, so webhooks would be accepted and lost.
///
/// Promise: if files of its data folder are removed, `local` ends instead of accepting webhooks that are lost.
#[test]
fn run_ends_if_its_data_is_removed() {
    for removed in ["tables.sqlite", "tables.sqlite-wal", "queue.sqlite", "queue.sqlite-wal", "in-use"] {
        let folder = folder();
        let mut local = LocalProcess::start(&["--data", folder.path().to_str().unwrap()]);
        // The run watches its files before it answers a command.
        assert!(local.ran(&["status"]).status.success());
        std::fs::remove_file(folder.path().join(removed)).expect("it can be removed");
        let mut said = String::new();
        local.errors.read_to_string(&mut said).expect("it ends");
        assert!(said.contains("were removed, moved or replaced"), "{removed}: {said}");
        assert_eq!(local.child.wait().expect("it ends").code(), Some(1), "{removed}");
    }
}

#[test]
fn queue_without_its_tables_is_refused() {
    let folder = folder();
    let data = folder.path().to_str().unwrap();
    drop(LocalProcess::start(&["--data", data]));
    // The log of a killed run may stay.
    let tables = folder.path().join("tables.sqlite");
    for is_empty in [true, false] {
        match is_empty {
            true => std::fs::write(&tables, "").expect("it can be written"),
            false => std::fs::remove_file(&tables).expect("it can be removed"),
        }
        let refused = ran(&["local", "--port", "0", "--data", data]);
        assert_eq!(refused.status.code(), Some(1));
        let said = complained(&refused);
        assert!(said.contains("has a queue, but its tables are gone or empty"), "{said}");
    }
}

#[test]
fn unusable_worker_file_is_refused_at_start() {
    let folder = folder();
    let text = file(&folder, "text", "no program");
    let quits = file(
        &folder,
        "quits",
        "#!/bin/sh\necho '{\"level\":\"ERROR\",\"message\":\"cannot start\",\"reason\":\"no table\"}'\nexit 3\n",
    );
    std::fs::set_permissions(&quits, std::fs::Permissions::from_mode(0o755)).expect("it can be made a program");
    for (worker, why) in [
        (text.to_str().unwrap(), "is not an executable program: "),
        (quits.to_str().unwrap(), "it ended (exit status: 3) before it polled for an event"),
        ("nowhere", "does not exist; build it first"),
    ] {
        let refused = ran(&["local", "--port", "0", "--worker", worker]);
        assert!(complained(&refused).contains(why), "{refused:?}");
        assert_eq!(refused.status.code(), Some(1));
    }
    let refused = ran(&["local", "--port", "0", "--worker", quits.to_str().unwrap()]);
    // The worker's own log line is printed in its form for people.
    assert!(printed(&refused).contains("  ERROR cannot start  reason=no table\n"), "{refused:?}");
}

/// Promise: shells and other readers read the same values from `--env-file`.
#[test]
fn shell_reads_env_file_values_unchanged() {
    let folder = tempfile::Builder::new().prefix("a $HOME #").tempdir().expect("a folder can be made");
    let environment = folder.path().join("it's.env");
    let sources = folder.path().join("a \"b\".toml");
    std::fs::write(&sources, serializer::local::samples::SOURCES).expect("a file can be written");
    let [file, document] = [&environment, &sources].map(|path| path.to_str().expect("a path in UTF-8"));
    let local = LocalProcess::start(&["--env-file", file, "--sources", document]);
    // The file is complete once a command gets its answer.
    assert!(local.ran(&["audit"]).status.success());
    let script = "set -a; . \"$1\"; printf '%s' \"${SOURCES#file:}\"";
    let read = Command::new("sh").args(["-c", script, "sh", file]).output().expect("sh can be run");
    assert_eq!(printed(&read), sources.canonicalize().expect("it is there").to_str().expect("a path in UTF-8"));
    let written = std::fs::read_to_string(&environment).expect("it can be read");
    for line in ["ENTITIES_TABLE=entities", "AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1"] {
        assert!(written.contains(&format!("\n{line}\n")), "{line}");
    }
}

/// Promise: `local` prints the same events and errors, whether the worker runs inside the command or as a separate
/// process.
#[test]
fn parked_delivery_is_printed_with_next_command() {
    let folder = folder();
    let unrouted = serializer::local::samples::SOURCES.replacen(
        "[sources.shopify]",
        "[sources.shopify]\nentity = \"{source}/{/absent}\"",
        1,
    );
    let sources = file(&folder, "sources.toml", &unrouted);
    let options = ["local", "--port", "0", "--sources", sources.to_str().unwrap()];
    let mut local = serializer(&options).stdout(Stdio::piped()).spawn().expect("it can be started");
    let mut lines = BufReader::new(local.stdout.take().unwrap()).lines().map_while(Result::ok);
    let serves = lines.find_map(|line| line.strip_prefix("webhooks   ").map(str::to_owned)).expect("it says where");
    let url = serves.trim_end_matches("/webhooks/{source}");
    let sent = ran(&["send", "--to", url, &event("shopify-orders-create.json")]);
    assert!(sent.status.success(), "{sent:?}");
    let parked = lines.find(|line| line.contains(" parked")).expect("it tells of it");
    assert!(parked.contains("orders/create parked: "), "{parked}");
    let next = lines.next().expect("the next command");
    let redrive = format!("serializer redrive --local={url} shopify/unrouted ");
    assert!(next.trim().starts_with(&redrive) && next.ends_with(" --to ORDER"), "{next}");
    for command in [&["show", "shopify/unrouted"][..], &["status"]] {
        let shown = printed(&ran(&[command, &[&format!("--local={url}")]].concat()));
        assert!(shown.contains(next.trim()), "{command:?}: {shown}");
    }
    let _ = local.kill();
    let _ = local.wait();
}

#[test]
fn changed_sources_file_is_read_or_refused_immediately() {
    let folder = folder();
    let samples = serializer::local::samples::SOURCES;
    let sources = file(&folder, "sources.toml", samples);
    let mut local = LocalProcess::start(&["--sources", sources.to_str().unwrap()]);
    for handler in ["lgo", "log", "nothing"] {
        file(&folder, "sources.toml", &samples.replace("handler = \"log\"", &format!("handler = \"{handler}\" # new")));
        // No request causes the read.
        let told = local.until(|told| told["what"].as_str().is_some_and(|what| what.starts_with("sources ")));
        assert_eq!(told["what"], if handler == "log" { "sources changed" } else { "sources kept" }, "{told}");
        assert!(handler == "log" || told["reason"].as_str().unwrap().contains(handler), "{told}");
    }
}

/// Starts a deployment whose handlers never end, and waits until one of them runs.
fn at_work() -> (LocalProcess, TcpListener, tempfile::TempDir) {
    let endpoint = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", endpoint.local_addr().unwrap());
    let forward = format!(
        "handler = \"forward\"\nforward = {{ url = \"{url}\", secret = \"whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==\", allow_private = true }}"
    );
    let folder = folder();
    let sources = serializer::local::samples::SOURCES.replacen("handler = \"log\"", &forward, 1);
    let sources = file(&folder, "sources.toml", &sources);
    let mut local = LocalProcess::start(&["--sources", sources.to_str().unwrap()]);
    assert!(local.send(&["shopify-orders-create.json"]).status.success());
    local.until(|told| told["what"] == "started");
    (local, endpoint, folder)
}

/// Promise: Ctrl-C waits for running handlers and starts no further; a second stops at once.
#[test]
fn second_interrupt_stops_local_run_immediately() {
    let (mut local, _endpoint, _folder) = at_work();
    local.interrupt();
    let mut said = String::new();
    local.errors.read_line(&mut said).unwrap();
    assert!(said.contains("waits at most 60 s for the handlers of shopify/order/450789469"), "{said}");
    local.interrupt();
    let ended = local.child.wait().expect("it ends");
    assert_eq!(ended.code(), Some(130));
    said.clear();
    local.errors.read_to_string(&mut said).unwrap();
    assert!(said.contains("stopped without waiting for the handlers"), "{said}");
}

#[test]
fn stopping_local_run_starts_no_further_delivery() {
    let (mut local, endpoint, _folder) = at_work();
    assert!(local.send(&["shopify-orders-paid.json"]).status.success());
    let (mut first, _) = endpoint.accept().expect("the first delivery");
    local.interrupt();
    let mut said = String::new();
    local.errors.read_line(&mut said).unwrap();
    assert!(said.contains("waits at most 60 s for the handlers of"), "{said}");
    first.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").expect("it reads");
    let settled = local.until(|told| told["what"] == "settled");
    assert_eq!(settled["outcome"], "applied");
    assert_eq!(local.child.wait().expect("it ends").code(), Some(0));
    endpoint.set_nonblocking(true).expect("it can be");
    let second = endpoint.accept();
    assert!(second.is_err(), "the second delivery was started: {second:?}");
}

#[test]
fn demo_counts_handler_start_of_killed_worker() {
    let played = ran(&["local", "--demo", "--plain", "--act", "killed"]);
    let shown = printed(&played);
    let row = shown.lines().find(|line| line.starts_with("shopify/order/8001 ")).expect("the order's row");
    assert!(row.contains("  RA1 … RA4  in order       5  "), "{row}");
    assert!(played.status.success());
}

#[test]
fn demo_that_cannot_go_well_is_refused_first() {
    let used = folder();
    file(&used, "note", "mine");
    let used = used.path().to_str().unwrap();
    let picture = format!("{used}/none/demo.svg");
    for (option, value, why) in [
        ("--data", used, "is not empty: name an empty folder, or leave out --data"),
        ("--svg", picture.as_str(), "demo.svg cannot be written"),
        ("--sources", "sources.toml", "leave out --demo or --sources"),
    ] {
        let refused = ran(&["local", "--demo", option, value]);
        assert!(complained(&refused).contains(why) && refused.stdout.is_empty(), "{refused:?}");
    }
}

#[test]
fn demo_names_the_redriven_delivery() {
    let played = ran(&["local", "--demo", "--plain", "--act", "parked"]);
    assert!(printed(&played).contains("\nRA1: redriven, and applied last. All others:\nin order"), "{played:?}");
    assert!(played.status.success());
}

#[test]
fn local_prints_only_send_lines_that_succeed() {
    let folder = folder();
    let document = |name: &str, text: &str| file(&folder, name, text).to_str().expect("a path in UTF-8").to_owned();
    let secret = "secrets = ['q7mZ4kT1u3rVw8Yd']\nhandler = 'log'\n";
    let mixed = format!(
        "[sources.a]\nprovider = 'paypal'\nwebhook_id = 'WID'\nhandler = 'log'\n\
         [sources.b]\nprovider = 'shopify'\nhandler = 'log'\n[sources.c]\nprovider = 'woocommerce'\n{secret}"
    );
    let paypal = "[sources.a]\nprovider = 'paypal'\nwebhook_id = 'WID'\nhandler = 'log'\n";
    for (name, text, option, provider) in [
        ("mixed.toml", mixed.as_str(), None, Some("woocommerce")),
        ("paypal.toml", paypal, Some("--development-keys"), Some("paypal")),
        ("none.toml", paypal, None, None),
        ("early.toml", "[sources.a]\nprovider = 'shopify'\nhandler = 'log'\n", None, None),
        ("guessable.toml", "[sources.a]\nprovider = 'shopify'\nsecrets = '…'\nhandler = 'log'\n", None, None),
    ] {
        let path = document(name, text);
        let options: Vec<&str> = ["--sources", &path].into_iter().chain(option).collect();
        let options = [&["local", "--port", "0", "--console-port", "0"], options.as_slice()].concat();
        let mut local = serializer(&options).stdout(Stdio::piped()).spawn().expect("it can be started");
        // The run ends if nobody reads what it prints.
        let mut lines = BufReader::new(local.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let greeting: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("Ctrl-C stops")).collect();
        let greeting = greeting.join("\n");
        let line = greeting.lines().find(|line| line.contains(" send "));
        match provider {
            Some(provider) => {
                let line = line.unwrap_or_else(|| panic!("{name}: {greeting}"));
                assert!(line.ends_with(&format!("--provider {provider}")), "{name}: {line}");
                let typed: Vec<&str> = line.split(' ').skip_while(|word| *word != "send").collect();
                let sent = ran(&typed);
                assert!(sent.status.success(), "{name}: {sent:?}");
            }
            None => {
                assert_eq!(line, None, "{name}: {greeting}");
                assert!(greeting.contains("No sample can be sent: "), "{name}: {greeting}");
            }
        }
        local.kill().expect("it runs");
        local.wait().expect("it has ended");
    }
}
