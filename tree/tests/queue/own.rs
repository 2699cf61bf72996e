//! What only the stand-in has: its file, its clock, its faults, its view from inside; and rules that take a minute or
//! more elsewhere.

use std::io::{BufRead, BufReader};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use serializer::local::queue::clock::ManualClock;
use serializer::local::queue::message::NewMessage;
use serializer::local::queue::{Code, Counts, Faults, QueueSettings, Queues, Receive, Redrive, queue_url, serve};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::bench::{client, code, manual_clock, serve_forever};

const AT_ONCE: Receive = Receive { max_messages: 10, visibility_timeout: None, wait: None };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A queue of this name in memory, on a manual clock.
fn one_queue(settings: QueueSettings) -> (Queues, Arc<ManualClock>) {
    let clock = manual_clock();
    (Queues::memory([settings]).expect("memory").with_clock(clock.clone()), clock)
}

/// A path at which no file is yet.
fn unused_file(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.sqlite", std::process::id()));
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    path
}

/// `helpers/serve_queue.rs` on this file; the process and a client with the queue's URL.
fn served_elsewhere(path: &PathBuf) -> (Child, Client, String) {
    let mut child =
        Command::new(env!("CARGO_BIN_EXE_serve_queue")).arg(path).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut url = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut url).expect("it prints the URL");
    let url = url.trim().to_owned();
    let endpoint = url.rsplitn(3, '/').last().expect("host and port").to_owned();
    (child, client(&endpoint), url)
}

#[tokio::test]
async fn what_was_answered_survives_a_kill() {
    let path = unused_file("killed");
    let (mut child, sqs, url) = served_elsewhere(&path);
    for body in 0..100 {
        sqs.send_message().queue_url(&url).message_body(body.to_string()).send().await.expect("sent");
    }
    let receive = sqs.receive_message().queue_url(&url).max_number_of_messages(10).send().await.expect("received");
    let [deleted, held @ ..] = receive.messages() else { panic!("ten messages") };
    let delete = sqs.delete_message().queue_url(&url).set_receipt_handle(deleted.receipt_handle.clone());
    delete.send().await.expect("deleted");
    child.kill().expect("it is our child");
    child.wait().expect("it ended");

    let (mut child, sqs, url) = served_elsewhere(&path);
    let counts = sqs.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::All).send().await;
    let counts = counts.expect("counted").attributes.expect("some");
    assert_eq!(counts[&QueueAttributeName::ApproximateNumberOfMessages], "90");
    assert_eq!(counts[&QueueAttributeName::ApproximateNumberOfMessagesNotVisible], "9");
    let delete = sqs.delete_message().queue_url(&url).set_receipt_handle(held[0].receipt_handle.clone());
    delete.send().await.expect("a receipt handle is good after the restart");
    child.kill().expect("it is our child");
    child.wait().expect("it ended");

    let queues = Queues::open(&path, []).expect("free again");
    assert_eq!(queues.counts("wake-ups").expect("counted").total(), 98);
}

#[tokio::test]
async fn a_file_has_one_owner_at_a_time() {
    let path = unused_file("shared");
    let queues = Queues::open(&path, []).expect("the first");
    assert_eq!(Queues::open(&path, []).expect_err("the second").code, Code::InternalFailure);
    drop(queues);
    Queues::open(&path, []).expect("free again");
}

#[tokio::test]
async fn settings_given_at_the_start_replace_those_in_the_file_and_leave_the_rest() {
    let path = unused_file("settings");
    let redrive = Some(Redrive { dead_letters: "dead".to_owned(), max_receives: 3 });
    let wake_ups = QueueSettings { redrive, ..QueueSettings::named("wake-ups") };
    let queues = Queues::open(&path, [wake_ups.clone(), QueueSettings::named("dead")]).expect("new");
    queues.send("dead", NewMessage::with_body("kept")).expect("sent");
    drop(queues);

    let queues = Queues::open(&path, [QueueSettings { delay: seconds(9), ..wake_ups }]).expect("again");
    assert_eq!(queues.names(), ["dead", "wake-ups"]);
    assert_eq!(queues.counts("dead").expect("counted").visible, 1);
    queues.send("wake-ups", NewMessage::with_body("delayed")).expect("sent");
    assert_eq!(queues.counts("wake-ups").expect("counted").delayed, 1);
}

#[test]
fn a_dead_letter_queue_that_does_not_exist_is_refused_at_the_start() {
    let redrive = Some(Redrive { dead_letters: "nowhere".to_owned(), max_receives: 3 });
    let refused = Queues::memory([QueueSettings { redrive, ..QueueSettings::named("wake-ups") }]);
    assert_eq!(refused.expect_err("no such queue").code, Code::InvalidParameterValue);
}

#[tokio::test]
async fn a_message_is_dropped_at_the_end_of_its_retention() {
    let (queues, clock) = one_queue(QueueSettings { retention: seconds(60), ..QueueSettings::named("wake-ups") });
    queues.send("wake-ups", NewMessage::with_body("first")).expect("sent");
    clock.advance(seconds(30));
    queues.send("wake-ups", NewMessage::with_body("second")).expect("sent");
    clock.advance(seconds(30));
    let messages = queues.receive("wake-ups", AT_ONCE).await.expect("received");
    assert_eq!(messages.iter().map(|it| it.body.as_str()).collect::<Vec<_>>(), ["second"]);
    clock.advance(seconds(30));
    assert_eq!(queues.counts("wake-ups").expect("counted"), Counts::default());
}

#[test]
fn a_queue_is_purged_once_a_minute() {
    let (queues, clock) = one_queue(QueueSettings::named("wake-ups"));
    queues.purge("wake-ups").expect("the first");
    clock.advance(seconds(59));
    assert_eq!(queues.purge("wake-ups").expect_err("too soon").code, Code::PurgeQueueInProgress);
    clock.advance(seconds(1));
    queues.purge("wake-ups").expect("a minute later");
}

#[tokio::test]
async fn every_so_many_deliveries_are_duplicated_if_asked_for() {
    let (queues, _) = one_queue(QueueSettings::named("wake-ups"));
    let queues = queues.with_faults(Faults { duplicate_every: NonZeroU32::new(2) });
    for body in ["a", "b"] {
        queues.send("wake-ups", NewMessage::with_body(body)).expect("sent");
    }
    let first = queues.receive("wake-ups", AT_ONCE).await.expect("received");
    let second = queues.receive("wake-ups", AT_ONCE).await.expect("received");
    assert_eq!(first.len(), 2);
    assert_eq!(second.len(), 1);
    assert_eq!(second[0].message_id, first[1].message_id);
    assert_eq!(second[0].receive_count, 2);
}

#[tokio::test]
async fn a_dropped_receive_takes_nothing() {
    let (queues, clock) = one_queue(QueueSettings::named("wake-ups"));
    let wait = Receive { wait: Some(seconds(20)), ..AT_ONCE };
    tokio::select! {
        received = queues.receive("wake-ups", wait) => panic!("{received:?}"),
        () = clock.until_waited_for_by(1) => {}
    }
    queues.send("wake-ups", NewMessage::with_body("for the next")).expect("sent");
    assert_eq!(queues.receive("wake-ups", wait).await.expect("received").len(), 1);
}

#[tokio::test]
async fn a_runner_can_wait_until_a_queue_is_idle() {
    let (queues, clock) = one_queue(QueueSettings::named("wake-ups"));
    queues.send("wake-ups", NewMessage::with_body("work")).expect("sent");
    let later = NewMessage { delay: Some(seconds(5)), ..NewMessage::with_body("later") };
    queues.send("wake-ups", later).expect("sent");
    let (idle, ()) = tokio::join!(queues.until("wake-ups", Counts::is_idle), async {
        let messages = queues.receive("wake-ups", AT_ONCE).await.expect("received");
        queues.delete("wake-ups", &messages[0].receipt_handle).expect("deleted");
    });
    assert_eq!(idle.expect("idle"), Counts { delayed: 1, ..Counts::default() });

    let (busy, ()) = tokio::join!(queues.until("wake-ups", |counts| !counts.is_idle()), async {
        clock.until_waited_for_by(1).await;
        clock.advance(seconds(5));
    });
    assert_eq!(busy.expect("busy"), Counts { visible: 1, ..Counts::default() });
}

#[tokio::test]
async fn a_shutdown_answers_who_waits_and_then_ends() {
    let (queues, clock) = one_queue(QueueSettings::named("wake-ups"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let sqs = client(&format!("http://{address}"));
    let url = queue_url(address, "wake-ups");
    let (stop, stopped) = oneshot::channel::<()>();
    let (served, received, ()) = tokio::join!(
        serve(listener, Arc::new(queues), async { drop(stopped.await) }),
        async {
            let received = sqs.receive_message().queue_url(url).wait_time_seconds(20).send().await;
            // The client keeps its connection for the next request, which is no reason not to end.
            (received, sqs)
        },
        async {
            clock.until_waited_for_by(1).await;
            stop.send(()).expect("it still serves");
        },
    );
    served.expect("it ends");
    assert!(received.0.expect("an answer").messages().is_empty());
}

#[tokio::test]
async fn what_is_not_modelled_is_refused_rather_than_ignored() {
    let address = serve_forever(Arc::new(Queues::memory([QueueSettings::named("wake-ups")]).expect("memory"))).await;
    let sqs = client(&format!("http://{address}"));
    let url = queue_url(address, "wake-ups");
    let unsupported = "AWS.SimpleQueueService.UnsupportedOperation";

    let fifo = sqs.create_queue().queue_name("fifo").attributes(QueueAttributeName::FifoQueue, "true").send().await;
    assert_eq!(fifo.map_err(code).expect_err("not here"), unsupported);
    let blob = aws_sdk_sqs::primitives::Blob::new([1, 2, 3]);
    let binary =
        MessageAttributeValue::builder().data_type("Binary").binary_value(blob).build().expect("a type is set");
    let send = sqs.send_message().queue_url(&url).message_body("with a blob").message_attributes("blob", binary);
    assert_eq!(send.send().await.map_err(code).expect_err("not here"), unsupported);
    let deleted = sqs.delete_queue().queue_url(&url).send().await;
    assert_eq!(deleted.map_err(code).expect_err("not here"), "UnknownOperationException");
}
