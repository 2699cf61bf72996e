//! Notes the `Date` of each reply of DynamoDB, which shows the store's time.

use std::time::Duration;

use aws_smithy_types::{DateTime, date_time::Format};
use http::{HeaderMap, header::DATE};

use crate::time::{Env, Timestamp};

/// Notes in `env` a reply's `Date`, if it has one. `sent` is the time at which the request was sent, by the monotonic
/// clock.
pub(super) fn note(env: &Env, headers: &HeaderMap, sent: Duration) {
    let date = headers.get(DATE).and_then(|date| DateTime::from_str(date.to_str().ok()?, Format::HttpDate).ok());
    if let Some(Ok(seconds)) = date.map(|date| u64::try_from(date.secs())) {
        env.note_reply(Timestamp::from_secs(seconds), sent);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::{
        aws::{
            Account, Http,
            dynamo::{DynamoTable, TableNames},
        },
        protocol::{entity::EntityKey, keys::entity_row, table::Table},
        time::{Clock, SystemClock, SystemRandom},
        tls::endpoint::{Endpoint, EndpointReply},
    };

    const DATE: Timestamp = Timestamp::from_secs(1_767_225_600);
    const MACHINE: Timestamp = Timestamp::from_secs(1_000_000_000);

    #[derive(Debug)]
    struct WrongClock(SystemClock);

    impl Clock for WrongClock {
        fn now(&self) -> Timestamp {
            MACHINE
        }

        fn monotonic(&self) -> Duration {
            self.0.monotonic()
        }

        fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
            self.0.sleep(duration)
        }
    }

    /// Returns what is known of the store's time after one request to an endpoint that replies with `reply`.
    async fn reached(reply: fn() -> EndpointReply, ask: impl AsyncFnOnce(&Account, &Http, &Env)) -> Timestamp {
        let endpoint = Endpoint::start(move |_| reply()).await;
        let account = Account::local(endpoint.url(), endpoint.url());
        let env = Env::new(WrongClock(SystemClock::start()), SystemRandom);
        ask(&account, &account.http_client(), &env).await;
        assert_eq!(env.machine_now(), MACHINE);
        assert!(env.now() >= env.reached());
        env.reached()
    }

    async fn read(account: &Account, http: &Http, env: &Env) {
        let names = TableNames { entities: "entities".into(), inbox: "inbox".into() };
        let table: Arc<dyn Table> = Arc::new(DynamoTable::new(account.dynamodb(&http.dated(env)), names));
        let _ = table.get(&entity_row(&EntityKey::parse("n/a").unwrap())).await;
    }

    fn with_date(reply: EndpointReply) -> EndpointReply {
        reply.with("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
    }

    #[tokio::test]
    async fn each_dated_reply_shows_the_store_time() {
        assert_eq!(reached(|| with_date(EndpointReply::of(b"{}")), read).await, DATE);
        assert_eq!(reached(|| with_date(EndpointReply::status(400)), read).await, DATE);
        let warm = async |account: &Account, http: &Http, env: &Env| account.warm_table(http, env).await;
        assert_eq!(reached(|| with_date(EndpointReply::status(200)), warm).await, DATE);
    }

    #[tokio::test]
    async fn reply_without_date_leaves_the_machine_clock() {
        assert_eq!(reached(|| EndpointReply::of(b"{}"), read).await, MACHINE);
        assert_eq!(reached(|| EndpointReply::of(b"{}").with("Date", "today"), read).await, MACHINE);
    }
}
