//! Serves one queue from a file until it is killed: `serve_queue FILE` prints the queue's URL.

use std::path::PathBuf;
use std::sync::Arc;

use serializer::local::queue::{QueueSettings, Queues, queue_url, serve};
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path: PathBuf = std::env::args_os().nth(1).ok_or("which file?")?.into();
    let queues = Queues::open(&path, [QueueSettings::named("wake-ups")])?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", queue_url(listener.local_addr()?, "wake-ups"));
    Ok(serve(listener, Arc::new(queues), std::future::pending()).await?)
}
