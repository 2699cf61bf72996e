//! A full disk, imitated by the kernel's limit on a process's file sizes: writes fail as soon as the limit is set.

use std::{
    io::BufRead,
    process::{Child, Command},
};

use aws_sdk_sqs::{
    error::ProvideErrorMetadata,
    types::{ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, QueueAttributeName},
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use webhook_serializer::aws::Account;

use crate::running::{LocalProcess, complained, folder, printed, serializer};

const SAMPLES: [&str; 2] = ["shopify-orders-create.json", "woocommerce-order-created.json"];

fn limit_files(child: &Child, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(Pid::from_child(child)), Resource::Fsize, limit).expect("the limit of a child can be set");
}

fn fill_disk(child: &Child) {
    limit_files(child, Some(1));
}

fn free_disk(child: &Child) {
    limit_files(child, None);
}

/// Returns `command` in a shell that ignores SIGXFSZ, so that a write over the limit fails instead of ending the
/// process.
fn outliving_limits(command: &Command, setup: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("trap '' XFSZ; {setup} exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

fn start(data: &str) -> LocalProcess {
    LocalProcess::spawn(outliving_limits(&serializer(&["local", "--port", "0", "--json", "--data", data]), ""))
}

/// Promise: on a full disk, `local` answers 503 and keeps what it has accepted.
#[test]
fn full_disk_answers_503_and_loses_no_webhook() {
    let folder = folder();
    let data = folder.path().to_str().unwrap();
    let mut local = start(data);
    local.apply_sample();
    fill_disk(&local.child);
    let sent = local.send(&SAMPLES);
    assert_eq!(printed(&sent).lines().filter(|line| line.starts_with("503 ")).count(), 2, "{sent:?}");
    for source in ["shopify", "woocommerce"] {
        let mut logged = (&mut local.errors).lines().map_while(Result::ok);
        let logged = logged.find(|line| line.contains("not stored") && line.contains(source));
        assert!(logged.expect("the run goes on").contains("disk I/O error"));
    }
    free_disk(&local.child);
    // Shopify's was stored before the disk was full.
    let sent = local.send(&SAMPLES);
    assert!(sent.status.success(), "{sent:?}");
    let mut left = vec![("shopify/order/450789469", "repeat"), ("woocommerce/order/727", "applied")];
    local.until(|told| {
        left.retain(|(order, outcome)| told["entity"] != *order || told["outcome"] != *outcome);
        left.is_empty()
    });
}

#[test]
fn killed_local_run_keeps_accepted_webhooks() {
    let folder = folder();
    let data = folder.path().to_str().unwrap();
    let mut local = start(data);
    assert!(local.send(&SAMPLES).status.success());
    fill_disk(&local.child);
    local.child.kill().expect("it is our child");
    local.child.wait().expect("it ends");

    let refused = outliving_limits(&serializer(&["local", "--port", "0", "--data", data]), "ulimit -f 0;").output();
    let complaint = complained(&refused.expect("it can be run"));
    assert!(complaint.contains(&format!("error: the data folder {data} cannot be written to: ")), "{complaint}");

    let local = start(data);
    for (order, topic) in [("shopify/order/450789469", "orders/create"), ("woocommerce/order/727", "order.created")] {
        let shown = printed(&local.ran(&["show", order]));
        assert!(shown.contains(topic), "{shown}");
    }
}

/// Reads what `serializer local` answers to AWS's own client. No worker receives from this queue.
#[tokio::test]
async fn full_disk_refuses_every_change_of_queue() {
    let folder = folder();
    let local = start(folder.path().to_str().unwrap());
    let url = format!("{}/000000000000/dead-letters", local.queue);
    let account = Account::local("", local.queue.clone());
    let sqs = account.sqs(&account.http_client());
    let send = || async { sqs.send_message().queue_url(&url).message_body("{}").send().await.map(drop).map_err(code) };
    let receive = || async {
        let received = sqs.receive_message().queue_url(&url).send().await.map_err(code);
        received.map(|received| received.messages.unwrap_or_default())
    };
    for _ in 0..2 {
        send().await.expect("sent");
    }
    let [message] = &receive().await.expect("received")[..] else { panic!("one message") };
    let receipt = message.receipt_handle().expect("each message has one");
    let refused = "InternalFailure".to_owned();
    fill_disk(&local.child);
    assert_eq!(send().await, Err(refused.clone()));
    assert_eq!(receive().await, Err(refused));
    let entry = DeleteMessageBatchRequestEntry::builder().id("0").receipt_handle(receipt).build();
    let delete = sqs.delete_message_batch().queue_url(&url).entries(entry.expect("it is complete")).send();
    assert_eq!(delete.await.expect("answered").failed().len(), 1);
    let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id("0").receipt_handle(receipt);
    let entry = entry.visibility_timeout(0).build().expect("it is complete");
    let change = sqs.change_message_visibility_batch().queue_url(&url).entries(entry).send();
    assert_eq!(change.await.expect("answered").failed().len(), 1);

    free_disk(&local.child);
    send().await.expect("sent");
    let counts = sqs.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::All).send().await;
    let counts = counts.expect("counted").attributes.expect("counts");
    assert_eq!(counts[&QueueAttributeName::ApproximateNumberOfMessages], "2");
    assert_eq!(counts[&QueueAttributeName::ApproximateNumberOfMessagesNotVisible], "1");
}

fn code(error: impl ProvideErrorMetadata + std::fmt::Debug) -> String {
    error.code().map_or_else(|| format!("no code: {error:?}"), ToOwned::to_owned)
}

#[test]
fn full_disk_leaves_sources_file_unchanged() {
    let folder = folder();
    let document = "[sources.shop]\nprovider = \"shopify\"\nsecrets = [\"a-long-enough-secret\"]\nhandler = \"log\"\n";
    let [sources, absent] = ["sources.toml", "absent.toml"].map(|name| folder.path().join(name));
    std::fs::write(&sources, document).expect("it can be written");
    for file in [&sources, &absent] {
        let file = file.to_str().expect("a path in UTF-8");
        let add = ["source", "add", "pay", "--provider", "shopify", "--handler", "log", "--yes", "--sources", file];
        let mut command = outliving_limits(&serializer(&add), "ulimit -f 0; echo a-long-enough-secret |");
        let refused = command.output().expect("it can be run");
        assert!(complained(&refused).contains(&format!("{file} cannot be written")), "{refused:?}");
    }
    assert_eq!(std::fs::read_to_string(&sources).expect("it is there"), document);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "no other file is left");
}
