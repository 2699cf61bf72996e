//! The local queue's file, faults and shutdown.

use std::{
    io::{BufRead, BufReader},
    num::NonZeroU32,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use aws_sdk_sqs::{Client, types::QueueAttributeName};
use serializer::local::queue::{
    Code, Counts, NewMessage, QueueFaults, QueueSettings, Queues, Receive, RedrivePolicy, clock::ManualClock,
    queue_url, serve,
};
use tokio::{net::TcpListener, sync::oneshot};

use crate::fixture::{QUEUE, QueueFixture, client, code, counts, deletion, handle, manual_clock, receive};

const AT_ONCE: Receive = Receive { max_messages: 10, visibility_timeout: None, wait: Duration::ZERO };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn memory() -> (Queues, Arc<ManualClock>) {
    let clock = manual_clock();
    (Queues::memory([QueueSettings::named(QUEUE)]).expect("memory").with_clock(clock.clone()), clock)
}

fn unused_file(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.sqlite", std::process::id()));
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    path
}

/// Starts `helpers/serve_queue.rs` on this file. Returns the process, a client and the queue's URL.
fn serve_elsewhere(path: &PathBuf) -> (Child, Client, String) {
    let mut child =
        Command::new(env!("CARGO_BIN_EXE_serve_queue")).arg(path).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut url = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut url).expect("it prints the URL");
    let url = url.trim().to_owned();
    let endpoint = url.rsplitn(3, '/').last().expect("host and port").to_owned();
    (child, client(&endpoint), url)
}

async fn delete(sqs: &Client, url: &str, handle: &str) {
    let deleted = sqs.delete_message_batch().queue_url(url).entries(deletion("0", handle)).send().await;
    assert!(deleted.expect("answered").failed().is_empty());
}

/// Promise: `--data` survives `kill -9`.
#[tokio::test]
async fn killed_queue_keeps_effect_of_every_answered_request() {
    let path = unused_file("killed");
    let (mut child, sqs, url) = serve_elsewhere(&path);
    for body in 0..100 {
        sqs.send_message().queue_url(&url).message_body(body.to_string()).send().await.expect("sent");
    }
    let received = receive(&sqs, &url, 0).await;
    let [deleted, held @ ..] = &received[..] else { panic!("ten messages") };
    delete(&sqs, &url, handle(deleted)).await;
    child.kill().expect("it is our child");
    child.wait().expect("it ended");

    let (mut child, sqs, url) = serve_elsewhere(&path);
    assert_eq!(counts(&sqs, &url).await, ["90", "9", "0"]);
    // A receipt handle from before the restart works after it.
    delete(&sqs, &url, handle(&held[0])).await;
    child.kill().expect("it is our child");
    child.wait().expect("it ended");

    let queues = Queues::open(&path, [QueueSettings::named(QUEUE)]).expect("free again");
    assert_eq!(queues.counts(QUEUE).expect("counted").total(), 98);
}

#[test]
fn queue_file_in_use_is_refused() {
    let path = unused_file("shared");
    let queues = Queues::open(&path, []).expect("the first");
    assert_eq!(Queues::open(&path, []).expect_err("the second").code, Code::InternalFailure);
    drop(queues);
    Queues::open(&path, []).expect("free again");
}

#[test]
fn unknown_dead_letter_queue_is_refused() {
    let redrive = Some(RedrivePolicy { dead_letters: "nowhere".to_owned(), max_receives: 3 });
    let refused = Queues::memory([QueueSettings { redrive, ..QueueSettings::named(QUEUE) }]);
    assert_eq!(refused.expect_err("no such queue").code, Code::InvalidParameterValue);
}

#[tokio::test]
async fn injected_fault_duplicates_every_second_message() {
    let (queues, _) = memory();
    let queues = queues.with_faults(QueueFaults { duplicate_every: NonZeroU32::new(2) });
    for body in ["a", "b"] {
        queues.send(QUEUE, &NewMessage::with_body(body)).expect("sent");
    }
    let first = queues.receive(QUEUE, AT_ONCE).await.expect("received");
    let second = queues.receive(QUEUE, AT_ONCE).await.expect("received");
    assert_eq!((first.len(), second.len()), (2, 1));
    assert_eq!((&second[0].message_id, second[0].receive_count), (&first[1].message_id, 2));
}

#[tokio::test]
async fn cancelled_receive_takes_no_message() {
    let (queues, clock) = memory();
    let wait = Receive { wait: seconds(20), ..AT_ONCE };
    tokio::select! {
        received = queues.receive(QUEUE, wait) => panic!("{received:?}"),
        () = clock.until_waited_for_by(1) => {}
    }
    queues.send(QUEUE, &NewMessage::with_body("for the next")).expect("sent");
    assert_eq!(queues.receive(QUEUE, wait).await.expect("received").len(), 1);
}

#[tokio::test]
async fn queue_waiter_notices_deletes_and_elapsed_delays() {
    let (queues, clock) = memory();
    queues.send(QUEUE, &NewMessage::with_body("work")).expect("sent");
    queues.send(QUEUE, &NewMessage { delay: seconds(5), ..NewMessage::with_body("later") }).expect("sent");
    let (counts, ()) = tokio::join!(queues.until(QUEUE, |counts| counts.total() == counts.delayed), async {
        let messages = queues.receive(QUEUE, AT_ONCE).await.expect("received");
        queues.delete(QUEUE, &messages[0].receipt_handle).expect("deleted");
    });
    assert_eq!(counts.expect("counted"), Counts { delayed: 1, ..Counts::default() });
    let (counts, ()) = tokio::join!(queues.until(QUEUE, |counts| counts.visible > 0), async {
        clock.until_waited_for_by(1).await;
        clock.advance(seconds(5));
    });
    assert_eq!(counts.expect("counted"), Counts { visible: 1, ..Counts::default() });
}

#[tokio::test]
async fn queue_shutdown_answers_long_polls() {
    let (queues, clock) = memory();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let sqs = client(&format!("http://{address}"));
    let url = queue_url(address, QUEUE);
    let (stop, stopped) = oneshot::channel::<()>();
    // The client keeps its connection open, which must not delay the server's end.
    let (served, received, ()) = tokio::join!(
        serve(listener, Arc::new(queues), async { drop(stopped.await) }),
        sqs.receive_message().queue_url(url).wait_time_seconds(20).send(),
        async {
            clock.until_waited_for_by(1).await;
            stop.send(()).expect("it still serves");
        },
    );
    served.expect("it ends");
    assert!(received.expect("an answer").messages().is_empty());
}

#[tokio::test]
async fn queue_messages_are_counted_by_state() {
    let queue = QueueFixture::with(2, 100).await;
    for body in ["a", "b", "c"] {
        queue.send(body).await;
    }
    queue.send_delayed("d", 1).await.expect("sent");
    queue.receive_for(2).await;
    assert_eq!(queue.counts().await, ["2", "1", "1"]);
    queue.pass(1);
    assert_eq!(queue.counts().await, ["3", "1", "0"]);
    queue.pass(1);
    assert_eq!(queue.counts().await, ["4", "0", "0"]);
}

#[tokio::test]
async fn unknown_attributes_and_actions_are_refused() {
    let queue = QueueFixture::start().await;
    let get = queue.sqs.get_queue_attributes().queue_url(&queue.url);
    let timeout = get.clone().attribute_names(QueueAttributeName::VisibilityTimeout).send().await;
    let expected = [(QueueAttributeName::VisibilityTimeout, "30".to_owned())];
    assert_eq!(timeout.expect("answered").attributes, Some(expected.into_iter().collect()));
    let refused = get.attribute_names("NoSuchAttribute".into()).send().await;
    assert_eq!(refused.map_err(code).expect_err("unknown"), "InvalidAttributeName");
    let refused = queue.sqs.delete_queue().queue_url(&queue.url).send().await;
    assert_eq!(refused.map_err(code).expect_err("unknown"), "UnknownOperationException");
}
