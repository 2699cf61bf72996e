//! A worker with the ready-made handlers, and a handler `test` that aborts its process, blocks its thread, takes
//! seconds, hangs or rejects, as the delivery says. That handler writes its starts into the file that `JOURNAL` names.

use std::{io::Write, path::PathBuf};

use webhook_serializer::{Context, Delivery, Handler, HandlerError, Outcome, worker};

struct Aborting {
    journal: PathBuf,
}

impl Aborting {
    fn note(&self, what: &str, delivery: &Delivery) -> std::io::Result<()> {
        let mut file = std::fs::File::options().create(true).append(true).open(&self.journal)?;
        // One write, because several threads append.
        file.write_all(format!("{what} {}\n", delivery.delivery_id()).as_bytes())
    }
}

impl Handler for Aborting {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        self.note("started", delivery)?;
        self.note(&format!("process {}", std::process::id()), delivery)?;
        if delivery.delivery_id().as_str() == "abort" {
            std::process::abort();
        }
        if delivery.delivery_id().as_str().starts_with("block") {
            loop {
                std::thread::park();
            }
        }
        if delivery.delivery_id().as_str().starts_with("hang") {
            std::future::pending::<()>().await;
        }
        if delivery.delivery_id().as_str().starts_with("second") {
            context.env().sleep(std::time::Duration::from_secs(1)).await;
        }
        if delivery.delivery_id().as_str().starts_with("slow") {
            std::thread::sleep(std::time::Duration::from_secs(3));
        }
        if delivery.delivery_id().as_str() == "reject" {
            return Ok(Outcome::Reject("as it says".into()));
        }
        self.note("done", delivery)?;
        Ok(Outcome::Done)
    }
}

fn main() -> Result<(), worker::Error> {
    let journal = std::env::var_os("JOURNAL").ok_or("JOURNAL: is not set")?.into();
    worker::run_with(|setup| Ok(setup.handlers()?.with("test", Aborting { journal })))
}
