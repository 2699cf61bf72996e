//! A gate in front of the store: what stands behind it can be reached, or cannot,
//! while the queue can.

use anyhow::Result;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// Passes connections on, until it is shut.
pub(super) struct Gate {
    url: String,
    is_shut: watch::Sender<bool>,
    _passing: JoinSet<()>,
}

impl Gate {
    /// A gate that stands open, in front of `port` of this machine.
    pub(super) async fn before(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let is_shut = watch::Sender::new(false);
        let mut passing = JoinSet::new();
        passing.spawn(pass(listener, port, is_shut.clone()));
        Ok(Self { url, is_shut, _passing: passing })
    }

    /// Where it stands.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Whether it lets anything through from now on. What passes is cut off.
    pub(super) fn shut(&self, is_shut: bool) {
        self.is_shut.send_replace(is_shut);
    }
}

async fn pass(listener: TcpListener, port: u16, is_shut: watch::Sender<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((mut outside, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let mut is_shut = is_shut.subscribe();
        connections.spawn(async move {
            let through = async {
                let mut inside = TcpStream::connect(("127.0.0.1", port)).await?;
                copy_bidirectional(&mut outside, &mut inside).await
            };
            tokio::select! {
                biased;
                _ = is_shut.wait_for(|is_shut| *is_shut) => {}
                _ = through => {}
            }
        });
    }
}
