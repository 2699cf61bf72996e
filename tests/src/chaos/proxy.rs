//! A proxy in front of the store. It can be cut off while the queue stays reachable.

use anyhow::Result;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

pub(super) struct ChaosProxy {
    url: String,
    is_cut_off: watch::Sender<bool>,
    _connections: JoinSet<()>,
}

impl ChaosProxy {
    pub(super) async fn start(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let is_cut_off = watch::Sender::new(false);
        let mut listening = JoinSet::new();
        listening.spawn(forward(listener, port, is_cut_off.clone()));
        Ok(Self { url, is_cut_off, _connections: listening })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn cut_off(&self, is_cut_off: bool) {
        self.is_cut_off.send_replace(is_cut_off);
    }
}

async fn forward(listener: TcpListener, port: u16, is_cut_off: watch::Sender<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((mut outside, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let mut is_cut_off = is_cut_off.subscribe();
        connections.spawn(async move {
            let forwarding = async {
                let mut inside = TcpStream::connect(("127.0.0.1", port)).await?;
                copy_bidirectional(&mut outside, &mut inside).await
            };
            tokio::select! {
                biased;
                _ = is_cut_off.wait_for(|is_cut_off| *is_cut_off) => {}
                _ = forwarding => {}
            }
        });
    }
}
