//! The embedded DynamoDB and queue, served on loopback.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow};
use aws_sdk_dynamodb::{
    Client,
    types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType},
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use webhook_serializer::{
    aws::{Account, Parts, meter::Meter},
    config::StoreConfig,
    protocol::table::TableName,
    time::Env,
};

use super::{
    LOOPBACK, VISIBILITY_TIMEOUT, bind,
    folder::{self, Folder},
    indexes,
    queue::{self, QueueFaults, QueueSettings, Queues, RedrivePolicy},
    stopped,
};

/// A table with the key attribute `order`, for handlers that commit separate rows.
pub const TOTALS_TABLE: &str = "totals";

const ENTITIES_TABLE: &str = "entities";
const INBOX_TABLE: &str = "inbox";
pub const QUEUE: &str = "wake-ups";

const DEAD_LETTERS: &str = "dead-letters";

/// The number of receives after which a message moves to the dead-letter queue, as in the template. Workers replace a
/// wake-up by a new message long before this number.
pub const MAX_RECEIVES: u32 = 100;

#[derive(Debug, Clone, Copy)]
pub struct EnginePorts {
    pub dynamodb: u16,
    pub queue: u16,
    pub visibility_timeout: Duration,
}

impl Default for EnginePorts {
    fn default() -> Self {
        Self { dynamodb: 0, queue: 0, visibility_timeout: VISIBILITY_TIMEOUT }
    }
}

#[derive(Debug)]
pub struct Engines {
    dynamodb: SocketAddr,
    queue: SocketAddr,
    queues: Arc<Queues>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<Result<()>>,
    folder: Option<Folder>,
    is_fair: bool,
}

impl Engines {
    /// Starts the store and the queue on free ports. The data is in the folder `data`; if `data` is `None`, in memory.
    pub async fn start(data: Option<&Path>) -> Result<Self> {
        Self::start_with(data, QueueFaults::default()).await
    }

    pub async fn start_with(data: Option<&Path>, faults: QueueFaults) -> Result<Self> {
        Self::start_at(data, faults, EnginePorts::default()).await
    }

    /// Starts the store and the queue on given ports, so that they can be restarted while clients use them.
    pub async fn start_at(data: Option<&Path>, faults: QueueFaults, served: EnginePorts) -> Result<Self> {
        let queue_settings = [
            QueueSettings::named(DEAD_LETTERS),
            QueueSettings {
                visibility_timeout: served.visibility_timeout,
                redrive: Some(RedrivePolicy { dead_letters: DEAD_LETTERS.to_owned(), max_receives: MAX_RECEIVES }),
                ..QueueSettings::named(QUEUE)
            },
        ];
        let folder = data.map(Folder::lock).transpose()?;
        let (database, queues) = match &folder {
            None => (dynoxide::Database::memory(), Queues::memory(queue_settings)),
            Some(folder) => {
                let tables = folder.tables();
                let tables = tables
                    .to_str()
                    .ok_or_else(|| anyhow!("the data folder's name is not UTF-8; choose another folder"))?;
                (dynoxide::Database::new(tables), Queues::open(&folder.queue(), queue_settings))
            }
        };
        let database = database.map_err(|error| anyhow!("the embedded DynamoDB does not start: {error}"))?;
        let queues = queues.map_err(|error| anyhow!("the embedded queue does not start: {error}"))?;
        let queues = Arc::new(queues.with_faults(faults));
        let (stop, stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let listener = TcpListener::bind(("127.0.0.1", served.dynamodb)).await?;
        let dynamodb = listener.local_addr()?;
        let until = stopped(stopping.clone());
        tasks.spawn(async move {
            dynoxide::server::serve_with_shutdown(listener, database, until).await.map_err(|error| anyhow!(error))
        });
        let listener = bind((LOOPBACK, served.queue).into(), "with --queue-port").await?;
        let queue = listener.local_addr()?;
        let serving = queue::serve(listener, queues.clone(), stopped(stopping));
        tasks.spawn(async move { Ok(serving.await?) });
        let engines = Self { dynamodb, queue, queues, stop, tasks, folder, is_fair: false };
        engines.create_tables().await?;
        Ok(engines)
    }

    /// Lets messages carry their account's group if `is_fair`.
    #[must_use]
    pub fn with_groups(self, is_fair: bool) -> Self {
        Self { is_fair, ..self }
    }

    pub fn dynamodb_url(&self) -> String {
        format!("http://{}", self.dynamodb)
    }

    pub fn queue_endpoint(&self) -> String {
        format!("http://{}", self.queue)
    }

    pub fn queues(&self) -> &Arc<Queues> {
        &self.queues
    }

    /// Waits until a file of the data folder is removed, and returns what to say. Never returns without a folder.
    pub async fn data_removed(&self) -> String {
        folder::removed(self.folder.as_ref()).await
    }

    /// Returns the number of wake-ups in the queue. Delayed wake-ups and those in flight are included.
    pub fn wake_ups(&self) -> u64 {
        self.queues.counts(QUEUE).map(|counts| counts.total()).unwrap_or(0)
    }

    pub fn config(&self) -> StoreConfig {
        StoreConfig {
            entities_table: ENTITIES_TABLE.to_owned(),
            inbox_table: INBOX_TABLE.to_owned(),
            queue_url: queue::queue_url(self.queue, QUEUE),
            fair_queue: self.is_fair,
            retention: webhook_serializer::config::DEFAULT_RETENTION,
            parked_retention: None,
        }
    }

    pub fn account(&self) -> Account {
        Account::local(self.dynamodb_url(), self.queue_endpoint())
    }

    pub fn connect(&self, env: &Env, meter: Option<Arc<Meter>>) -> Parts {
        Parts::connect(&self.account(), &self.config(), env, meter)
    }

    pub async fn stop(mut self) -> Result<()> {
        self.stop.send_replace(true);
        // Idle connections of clients delay a shutdown; cutting them loses nothing.
        let ended = tokio::time::timeout(Duration::from_secs(1), async {
            while let Some(ended) = self.tasks.join_next().await {
                ended??;
            }
            Ok(())
        });
        ended.await.unwrap_or(Ok(()))
    }

    async fn create_tables(&self) -> Result<()> {
        let account = self.account();
        let client = account.dynamodb(&account.http_client());
        let held = client.list_tables().send().await?.table_names.unwrap_or_default();
        for (table, keys, owner) in [
            (ENTITIES_TABLE, &[("entity", KeyType::Hash)][..], Some(TableName::Entities)),
            (INBOX_TABLE, &[("entity", KeyType::Hash), ("item", KeyType::Range)][..], Some(TableName::Inbox)),
            (TOTALS_TABLE, &[("order", KeyType::Hash)][..], None),
        ] {
            let is_new = !held.iter().any(|name| name == table);
            if is_new {
                create_table(&client, table, keys, owner.as_ref()).await.with_context(|| format!("table {table}"))?;
            } else if let Some(owner) = &owner {
                // A data folder of an earlier release has no indexes.
                indexes::add_missing(&client, owner, table).await.with_context(|| format!("table {table}"))?;
            }
        }
        Ok(())
    }
}

async fn create_table(client: &Client, table: &str, keys: &[(&str, KeyType)], owner: Option<&TableName>) -> Result<()> {
    let mut request = client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    for (name, kind) in keys {
        let element = KeySchemaElement::builder().attribute_name(*name).key_type(kind.clone()).build()?;
        let definition =
            AttributeDefinition::builder().attribute_name(*name).attribute_type(ScalarAttributeType::S).build()?;
        request = request.key_schema(element).attribute_definitions(definition);
    }
    for index in owner.into_iter().flat_map(indexes::of) {
        request = request.attribute_definitions(indexes::sort_definition(index)?);
        request = request.global_secondary_indexes(indexes::definition(index)?);
    }
    request.send().await?;
    Ok(())
}
