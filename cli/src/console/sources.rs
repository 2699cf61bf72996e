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
    /// Returns the last result, or reads again if the last read began more than `most` before this call.
    pub(super) async fn get(&self, reader: &SourcesReader, most: Duration, env: &Env) -> KnownSources {
        let asked = env.monotonic();
        let mut last = self.0.lock().await;
        match &*last {
            // It may have begun while this call waited for the lock.
            Some((read_at, sources)) if *read_at + most >= asked => sources.clone(),
            _ => {
                let begun = env.monotonic();
                let sources = (reader.0)().await;
                *last = Some((begun, sources.clone()));
                sources
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[tokio::test]
    async fn concurrent_or_recent_reads_are_shared() {
        let reads: Arc<AtomicU32> = Arc::default();
        let counted = reads.clone();
        let env = Env::system();
        let reader = SourcesReader::new(move || {
            counted.fetch_add(1, SeqCst);
            Box::pin(async {
                tokio::task::yield_now().await;
                Ok(None)
            })
        });
        let last = LastSources::default();
        let opened = || last.get(&reader, Duration::ZERO, &env);
        let _ = tokio::join!(opened(), opened(), opened());
        assert_eq!(reads.load(SeqCst), 2, "the second read began after the third page was opened");
        let _ = last.get(&reader, Duration::from_secs(60), &env).await;
        assert_eq!(reads.load(SeqCst), 2);
        let _ = opened().await;
        assert_eq!(reads.load(SeqCst), 3);
    }
}
