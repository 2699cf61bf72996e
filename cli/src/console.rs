//! The console: what the commands show, in a browser. It serves on 127.0.0.1
//! alone, with whatever credentials its process has; pages are made here, and
//! read through the same functions as the commands.

mod actions;
mod bulk;
mod frame;
mod guard;
mod live;
mod pages;
mod plot;
mod reading;
mod trouble;

use std::{collections::VecDeque, net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use tokio::{net::TcpListener, task::AbortHandle};
use webhook_serializer::{engine::store::Store, operator::Operator, time::Env};

use crate::view::recording::Story;
use bulk::Works;
use guard::Access;
use reading::Readings;

/// The deployment that a console looks at.
#[derive(Debug, Clone)]
pub struct Watched {
    /// What is done goes through this.
    pub operator: Operator,
    /// What is read besides.
    pub store: Store,
    /// Its clock.
    pub env: Env,
    /// What says on a command line that it is this one: ` --local`, or nothing.
    pub option: String,
    /// What it is called on every page.
    pub name: String,
    /// What happens in it, where that is told in this process. Otherwise lanes are
    /// drawn from what the rows remember.
    pub story: Option<Story>,
    /// Who acts.
    pub by: String,
}

/// A running console. It ends when this is dropped.
#[derive(Debug)]
pub struct Console {
    /// Where it serves.
    pub address: SocketAddr,
    /// The address to open, with its token.
    pub url: String,
    task: AbortHandle,
}

/// What all its requests share.
#[derive(Debug)]
struct Shared {
    watched: Watched,
    access: Access,
    readings: Readings,
    works: Works,
    flashes: std::sync::Mutex<VecDeque<Flash>>,
}

/// What was done, to be said once on the next page.
#[derive(Debug, Clone)]
struct Flash {
    id: String,
    sentence: String,
    is_good: bool,
}

/// So many sentences wait to be said at most.
const FLASHES: usize = 32;

/// Where the pages about alarms look for it.
const USUAL_PORT: u16 = 9001;

impl Console {
    /// Serves `watched` on 127.0.0.1; port 0 takes any that is free.
    ///
    /// # Errors
    ///
    /// The port is taken; without one, none is free.
    pub async fn start(watched: Watched, port: Option<u16>) -> Result<Self> {
        let bind = |port| TcpListener::bind(("127.0.0.1", port));
        let listener = match port {
            Some(port) => {
                bind(port).await.with_context(|| format!("port {port} is taken; choose another for the console"))?
            }
            None => match bind(USUAL_PORT).await {
                Ok(listener) => listener,
                Err(_) => bind(0).await.context("no port is free for the console")?,
            },
        };
        let address = listener.local_addr()?;
        let access = Access::new(address.port()).context("no random token could be drawn")?;
        let url = access.url();
        let shared = Arc::new(Shared {
            watched,
            access,
            readings: Readings::default(),
            works: Works::default(),
            flashes: std::sync::Mutex::default(),
        });
        let router = pages::router(shared);
        let task = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Ok(Self { address, url, task })
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // A page that shows lanes keeps its connection open for as long as it is looked at.
        self.task.abort();
    }
}

impl Shared {
    /// Remembers a sentence for the next page; what it is called there.
    fn flash(&self, sentence: String, is_good: bool) -> String {
        let id = self.watched.env.nonce().as_str().to_owned();
        let mut flashes = self.flashes.lock().expect("no one panics while holding this");
        flashes.push_back(Flash { id: id.clone(), sentence, is_good });
        while flashes.len() > FLASHES {
            flashes.pop_front();
        }
        id
    }

    /// The sentence of that name, once.
    fn said(&self, id: &str) -> Option<Flash> {
        let mut flashes = self.flashes.lock().expect("no one panics while holding this");
        let at = flashes.iter().position(|flash| flash.id == id)?;
        flashes.remove(at)
    }
}
