//! Reads the sources document for pages that say what delays an order.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use webhook_serializer::time::Env;

use crate::view::order_status::KnownSources;

/// Reads a deployment's sources document.
#[derive(Clone)]
pub struct SourcesReader(Arc<dyn Fn() -> BoxFuture<'static, KnownSources> + Send + Sync>);

impl SourcesReader {
    pub fn new(read: impl Fn() -> BoxFuture<'static, KnownSources> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl fmt::Debug for SourcesReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SourcesReader")
    }
}

/// The result of the last read, and the monotonic time at which it began.
#[derive(Debug, Default)]
pub(super) struct LastSources(Mutex<Option<(Duration, KnownSources)>>);

impl LastSources {
    /// Returns the last result, or reads again if the last read is older than `most`.
    pub(super) async fn get(&self, reader: &SourcesReader, most: Duration, env: &Env) -> KnownSources {
        let mut last = self.0.lock().await;
        let now = env.monotonic();
        if let Some((read_at, sources)) = &*last
            && now.saturating_sub(*read_at) < most
        {
            return sources.clone();
        }
        let sources = (reader.0)().await;
        *last = Some((now, sources.clone()));
        sources
    }
}
