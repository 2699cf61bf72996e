//! Reads and writes the tables in DynamoDB. Only this file and `dynamo/` use DynamoDB's client.
//!
//! The client does not retry, because `store.rs` does: it knows which errors to retry, and
//! simulations run the same code. `aws.rs` sets the client's timeouts.

mod attribute;
mod native;

use std::{collections::HashMap, sync::Arc};

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    operation::{
        delete_item::DeleteItemError,
        put_item::PutItemError,
        transact_write_items::{TransactWriteItemsError, builders::TransactWriteItemsFluentBuilder},
        update_item::UpdateItemError,
    },
    types::{
        AttributeValue, CancellationReason, ConditionCheck, ConsumedCapacity, Delete, KeysAndAttributes, Put,
        ReturnConsumedCapacity, ReturnValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
    },
};
use futures_util::future::BoxFuture;

use crate::{
    aws::{meter::Meter, unanswered},
    protocol::{
        expression::Expression,
        keys::continuation_key,
        table::{
            Action, Change, ConditionResult, IndexPage, IndexScan, Key, Page, Prepared, Range, Row, Scanned, Segment,
            Table, TableError, TableName, Transacted, Write, Written,
        },
    },
};
use attribute::{attribute, attributes, row_of};

type Item = HashMap<String, AttributeValue>;

/// Adds a write's condition to one of the client's builders. If the condition fails, DynamoDB's
/// error contains the item that was found.
macro_rules! conditional {
    ($builder:expr, $expression:ident, $condition:ident) => {
        $builder
            .set_condition_expression($condition)
            .set_expression_attribute_names($expression.names())
            .set_expression_attribute_values($expression.values(attribute))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableNames {
    pub entities: String,
    pub inbox: String,
}

#[derive(Debug, Clone)]
pub struct DynamoTable {
    client: Client,
    names: TableNames,
    meter: Option<Arc<Meter>>,
}

impl DynamoTable {
    pub fn new(client: Client, names: TableNames) -> Self {
        Self { client, names, meter: None }
    }

    #[must_use]
    pub fn metered(mut self, meter: Arc<Meter>) -> Self {
        self.meter = Some(meter);
        self
    }

    fn name(&self, table: &TableName) -> String {
        match table {
            TableName::Entities => self.names.entities.clone(),
            TableName::Inbox => self.names.inbox.clone(),
            TableName::Named(name) => name.to_string(),
        }
    }

    /// Returns whether a write names one of the protocol's tables, by name or ARN, as only a
    /// handler's own write can. The caller must refuse such a write.
    fn intrudes(&self, write: &Write) -> bool {
        let TableName::Named(name) = &write.key.table else { return false };
        let name = name.rsplit('/').next().unwrap_or_default();
        name == self.names.entities || name == self.names.inbox
    }

    fn capacity(&self) -> Option<ReturnConsumedCapacity> {
        self.meter.is_some().then_some(ReturnConsumedCapacity::Total)
    }

    fn count_write(&self, consumed: Option<&ConsumedCapacity>) {
        if let Some(meter) = &self.meter {
            meter.wrote(consumed.and_then(ConsumedCapacity::capacity_units).unwrap_or(0.0));
        }
    }

    fn count_read(&self, consumed: impl IntoIterator<Item = f64>) {
        if let Some(meter) = &self.meter {
            meter.read(consumed.into_iter().sum());
        }
    }

    /// Counts a refused write.
    ///
    /// DynamoDB reports no consumed capacity for a refused write. It charges as much as for a write
    /// of the item that was found.
    fn count_refusal(&self, met: Option<&Row>) {
        if let Some(meter) = &self.meter {
            meter.refused(met.map_or(1, Row::write_units));
        }
    }

    async fn write_once(&self, write: &Write) -> Result<Written, TableError> {
        match &write.action {
            Action::Put(row) => self.put(write, row).await,
            Action::Update(changes) => self.update(write, changes).await,
            Action::Delete => self.delete(write).await,
            Action::Check | Action::Native(_) => {
                Err(TableError::Invalid("only a transaction may have this item".into()))
            }
        }
    }

    async fn put(&self, write: &Write, row: &Row) -> Result<Written, TableError> {
        let mut expression = Expression::default();
        let condition = expression.condition(&write.condition);
        let item = attributes(row.iter().chain(write.key.to_row().iter()));
        let put = self.client.put_item().table_name(self.name(&write.key.table)).set_item(Some(item));
        let sent = conditional!(put, expression, condition).set_return_consumed_capacity(self.capacity()).send().await;
        self.written(
            sent,
            |output| (output.consumed_capacity, None),
            |error| match error {
                PutItemError::ConditionalCheckFailedException(failed) => Some(failed.item.unwrap_or_default()),
                _ => None,
            },
        )
    }

    async fn update(&self, write: &Write, changes: &[Change]) -> Result<Written, TableError> {
        let mut expression = Expression::default();
        let condition = expression.condition(&write.condition);
        let update = expression.update(changes);
        let update = self
            .client
            .update_item()
            .table_name(self.name(&write.key.table))
            .set_key(Some(attributes(write.key.to_row().iter())))
            .update_expression(update)
            .return_values(ReturnValue::AllNew);
        let sent =
            conditional!(update, expression, condition).set_return_consumed_capacity(self.capacity()).send().await;
        self.written(
            sent,
            |output| (output.consumed_capacity, output.attributes),
            |error| match error {
                UpdateItemError::ConditionalCheckFailedException(failed) => Some(failed.item.unwrap_or_default()),
                _ => None,
            },
        )
    }

    async fn delete(&self, write: &Write) -> Result<Written, TableError> {
        let mut expression = Expression::default();
        let condition = expression.condition(&write.condition);
        let delete = self
            .client
            .delete_item()
            .table_name(self.name(&write.key.table))
            .set_key(Some(attributes(write.key.to_row().iter())));
        let sent =
            conditional!(delete, expression, condition).set_return_consumed_capacity(self.capacity()).send().await;
        self.written(
            sent,
            |output| (output.consumed_capacity, None),
            |error| match error {
                DeleteItemError::ConditionalCheckFailedException(failed) => Some(failed.item.unwrap_or_default()),
                _ => None,
            },
        )
    }

    /// Counts a write and converts DynamoDB's answer.
    ///
    /// `landed` takes the consumed capacity and the item from the output of a write that landed.
    /// `refusal` takes the item from an error, and returns `None` if the error does not mean a
    /// failed condition. An absent item is empty.
    fn written<O, E: ProvideErrorMetadata>(
        &self,
        sent: Result<O, SdkError<E>>,
        landed: impl FnOnce(O) -> (Option<ConsumedCapacity>, Option<Item>),
        refusal: impl FnOnce(E) -> Option<Item>,
    ) -> Result<Written, TableError> {
        let error = match sent {
            Ok(output) => {
                let (consumed, item) = landed(output);
                self.count_write(consumed.as_ref());
                return Ok(Written::Landed(item.map(row_of)));
            }
            Err(error) => error,
        };
        let class = classify(&error);
        if let SdkError::ServiceError(service) = error
            && let Some(item) = refusal(service.into_err())
        {
            let met = found(item);
            self.count_refusal(met.as_ref());
            return Ok(Written::Refused(met));
        }
        self.count_failure();
        Err(class)
    }

    fn count_failure(&self) {
        if let Some(meter) = &self.meter {
            meter.failed();
        }
    }

    fn failed<E: ProvideErrorMetadata>(&self, error: &SdkError<E>) -> TableError {
        self.count_failure();
        classify(error)
    }

    fn transaction_item(&self, write: &Write) -> Result<TransactWriteItem, TableError> {
        let table = self.name(&write.key.table);
        let mut expression = Expression::default();
        let condition = expression.condition(&write.condition);
        let key = Some(attributes(write.key.to_row().iter()));
        let item = TransactWriteItem::builder();
        let built = "every required member is set";
        let item = match &write.action {
            Action::Put(row) => {
                let row = attributes(row.iter().chain(write.key.to_row().iter()));
                let put = Put::builder().table_name(table).set_item(Some(row));
                let put = conditional!(put, expression, condition);
                item.put(put.build().expect(built))
            }
            Action::Update(changes) => {
                let update =
                    Update::builder().table_name(table).set_key(key).update_expression(expression.update(changes));
                let update = conditional!(update, expression, condition);
                item.update(update.build().expect(built))
            }
            Action::Delete => {
                let delete = Delete::builder().table_name(table).set_key(key);
                let delete = conditional!(delete, expression, condition);
                item.delete(delete.build().expect(built))
            }
            Action::Check => {
                let check = ConditionCheck::builder().table_name(table).set_key(key);
                let check = conditional!(check, expression, condition);
                let check = check.build();
                item.condition_check(check.map_err(|_| TableError::Invalid("a check of nothing".into()))?)
            }
            Action::Native(native) => native::item(native, table),
        };
        Ok(item.build())
    }

    fn transaction(&self, writes: &[Write], token: &str) -> Result<TransactWriteItemsFluentBuilder, TableError> {
        if writes.iter().any(|write| self.intrudes(write)) {
            return Err(TableError::Invalid("the serializer's own tables are written by nobody else".into()));
        }
        let items = writes.iter().map(|write| self.transaction_item(write)).collect::<Result<_, _>>()?;
        let request = self.client.transact_write_items().set_transact_items(Some(items)).client_request_token(token);
        Ok(request.set_return_consumed_capacity(self.capacity()))
    }

    async fn send(&self, transaction: TransactWriteItemsFluentBuilder) -> Result<Transacted, TableError> {
        let sent = transaction.send().await;
        match sent {
            Ok(output) => {
                let units = output.consumed_capacity().iter().filter_map(ConsumedCapacity::capacity_units).sum();
                if let Some(meter) = &self.meter {
                    meter.wrote(units);
                }
                Ok(Transacted::Landed)
            }
            Err(error) => {
                let class = classify(&error);
                if let SdkError::ServiceError(service) = error
                    && let TransactWriteItemsError::TransactionCanceledException(cancelled) = service.into_err()
                {
                    return self.cancellation(cancelled.cancellation_reasons.unwrap_or_default());
                }
                self.count_failure();
                Err(class)
            }
        }
    }

    /// Converts DynamoDB's reasons for cancelling a transaction to a refusal or an error.
    ///
    /// If a condition failed, the transaction counts as refused, whatever the other reasons are.
    fn cancellation(&self, reasons: Vec<CancellationReason>) -> Result<Transacted, TableError> {
        let codes: Vec<&str> = reasons.iter().map(|reason| reason.code().unwrap_or("None")).collect();
        if codes.contains(&"ConditionalCheckFailed") {
            let result = |reason: CancellationReason| match reason.code() {
                Some("ConditionalCheckFailed") => ConditionResult::Failed(reason.item.and_then(found)),
                _ => ConditionResult::Held,
            };
            self.count_refusal(None);
            return Ok(Transacted::Refused(reasons.into_iter().map(result).collect()));
        }
        self.count_failure();
        Err(TableError::from_cancellation(codes.into_iter().zip(reasons.iter().map(CancellationReason::message))))
    }

    async fn get_once(&self, key: &Key) -> Result<Option<Row>, TableError> {
        let sent = self
            .client
            .get_item()
            .table_name(self.name(&key.table))
            .set_key(Some(attributes(key.to_row().iter())))
            .consistent_read(true)
            .set_return_consumed_capacity(self.capacity())
            .send()
            .await
            .map_err(|error| self.failed(&error))?;
        self.count_read(sent.consumed_capacity().and_then(ConsumedCapacity::capacity_units));
        Ok(sent.item.and_then(found))
    }

    async fn get_many_once(&self, keys: &[Key]) -> Result<Vec<Row>, TableError> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        if keys.iter().any(|key| key.table != first.table) {
            return Err(TableError::Invalid("keys of several tables".into()));
        }
        let table = self.name(&first.table);
        let mut wanted: Vec<_> = keys.iter().map(|key| attributes(key.to_row().iter())).collect();
        let mut rows = Vec::new();
        // Each answer brings at least one row unless DynamoDB throttles. So as many requests as keys
        // are enough.
        for _ in 0..keys.len() {
            let request = KeysAndAttributes::builder().set_keys(Some(wanted)).consistent_read(true);
            let sent = self
                .client
                .batch_get_item()
                .request_items(table.clone(), request.build().expect("keys are set"))
                .set_return_consumed_capacity(self.capacity())
                .send()
                .await
                .map_err(|error| self.failed(&error))?;
            self.count_read(sent.consumed_capacity().iter().filter_map(ConsumedCapacity::capacity_units));
            let found = sent.responses.and_then(|mut responses| responses.remove(&table)).unwrap_or_default();
            rows.extend(found.into_iter().map(row_of));
            match sent.unprocessed_keys.and_then(|mut left| left.remove(&table)) {
                Some(left) if !left.keys.is_empty() => wanted = left.keys,
                _ => return Ok(rows),
            }
        }
        Err(TableError::Throttled)
    }

    async fn query_once(&self, range: &Range) -> Result<Page, TableError> {
        let mut expression = Expression::default();
        let condition = expression.range(range);
        let sent = self
            .client
            .query()
            .table_name(self.name(&range.table))
            .key_condition_expression(condition)
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values(attribute))
            .limit(i32::try_from(range.limit).unwrap_or(i32::MAX))
            .consistent_read(true)
            .set_return_consumed_capacity(self.capacity())
            .send()
            .await
            .map_err(|error| self.failed(&error))?;
        self.count_read(sent.consumed_capacity().and_then(ConsumedCapacity::capacity_units));
        let more = sent.last_evaluated_key().is_some_and(|key| !key.is_empty());
        Ok(Page { rows: sent.items.unwrap_or_default().into_iter().map(row_of).collect(), more })
    }

    async fn scan_once(&self, table: &TableName, segment: &Segment) -> Result<Scanned, TableError> {
        let whole = |number| i32::try_from(number).unwrap_or(i32::MAX);
        // The embedded DynamoDB scans all rows for each page of a segment, even of a single segment. So
        // a single segment is scanned without naming it.
        let part = (segment.of > 1).then(|| (whole(segment.number), whole(segment.of)));
        let sent = self
            .client
            .scan()
            .table_name(self.name(table))
            .set_segment(part.map(|(number, _)| number))
            .set_total_segments(part.map(|(_, of)| of))
            .limit(i32::try_from(segment.limit).unwrap_or(i32::MAX))
            .set_exclusive_start_key(segment.after.as_ref().map(|key| attributes(key.to_row().iter())))
            .set_return_consumed_capacity(self.capacity())
            .send()
            .await
            .map_err(|error| self.failed(&error))?;
        self.count_read(sent.consumed_capacity().and_then(ConsumedCapacity::capacity_units));
        let after = sent.last_evaluated_key.filter(|key| !key.is_empty()).map(row_of);
        let after = after.map(|row| continuation_key(table, &row)).transpose()?;
        Ok(Scanned { rows: sent.items.unwrap_or_default().into_iter().map(row_of).collect(), after })
    }

    async fn scan_index_once(&self, scan: &IndexScan) -> Result<IndexPage, TableError> {
        let sent = self
            .client
            .scan()
            .table_name(self.name(&scan.index.table()))
            .index_name(scan.index.name())
            .limit(i32::try_from(scan.limit).unwrap_or(i32::MAX))
            .set_exclusive_start_key(scan.after.as_ref().map(|row| attributes(row.iter())))
            .set_return_consumed_capacity(self.capacity())
            .send()
            .await
            .map_err(|error| self.failed(&error))?;
        self.count_read(sent.consumed_capacity().and_then(ConsumedCapacity::capacity_units));
        let after = sent.last_evaluated_key.filter(|key| !key.is_empty()).map(row_of);
        Ok(IndexPage { rows: sent.items.unwrap_or_default().into_iter().map(row_of).collect(), after })
    }
}

/// Returns the row of `item`, or `None` if the item is empty.
fn found(item: Item) -> Option<Row> {
    (!item.is_empty()).then(|| row_of(item))
}

/// Classifies an error by how the caller must react.
///
/// If the request may have reached DynamoDB and was not answered, its result is unknown.
fn classify<E: ProvideErrorMetadata>(error: &SdkError<E>) -> TableError {
    let SdkError::ServiceError(service) = error else {
        return match error {
            SdkError::ConstructionFailure(_) => TableError::Invalid("the request could not be built".into()),
            SdkError::TimeoutError(_) => TableError::Unknown("time-out".into()),
            SdkError::DispatchFailure(failed) => TableError::Unknown(unanswered(failed.as_connector_error())),
            _ => TableError::Unknown("the answer could not be read".into()),
        };
    };
    let error = service.err();
    let code = error.code().unwrap_or("no error code");
    let is_server_error = service.raw().status().is_server_error();
    TableError::from_reply(code, error.message().unwrap_or_default(), is_server_error)
}

impl Table for DynamoTable {
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>> {
        Box::pin(self.write_once(write))
    }

    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>> {
        self.prepare(writes, token)()
    }

    fn prepare<'a>(&'a self, writes: &'a [Write], token: &'a str) -> Prepared<'a> {
        // A clone keeps the order of its maps. Maps that are built anew have another order, and the
        // request other bytes.
        let transaction = self.transaction(writes, token);
        Box::new(move || match transaction.clone() {
            Ok(transaction) => Box::pin(self.send(transaction)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        })
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>> {
        Box::pin(self.get_once(key))
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>> {
        Box::pin(self.get_many_once(keys))
    }

    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>> {
        Box::pin(self.query_once(range))
    }

    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>> {
        Box::pin(self.scan_once(table, segment))
    }
    fn scan_index<'a>(&'a self, scan: &'a IndexScan) -> BoxFuture<'a, Result<IndexPage, TableError>> {
        Box::pin(self.scan_index_once(scan))
    }
}
