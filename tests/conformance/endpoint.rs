//! The DynamoDB to compare with: the embedded one, the one at `CONFORMANCE_ENDPOINT`, or with
//! `CONFORMANCE_AWS=1` the one of the account and region whose keys are in the environment.

use std::{panic::AssertUnwindSafe, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableStatus},
};
use futures_util::FutureExt;
use serializer::local::{Engines, indexes};
use webhook_serializer::{
    aws::{
        Account,
        dynamo::{DynamoTable, TableNames},
    },
    protocol::table::TableName,
    time::{Env, Timestamp},
};

/// The DynamoDB tables of one test.
pub struct Dynamo {
    pub table: DynamoTable,
    /// The name of the handler's own table.
    pub effects: String,
    /// Differs for each test, because client tokens are remembered for longer than tables exist.
    pub nonce: String,
    /// A scan returns rows that were just written.
    pub is_fresh: bool,
    client: Client,
    names: Vec<String>,
}

/// The rules that AWS keeps and the embedded DynamoDB is known to break.
const EMBEDDED_SKIPS: &str = "comparison-with-itself-is-invalid,ordering-of-unordered-types-is-invalid";

/// Returns the rules that this endpoint is known to break, from `CONFORMANCE_SKIP`, separated by
/// commas.
pub fn skipped() -> Vec<String> {
    let names = match (std::env::var("CONFORMANCE_SKIP"), is_embedded()) {
        (Ok(names), _) => names,
        (Err(_), true) => EMBEDDED_SKIPS.to_owned(),
        (Err(_), false) => String::new(),
    };
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

pub fn is_skipped(name: &str) -> bool {
    skipped().iter().any(|each| each == name)
}

fn is_aws() -> bool {
    std::env::var("CONFORMANCE_AWS").is_ok_and(|set| set == "1")
}

fn endpoint() -> Option<String> {
    std::env::var("CONFORMANCE_ENDPOINT").ok().filter(|url| !url.is_empty())
}

fn is_embedded() -> bool {
    !is_aws() && endpoint().is_none()
}

/// Returns a number from the environment.
pub fn times(name: &str, default: u32) -> u32 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")),
        Err(_) => default,
    }
}

/// Runs `test` on new tables, which are deleted afterwards in any case.
pub fn on_dynamodb(test: impl FnOnce(&tokio::runtime::Runtime, &Dynamo)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let (account, engines) = match (is_aws(), endpoint()) {
        (true, _) => (Account::from_env().expect("region and keys are in the environment"), None),
        (false, Some(url)) => (Account::local(url.clone(), url), None),
        (false, None) => {
            let engines = runtime.block_on(Engines::start(None)).expect("the engines start");
            (engines.account(), Some(engines))
        }
    };
    let mut dynamo = Dynamo::connect(&account, !is_aws());
    let ended = runtime.block_on(AssertUnwindSafe(dynamo.create()).catch_unwind());
    let ended = ended.and_then(|()| std::panic::catch_unwind(AssertUnwindSafe(|| test(&runtime, &dynamo))));
    let deleted = runtime.block_on(dynamo.delete());
    drop(engines);
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
    assert_eq!(deleted, Vec::<String>::new(), "these tables could not be deleted");
}

impl Dynamo {
    fn connect(account: &Account, is_fresh: bool) -> Self {
        let client = account.dynamodb(&account.http_client());
        let nonce = Env::system().nonce().as_str().to_lowercase();
        let name = |table: &str| format!("conformance-{table}-{nonce}");
        let names = TableNames { entities: name("entities"), inbox: name("inbox") };
        Self {
            table: DynamoTable::new(client.clone(), names),
            effects: name("effects"),
            is_fresh,
            client,
            names: Vec::new(),
            nonce,
        }
    }

    async fn create(&mut self) {
        for (table, keys, owner) in [
            ("entities", &["entity"][..], Some(TableName::Entities)),
            ("inbox", &["entity", "item"], Some(TableName::Inbox)),
            ("effects", &["effect"], None),
        ] {
            let name = format!("conformance-{table}-{}", self.nonce);
            // Recorded before the table is created, because the reply may be lost.
            self.names.push(name.clone());
            let mut request = self.client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
            for (key, kind) in keys.iter().zip([KeyType::Hash, KeyType::Range]) {
                let element = KeySchemaElement::builder().attribute_name(*key).key_type(kind);
                let text = ScalarAttributeType::S;
                let definition = AttributeDefinition::builder().attribute_name(*key).attribute_type(text);
                request = request
                    .key_schema(element.build().expect("all is set"))
                    .attribute_definitions(definition.build().expect("all is set"));
            }
            for index in owner.iter().flat_map(indexes::of) {
                request = request
                    .attribute_definitions(indexes::sort_definition(index).expect("all is set"))
                    .global_secondary_indexes(indexes::definition(index).expect("all is set"));
            }
            request.send().await.expect("the table is created");
        }
        let env = Env::system();
        let all = self.names.iter().map(async |name| {
            while self.status(name).await != Some(TableStatus::Active) {
                env.sleep(Duration::from_millis(500)).await;
            }
        });
        let all = futures_util::future::join_all(all);
        env.within(Duration::from_secs(120), all).await.expect("the tables become active");
    }

    async fn status(&self, name: &str) -> Option<TableStatus> {
        let described = self.client.describe_table().table_name(name).send().await.ok()?;
        described.table?.table_status
    }

    /// Deletes the tables, and returns those that could not be deleted.
    async fn delete(&self) -> Vec<String> {
        let env = Env::system();
        let mut left = Vec::new();
        for name in &self.names {
            let mut deleted = false;
            for _ in 0..20 {
                match self
                    .client
                    .delete_table()
                    .table_name(name)
                    .send()
                    .await
                    .map_err(|error| error.into_service_error())
                {
                    Ok(_) => deleted = true,
                    Err(error) => deleted |= error.is_resource_not_found_exception(),
                }
                if deleted {
                    break;
                }
                // The table may still be being created.
                env.sleep(Duration::from_secs(1)).await;
            }
            if !deleted {
                left.push(name.clone());
            }
        }
        left
    }
}

/// The start of every sequence of operations.
pub const START: Timestamp = Timestamp::from_secs(1_767_225_600);
