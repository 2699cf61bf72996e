//! The receiver of docs/php.md, on Postgres and MariaDB.

use std::{fs, sync::Arc};

use tests::not_run::not_run;
use webhook_serializer::{
    handler::{Deliveries, Handler, Outcome},
    handlers::forward::Forward,
    protocol::{
        delivery::{Delivery, Incoming},
        entity::Sequence,
    },
    sources::Sources,
    time::Env,
};

use crate::{
    bursts, incoming,
    mariadb::MariaDb,
    packaged::{context, post_to},
    pages::{PageReceiver, blocks, free_port, php_file},
    postgres::Postgres,
    receiver::php,
};

enum PhpDatabase {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl PhpDatabase {
    /// Returns both with the page's tables, or why one cannot be run.
    async fn all() -> Result<[Self; 2], String> {
        let databases = [Self::Postgres(Postgres::start().await?), Self::MariaDb(MariaDb::start().await?)];
        let tables = blocks("docs/php.md", "sql").concat() + "CREATE TABLE payments (order_key text, total numeric);";
        let [postgres, mariadb] = &databases;
        postgres.sql(&tables.replace(" COLLATE utf8mb4_bin", "")).await;
        mariadb.sql(&tables).await;
        Ok(databases)
    }

    async fn sql(&self, statement: &str) -> String {
        match self {
            Self::Postgres(postgres) => postgres.psql(statement).await,
            Self::MariaDb(mariadb) => mariadb.sql(statement).await,
        }
        .unwrap()
    }

    async fn number(&self, statement: &str) -> u64 {
        self.sql(statement).await.parse().unwrap()
    }

    /// Starts the page's receiver, with another work if one is given.
    async fn receiver(&self, work: Option<&str>) -> Result<PageReceiver, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = php_file(folder.path(), "apply.php");
        if let Some(work) = work {
            let page = fs::read_to_string(&file).unwrap();
            let line = page.lines().find(|line| line.contains("INTO payments")).unwrap();
            fs::write(&file, page.replace(line, work)).unwrap();
        }
        let port = free_port();
        let mut command = php(&file, port).await?;
        match self {
            Self::Postgres(postgres) => {
                let folder = postgres.folder().display();
                command.env("DSN", format!("pgsql:host={folder};dbname=postgres;user=receiver"))
            }
            Self::MariaDb(mariadb) => command.env("DSN", mariadb.dsn()).env("DB_USER", "root"),
        };
        let mut receiver = PageReceiver::start(command, port).await;
        receiver.files = Some(folder);
        Ok(receiver)
    }
}

fn delivery(source: &str, id: &str) -> Delivery {
    let body = match id {
        "broken" => "no JSON".into(),
        _ => r#"{ "total_price": "10.00" }"#.into(),
    };
    let order = format!("{source}/order/größe 1%");
    Delivery::detached(Incoming { body, ..incoming(source, &order, id, "orders/paid", &Env::system()) }, Sequence(1))
}

async fn post(receiver: &PageReceiver, id: &str, token: u64) -> Outcome {
    post_to(&receiver.url, &delivery("shop", id), token).await
}

/// Returns whether the outcome is a retry after this status.
fn is_retried(outcome: Outcome, status: u16) -> bool {
    matches!(outcome, Outcome::Retry { error, .. } if error.starts_with(&format!("the endpoint answered {status}")))
}

async fn applies_once(database: &PhpDatabase) -> Result<(), String> {
    const PAYMENTS: &str = "SELECT count(*) FROM payments";
    let [receiver, other] = [database.receiver(None).await?, database.receiver(None).await?];
    assert_eq!(post(&receiver, "1", 10).await, Outcome::Done);
    assert_eq!(post(&receiver, "2", 11).await, Outcome::Done);
    assert_eq!(post(&receiver, "2", 12).await, Outcome::Done, "its answer was lost");
    assert!(is_retried(post(&receiver, "3", 11).await, 409));
    // PHP's status would be 200, since it displays errors here.
    assert!(is_retried(post(&receiver, "broken", 13).await, 500));
    assert!(is_retried(post(&receiver, "broken", 13).await, 500));
    assert!(is_retried(post(&receiver, "3", 12).await, 409), "the token stays seen");
    assert!(is_retried(post_to(&receiver.url, &delivery("forger", "3"), 14).await, 401));
    let form = Incoming {
        content_type: Some("multipart/form-data; boundary=x".into()),
        ..incoming("shop", "shop/order/1", "form", "orders/paid", &Env::system())
    };
    let form = post_to(&receiver.url, &Delivery::detached(form, Sequence(1)), 14).await;
    let remedy = "the endpoint answered 500: PHP has parsed the form before: set enable_post_data_reading = Off";
    assert_eq!(form, Outcome::retry(remedy));
    assert_eq!(database.number(PAYMENTS).await, 2);

    let (one, two) = tokio::join!(post(&receiver, "3", 14), post(&other, "3", 14));
    assert_eq!((one, two), (Outcome::Done, Outcome::Done));
    assert_eq!(database.number(PAYMENTS).await, 3);

    let forward = Forward::new(Arc::new(Sources::parse(&bursts(&receiver.url)).unwrap()));
    for _ in 0..2 {
        let group = ["4", "5"].map(|id| delivery("bursts", id)).to_vec();
        assert_eq!(forward.handle_all(Deliveries::detached(group), &context(15)).await.unwrap(), Outcome::Done);
    }
    assert_eq!(database.number(PAYMENTS).await, 5);
    assert_eq!(database.number("SELECT count(*) FROM payments WHERE order_key = 'bursts/order/größe 1%'").await, 2);
    Ok(())
}

/// Promise: the receiver in PHP verifies, applies each delivery once and refuses old tokens, on Postgres and MariaDB; a
/// failure is never 200, even if PHP displays errors.
#[tokio::test(flavor = "multi_thread")]
async fn php_receiver_applies_once_and_refuses_old_tokens() {
    match PhpDatabase::all().await {
        Ok(databases) => {
            for database in databases {
                if let Err(reason) = applies_once(&database).await {
                    not_run(&reason);
                }
            }
        }
        Err(reason) => not_run(&reason),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn database_error_caught_in_php_is_no_success() {
    let caught = "try { $run('SELECT 1 / 0'); } catch (PDOException) {}";
    let started = async {
        let [postgres, _] = PhpDatabase::all().await?;
        let receiver = postgres.receiver(Some(caught)).await?;
        Ok::<_, String>((postgres, receiver))
    };
    match started.await {
        Ok((postgres, receiver)) => {
            assert!(is_retried(post(&receiver, "1", 7).await, 500));
            assert_eq!(postgres.number("SELECT count(*) FROM applied").await, 0);
        }
        Err(reason) => not_run(&reason),
    }
}
