//! Tables in memory, for models, simulations and tests. The conformance tests check that these
//! tables behave as DynamoDB does.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
    sync::Mutex,
};

use futures_util::future::{BoxFuture, FutureExt, ready};

use super::{
    keys::{continuation_key, key_of},
    table::{
        Action, Change, Comparison, Condition, ConditionResult, IndexPage, IndexScan, Key, Operand, Page, Range, Row,
        Scanned, Segment, Table, TableError, TableName, Transacted, Value, Write, Written,
    },
};

/// The error of a write whose condition failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionFailed;

/// Applies `write` to `row`, the item at the write's key. Returns the resulting row.
///
/// # Errors
///
/// Returns [`ConditionFailed`] if the write's condition fails.
pub fn evaluate(write: &Write, row: Option<&Row>) -> Result<Option<Row>, ConditionFailed> {
    if !holds(&write.condition, row) {
        return Err(ConditionFailed);
    }
    let key = write.key.to_row();
    Ok(match &write.action {
        Action::Put(attributes) => Some(attributes.clone().into_iter().chain(key).collect()),
        Action::Update(changes) => {
            let before = row.cloned().unwrap_or(key);
            let mut after = before.clone();
            for change in changes {
                apply(change, &before, &mut after);
            }
            Some(after)
        }
        Action::Delete => None,
        Action::Check => row.cloned(),
        Action::Native(_) => return Err(ConditionFailed),
    })
}

pub fn holds(condition: &Condition, row: Option<&Row>) -> bool {
    let value = |name: &str| row.and_then(|row| row.get(name));
    match condition {
        Condition::Always => true,
        Condition::Exists(name) => value(name).is_some(),
        Condition::Absent(name) => value(name).is_none(),
        Condition::Compare(name, comparison, operand) => {
            let right = match operand {
                Operand::Value(value) => Some(value),
                Operand::Attribute(name) => value(name),
            };
            compares(value(name), *comparison, right)
        }
        Condition::All(parts) => parts.iter().all(|part| holds(part, row)),
        Condition::Any(parts) => parts.iter().any(|part| holds(part, row)),
    }
}

fn compares(left: Option<&Value>, comparison: Comparison, right: Option<&Value>) -> bool {
    let (Some(left), Some(right)) = (left, right) else {
        return comparison == Comparison::NotEqual;
    };
    let order = match (left, right) {
        (Value::N(left), Value::N(right)) => Some(left.cmp(right)),
        (Value::N(_) | Value::Decimal(_), Value::N(_) | Value::Decimal(_)) => Scaled::order(left, right),
        (Value::S(left), Value::S(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
        (Value::B(left), Value::B(right)) => Some(left.cmp(right)),
        _ => None,
    };
    match comparison {
        Comparison::Equal => left == right,
        Comparison::NotEqual => left != right,
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::AtLeast => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

/// Applies one change of an update to `after`. As in DynamoDB, each change sees the row as it was
/// before the update.
fn apply(change: &Change, before: &Row, after: &mut Row) {
    match change {
        Change::Set(name, value) => after.set(name.clone(), value.clone()),
        Change::SetIfAbsent(name, value) => {
            if before.get(name).is_none() {
                after.set(name.clone(), value.clone());
            }
        }
        Change::Add { attribute, base, by } => {
            let before = before.get(attribute).cloned().unwrap_or_else(|| Value::from(*base));
            // `check_landing` refuses other values.
            if let Some(sum) = Scaled::of(&before).and_then(|number| number.plus(*by)) {
                after.set(attribute.clone(), sum);
            }
        }
        Change::Remove(name) => after.remove(name),
    }
}

/// A decimal number of up to 38 digits, as in DynamoDB: `units / 10^scale`.
#[derive(Debug, Clone, Copy)]
struct Scaled {
    units: i128,
    scale: u32,
}

impl Scaled {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::N(number) => Some(Self { units: i128::from(*number), scale: 0 }),
            Value::Decimal(text) => {
                let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
                let units = format!("{whole}{fraction}").parse().ok()?;
                Some(Self { units, scale: u32::try_from(fraction.len()).ok()? })
            }
            _ => None,
        }
    }

    fn at(self, scale: u32) -> Option<i128> {
        10_i128.checked_pow(scale.checked_sub(self.scale)?)?.checked_mul(self.units)
    }

    fn order(left: &Value, right: &Value) -> Option<Ordering> {
        let left = Self::of(left)?;
        let right = Self::of(right)?;
        let scale = left.scale.max(right.scale);
        Some(left.at(scale)?.cmp(&right.at(scale)?))
    }

    fn plus(self, by: u64) -> Option<Value> {
        let by = Self { units: i128::from(by), scale: 0 }.at(self.scale)?;
        let units = self.units.checked_add(by)?;
        if self.scale == 0 {
            return Some(i64::try_from(units).map_or_else(|_| Value::Decimal(units.to_string()), Value::N));
        }
        let sign = if units < 0 { "-" } else { "" };
        let digits = format!("{:0width$}", units.unsigned_abs(), width = self.scale as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - self.scale as usize);
        let fraction = fraction.trim_end_matches('0');
        match format!("{sign}{whole}").parse() {
            Ok(whole) if fraction.is_empty() => Some(Value::N(whole)),
            _ => Some(Value::Decimal(format!("{sign}{whole}.{fraction}"))),
        }
    }
}

/// Enforces the limits of DynamoDB: rejects requests that DynamoDB rejects as invalid.
mod limits {
    use super::{Action, Change, Comparison, Condition, Key, Operand, Row, Scaled, TableError, Value, Write};

    const ITEM_BYTES: usize = 400 * 1024;
    /// The most writes in a transaction, and the most keys in a batch read.
    const MOST: usize = 100;
    const TOKEN_CHARS: usize = 36;

    fn refused<T>(reason: &str) -> Result<T, TableError> {
        Err(TableError::Invalid(reason.into()))
    }

    pub(super) fn check_write(write: &Write) -> Result<(), TableError> {
        check_condition(&write.condition)?;
        if matches!(write.action, Action::Native(_)) {
            return refused("a table in memory does not read DynamoDB's expressions");
        }
        if matches!(write.action, Action::Check) && write.condition.always_holds() {
            return refused("a check of nothing");
        }
        let Action::Update(changes) = &write.action else { return Ok(()) };
        if changes.is_empty() {
            return refused("an update without a change");
        }
        let is_key = |name: &str| {
            let key = &write.key;
            key.partition.0 == name || key.sort.as_ref().is_some_and(|(sort, _)| sort == name)
        };
        for (number, change) in changes.iter().enumerate() {
            let name = name_of(change);
            if is_key(name) {
                return refused("an update of a key");
            }
            if changes[..number].iter().any(|other| name_of(other) == name) {
                return refused("two changes of one attribute");
            }
        }
        Ok(())
    }

    fn name_of(change: &Change) -> &str {
        let (Change::Set(name, _)
        | Change::SetIfAbsent(name, _)
        | Change::Remove(name)
        | Change::Add { attribute: name, .. }) = change;
        name
    }

    fn check_condition(condition: &Condition) -> Result<(), TableError> {
        match condition {
            Condition::Always | Condition::Exists(_) | Condition::Absent(_) => Ok(()),
            Condition::Compare(name, _, Operand::Attribute(other)) if name == other => {
                refused("an attribute compared with itself")
            }
            Condition::Compare(_, Comparison::Equal | Comparison::NotEqual, _) => Ok(()),
            Condition::Compare(_, _, Operand::Value(Value::Bool(_) | Value::Null | Value::L(_) | Value::M(_))) => {
                refused("an order comparison with a value without an order")
            }
            Condition::Compare(..) => Ok(()),
            Condition::All(parts) | Condition::Any(parts) => parts.iter().try_for_each(check_condition),
        }
    }

    pub(super) fn check_landing(write: &Write, before: Option<&Row>, after: Option<&Row>) -> Result<(), TableError> {
        if let Action::Update(changes) = &write.action {
            let is_no_number = |change: &Change| match change {
                Change::Add { attribute, .. } => {
                    before.and_then(|row| row.get(attribute)).is_some_and(|value| Scaled::of(value).is_none())
                }
                _ => false,
            };
            if changes.iter().any(is_no_number) {
                return refused("an addition to an attribute that is not a number");
            }
        }
        if after.is_some_and(|row| row.size() > ITEM_BYTES) {
            return refused("an item over 400 KB");
        }
        Ok(())
    }

    pub(super) fn check_transaction(writes: &[Write], token: &str) -> Result<(), TableError> {
        if writes.is_empty() || token.is_empty() || token.chars().count() > TOKEN_CHARS {
            return refused("no writes, or no client token of at most 36 characters");
        }
        check_distinct(writes.iter().map(|write| &write.key))?;
        writes.iter().try_for_each(check_write)
    }

    pub(super) fn check_batch(keys: &[Key]) -> Result<(), TableError> {
        if keys.iter().any(|key| key.table != keys[0].table) {
            return refused("keys of several tables");
        }
        check_distinct(keys.iter())
    }

    fn check_distinct<'a>(keys: impl ExactSizeIterator<Item = &'a Key>) -> Result<(), TableError> {
        if keys.len() > MOST {
            return refused("more than a hundred items");
        }
        let mut seen: Vec<&Key> = Vec::with_capacity(keys.len());
        for key in keys {
            if seen.contains(&key) {
                return refused("one item twice");
            }
            seen.push(key);
        }
        Ok(())
    }

    pub(super) fn check_range(range: &super::Range) -> Result<(), TableError> {
        if range.limit == 0 || range.from > range.to { refused("a range that can hold nothing") } else { Ok(()) }
    }
}

/// The partition key and the sort key as texts. The order of the texts is the order of a table's
/// rows.
type RowKey = (String, String);

#[derive(Debug, Default)]
struct MemoryState {
    tables: HashMap<TableName, BTreeMap<RowKey, Row>>,
    transactions: HashMap<String, Vec<Write>>,
}

/// The effect of a write on its row.
enum Effect {
    /// The write's condition holds. Contains the resulting row.
    Lands(Option<Row>),
    /// The write's condition fails. Contains the unchanged row.
    Refused(Option<Row>),
}

#[derive(Debug, Default)]
pub struct MemoryTable(Mutex<MemoryState>);

impl MemoryTable {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn rows(&self, table: &TableName) -> Vec<Row> {
        let state = self.0.lock().expect("no one panics while holding this");
        state.tables.get(table).map(|rows| rows.values().cloned().collect()).unwrap_or_default()
    }

    /// Returns all rows of handlers' own tables, each under a name made of the row's key and its
    /// table.
    pub fn named(&self) -> BTreeMap<String, Row> {
        let state = self.0.lock().expect("no one panics while holding this");
        let named = state.tables.iter().filter_map(|(table, rows)| match table {
            TableName::Named(name) => Some(rows.iter().map(move |((partition, sort), row)| {
                let sort = if sort.is_empty() { String::new() } else { format!(" {sort}") };
                (format!("{partition}{sort} of table {name}"), row.clone())
            })),
            _ => None,
        });
        named.flatten().collect()
    }

    pub fn purge(&self, table: &TableName, is_expired: impl Fn(&Row) -> bool) -> usize {
        let mut state = self.0.lock().expect("no one panics while holding this");
        let Some(rows) = state.tables.get_mut(table) else { return 0 };
        let before = rows.len();
        rows.retain(|_, row| !is_expired(row));
        before - rows.len()
    }

    fn with<T>(&self, act: impl FnOnce(&mut MemoryState) -> T) -> T {
        act(&mut self.0.lock().expect("no one panics while holding this"))
    }
}

fn key_text(value: &Value) -> String {
    match value {
        Value::S(text) => text.clone(),
        // Fixed width keeps numbers in order.
        Value::N(number) => format!("{:020}", i128::from(*number) - i128::from(i64::MIN)),
        other => format!("{other:?}"),
    }
}

fn row_key(key: &Key) -> RowKey {
    let sort = key.sort.as_ref().map(|(_, value)| key_text(value)).unwrap_or_default();
    (key_text(&key.partition.1), sort)
}

impl MemoryState {
    fn row(&self, key: &Key) -> Option<&Row> {
        self.tables.get(&key.table)?.get(&row_key(key))
    }

    fn store(&mut self, key: &Key, row: Option<Row>) {
        let rows = self.tables.entry(key.table.clone()).or_default();
        match row {
            Some(row) => rows.insert(row_key(key), row),
            None => rows.remove(&row_key(key)),
        };
    }

    fn effect(&self, write: &Write) -> Result<Effect, TableError> {
        let before = self.row(&write.key);
        let Ok(after) = evaluate(write, before) else { return Ok(Effect::Refused(before.cloned())) };
        limits::check_landing(write, before, after.as_ref())?;
        Ok(Effect::Lands(after))
    }

    fn write(&mut self, write: &Write) -> Result<Written, TableError> {
        limits::check_write(write)?;
        if matches!(write.action, Action::Check) {
            return Err(TableError::Invalid("a check alone is not a write".into()));
        }
        Ok(match self.effect(write)? {
            Effect::Lands(after) => {
                let shown = matches!(write.action, Action::Update(_)).then(|| after.clone()).flatten();
                self.store(&write.key, after);
                Written::Landed(shown)
            }
            Effect::Refused(row) => Written::Refused(row),
        })
    }

    fn transact(&mut self, writes: &[Write], token: &str) -> Result<Transacted, TableError> {
        limits::check_transaction(writes, token)?;
        if let Some(earlier) = self.transactions.get(token) {
            return if earlier == writes {
                Ok(Transacted::Landed)
            } else {
                Err(TableError::Invalid("the client token was used for another transaction".into()))
            };
        }
        let effects: Vec<_> = writes.iter().map(|write| self.effect(write)).collect();
        // A failed condition takes precedence over an invalid request.
        if effects.iter().any(|effect| matches!(effect, Ok(Effect::Refused(_)))) {
            let result = |effect| match effect {
                Ok(Effect::Refused(row)) => ConditionResult::Failed(row),
                Ok(Effect::Lands(_)) | Err(_) => ConditionResult::Held,
            };
            return Ok(Transacted::Refused(effects.into_iter().map(result).collect()));
        }
        for (write, effect) in writes.iter().zip(effects.into_iter().collect::<Result<Vec<_>, _>>()?) {
            if let Effect::Lands(after) = effect {
                self.store(&write.key, after);
            }
        }
        self.transactions.insert(token.to_owned(), writes.to_vec());
        Ok(Transacted::Landed)
    }
}

impl Table for MemoryTable {
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>> {
        ready(self.with(|state| state.write(write))).boxed()
    }

    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>> {
        ready(self.with(|state| state.transact(writes, token))).boxed()
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>> {
        ready(Ok(self.with(|state| state.row(key).cloned()))).boxed()
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>> {
        let read = || self.with(|state| keys.iter().filter_map(|key| state.row(key).cloned()).collect());
        ready(limits::check_batch(keys).map(|()| read())).boxed()
    }

    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>> {
        let page = self.with(|state| {
            let partition = key_text(&range.partition.1);
            let from = (partition.clone(), range.from.clone());
            let to = (partition, range.to.clone());
            limits::check_range(range)?;
            let Some(rows) = state.tables.get(&range.table) else { return Ok(Page::default()) };
            let rows: Vec<Row> = rows.range(from..=to).take(range.limit as usize).map(|(_, row)| row.clone()).collect();
            let more = rows.len() == range.limit as usize;
            Ok(Page { rows, more })
        });
        ready(page).boxed()
    }

    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>> {
        let found = self.with(|state| {
            let Some(rows) = state.tables.get(table) else { return Ok(Scanned::default()) };
            let after = segment.after.as_ref().map(row_key);
            let is_in_segment = |key: &RowKey| {
                let hash = key.0.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
                hash % segment.of == segment.number
            };
            let rows: Vec<&Row> = rows
                .iter()
                .filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after) && is_in_segment(key))
                .take(segment.limit as usize)
                .map(|(_, row)| row)
                .collect();
            let last = (rows.len() == segment.limit as usize).then(|| rows.last().copied()).flatten();
            let after = last.map(|row| continuation_key(table, row)).transpose()?;
            Ok(Scanned { rows: rows.iter().map(|&row| row.clone()).collect(), after })
        });
        ready(found).boxed()
    }

    fn scan_index<'a>(&'a self, scan: &'a IndexScan) -> BoxFuture<'a, Result<IndexPage, TableError>> {
        let table = scan.index.table();
        let after = scan.after.as_ref().and_then(|after| key_of(&table, after)).map(|key| row_key(&key));
        let page = self.with(|state| {
            let rows = state.tables.get(&table).into_iter().flatten();
            let rows = rows.filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after));
            let entries = rows.filter_map(|(_, row)| scan.index.entry(row)).take(scan.limit as usize);
            let rows: Vec<Row> = entries.collect();
            let after = (rows.len() == scan.limit as usize).then(|| rows.last().cloned()).flatten();
            IndexPage { rows, after }
        });
        ready(Ok(page)).boxed()
    }
}
