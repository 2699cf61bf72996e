//! The tables' indexes, as DynamoDB's requests name them.

use anyhow::{Context, Result};
use aws_sdk_dynamodb::{
    Client,
    error::BuildError,
    types::{
        AttributeDefinition, CreateGlobalSecondaryIndexAction, GlobalSecondaryIndex, GlobalSecondaryIndexUpdate,
        KeySchemaElement, KeyType, Projection, ProjectionType, ScalarAttributeType,
    },
};
use webhook_serializer::protocol::{
    format::attribute as a,
    table::{Index, SortKind, TableName},
};

/// Returns the indexes of a table.
pub fn of(table: &TableName) -> impl Iterator<Item = Index> {
    Index::ALL.into_iter().filter(move |index| index.table() == *table)
}

/// Returns the definition of the attribute that is an index's sort key. The partition key is the table's.
pub fn sort_definition(index: Index) -> Result<AttributeDefinition, BuildError> {
    let kind = match index.sort_kind() {
        SortKind::Number => ScalarAttributeType::N,
        SortKind::Bytes => ScalarAttributeType::B,
    };
    AttributeDefinition::builder().attribute_name(index.sort()).attribute_type(kind).build()
}

fn schema(index: Index) -> Result<Vec<KeySchemaElement>, BuildError> {
    let keys = [(a::ENTITY, KeyType::Hash), (index.sort(), KeyType::Range)];
    keys.into_iter()
        .map(|(name, kind)| KeySchemaElement::builder().attribute_name(name).key_type(kind).build())
        .collect()
}

fn projection(index: Index) -> Projection {
    let names: Vec<String> = index.projects().iter().map(|name| (*name).to_owned()).collect();
    match names.is_empty() {
        true => Projection::builder().projection_type(ProjectionType::KeysOnly).build(),
        false => {
            Projection::builder().projection_type(ProjectionType::Include).set_non_key_attributes(Some(names)).build()
        }
    }
}

/// Returns the index's definition in a request that creates its table.
pub fn definition(index: Index) -> Result<GlobalSecondaryIndex, BuildError> {
    GlobalSecondaryIndex::builder()
        .index_name(index.name())
        .set_key_schema(Some(schema(index)?))
        .projection(projection(index))
        .build()
}

/// Adds to a table of the embedded DynamoDB the indexes that it does not have yet. It fills them before it answers.
pub async fn add_missing(client: &Client, table: &TableName, name: &str) -> Result<()> {
    let described = client.describe_table().table_name(name).send().await?.table.context("no table is described")?;
    let has =
        |index: Index| described.global_secondary_indexes().iter().any(|held| held.index_name() == Some(index.name()));
    for index in of(table).filter(|index| !has(*index)) {
        let create = CreateGlobalSecondaryIndexAction::builder()
            .index_name(index.name())
            .set_key_schema(Some(schema(index)?))
            .projection(projection(index));
        let update = GlobalSecondaryIndexUpdate::builder().create(create.build()?).build();
        let partition = AttributeDefinition::builder().attribute_name(a::ENTITY);
        let request = client
            .update_table()
            .table_name(name)
            .attribute_definitions(partition.attribute_type(ScalarAttributeType::S).build()?)
            .attribute_definitions(sort_definition(index)?)
            .global_secondary_index_updates(update);
        request.send().await.with_context(|| format!("index {}", index.name()))?;
    }
    Ok(())
}
