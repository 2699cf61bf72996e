//! Notes the `Date` of each reply of DynamoDB, which shows the store's time.

use std::time::Duration;

use aws_sdk_dynamodb::config::SharedHttpClient;
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn},
    orchestrator::HttpRequest,
};
use aws_smithy_types::{DateTime, date_time::Format};

use crate::time::{Env, Timestamp};

#[derive(Debug)]
struct Dated {
    connector: SharedHttpConnector,
    env: Env,
}

/// Returns a client that sends over `http`, and notes in `env` the `Date` of each reply.
pub(super) fn dated(http: &SharedHttpClient, env: &Env) -> SharedHttpClient {
    let http = http.clone();
    let env = env.clone();
    http_client_fn(move |settings, components| {
        use aws_smithy_runtime_api::client::http::HttpClient;
        SharedHttpConnector::new(Dated { connector: http.http_connector(settings, components), env: env.clone() })
    })
}

impl HttpConnector for Dated {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let env = self.env.clone();
        let sent = self.env.monotonic();
        let answer = self.connector.call(request);
        HttpConnectorFuture::new(async move {
            let answer = answer.await?;
            note(&env, answer.headers().get("date"), sent);
            Ok(answer)
        })
    }
}

/// Notes a reply's `Date`. `sent` is the time at which the request was sent, by the monotonic clock.
fn note(env: &Env, date: Option<&str>, sent: Duration) {
    let date = date.and_then(|date| DateTime::from_str(date, Format::HttpDate).ok());
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
            Account,
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
    async fn reached(
        reply: fn() -> EndpointReply,
        ask: impl AsyncFnOnce(&Account, &SharedHttpClient, &Env),
    ) -> Timestamp {
        let endpoint = Endpoint::start(move |_| reply()).await;
        let account = Account::local(endpoint.url(), endpoint.url());
        let env = Env::new(WrongClock(SystemClock::start()), SystemRandom);
        ask(&account, &account.http_client(), &env).await;
        assert_eq!(env.machine_now(), MACHINE);
        assert!(env.now() >= env.reached());
        env.reached()
    }

    async fn read(account: &Account, http: &SharedHttpClient, env: &Env) {
        let names = TableNames { entities: "entities".into(), inbox: "inbox".into() };
        let table: Arc<dyn Table> = Arc::new(DynamoTable::new(account.dynamodb(&dated(http, env)), names));
        let _ = table.get(&entity_row(&EntityKey::parse("n/a").unwrap())).await;
    }

    fn with_date(reply: EndpointReply) -> EndpointReply {
        reply.with("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
    }

    #[tokio::test]
    async fn each_dated_reply_shows_the_store_time() {
        assert_eq!(reached(|| with_date(EndpointReply::of(b"{}")), read).await, DATE);
        assert_eq!(reached(|| with_date(EndpointReply::status(400)), read).await, DATE);
        let warm = async |account: &Account, http: &SharedHttpClient, env: &Env| account.warm_table(http, env).await;
        assert_eq!(reached(|| with_date(EndpointReply::status(200)), warm).await, DATE);
    }

    #[tokio::test]
    async fn reply_without_date_leaves_the_machine_clock() {
        assert_eq!(reached(|| EndpointReply::of(b"{}"), read).await, MACHINE);
        assert_eq!(reached(|| EndpointReply::of(b"{}").with("Date", "today"), read).await, MACHINE);
    }
}
