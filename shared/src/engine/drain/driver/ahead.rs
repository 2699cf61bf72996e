//! Reads the next page while a delivery is handled or settled.

use std::{pin::pin, time::Duration};

use futures_util::future::{BoxFuture, Either, FutureExt, OptionFuture, select};

use super::Driver;
use crate::engine::{drain::page::InboxPage, store::StoreError};

/// The wait for the next page, from the end of the settle or commit on. After it, the drain reads the page again: the
/// reply may be lost.
const LATE_PAGE: Duration = Duration::from_millis(250);

pub(super) type PageAhead<'a> = BoxFuture<'a, Result<InboxPage, StoreError>>;

impl<'a> Driver<'a> {
    /// Begins to read the next page. Returns `None` if no delivery is left to read, or if enough
    /// deliveries are already read for another full group.
    ///
    /// The first `in_front` deliveries do not count, because they are being handled or settled.
    pub(super) fn page_ahead(&self, in_front: usize) -> Option<PageAhead<'a>> {
        let (from, to) = self.drain.ahead(in_front, self.source.as_ref())?;
        let unread = self.drain.unread();
        let store = &self.drainer.store;
        let entity = self.drain.state().entity.clone();
        Some(async move { InboxPage::read(store, &entity, from, to, unread).await }.boxed())
    }

    /// Keeps the next page. An error occurs again when the page is needed.
    pub(super) fn keep_ahead(&mut self, page: Option<Result<InboxPage, StoreError>>) {
        if let Some(Ok(page)) = page {
            self.drain.read_ahead(page);
        }
    }

    /// Carries out a write that settles deliveries. At the same time, reads the next page, because the
    /// inbox may have grown during the handler's run.
    pub(super) async fn reading_ahead<T>(&mut self, in_front: usize, write: impl Future<Output = T>) -> T {
        let ahead = self.ahead.take().or_else(|| self.page_ahead(in_front));
        let (written, page) = match select(pin!(write), OptionFuture::from(ahead)).await {
            Either::Left((written, ahead)) => {
                (written, self.drainer.store.env().within(LATE_PAGE, ahead).await.flatten())
            }
            Either::Right((page, write)) => (write.await, page),
        };
        self.keep_ahead(page);
        written
    }
}
