//! Tables in memory: the interpreter of [`Write`] for models, simulations and
//! tests. Compared with DynamoDB expression by expression in `tests/`.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
    sync::Mutex,
};

use futures_util::future::{BoxFuture, FutureExt, ready};

use super::{
    Action, Change, Comparison, Condition, Key, Operand, Page, Range, Row, Scanned, Segment, Table, TableError,
    TableName, Transacted, Value, Write, Written,
};

/// What `write` would do to `row`, the item at its key: the row afterwards
/// (`None`: no item), or `Err` where the condition fails.
#[expect(clippy::result_unit_err, reason = "a refusal has nothing to say but that")]
pub fn evaluate(write: &Write, row: Option<&Row>) -> Result<Option<Row>, ()> {
    if !holds(&write.condition, row) {
        return Err(());
    }
    let key = write.key.to_row();
    Ok(match &write.action {
        Action::Put(attributes) => Some(key.into_iter().chain(attributes.clone()).collect()),
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
    })
}

/// Whether `condition` holds of `row`.
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

/// Every change sees the row as it was before the first of them, as in an
/// update expression.
fn apply(change: &Change, before: &Row, after: &mut Row) {
    match change {
        Change::Set(name, value) => after.set(name.clone(), value.clone()),
        Change::SetIfAbsent(name, value) => {
            if before.get(name).is_none() {
                after.set(name.clone(), value.clone());
            }
        }
        Change::Add { attribute, base, by } => {
            after.set(attribute.clone(), before.number(attribute).unwrap_or(*base) + by);
        }
        Change::Remove(name) => after.remove(name),
    }
}

/// A key as the map of one table orders it.
type Place = (String, String);

#[derive(Debug, Default)]
struct State {
    tables: HashMap<TableName, BTreeMap<Place, Row>>,
    transactions: HashMap<String, Vec<Write>>,
}

/// Tables in memory, made as they are used.
#[derive(Debug, Default)]
pub struct MemoryTable(Mutex<State>);

impl MemoryTable {
    /// No tables yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// All rows of a table, in the order of their keys.
    pub fn rows(&self, table: &TableName) -> Vec<Row> {
        let state = self.0.lock().expect("no one panics while holding this");
        state.tables.get(table).map(|rows| rows.values().cloned().collect()).unwrap_or_default()
    }

    /// Deletes the rows of which `gone` says so: what DynamoDB TTL does in its
    /// own time.
    pub fn purge(&self, table: &TableName, gone: impl Fn(&Row) -> bool) -> usize {
        let mut state = self.0.lock().expect("no one panics while holding this");
        let Some(rows) = state.tables.get_mut(table) else { return 0 };
        let before = rows.len();
        rows.retain(|_, row| !gone(row));
        before - rows.len()
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().expect("no one panics while holding this"))
    }
}

fn key_text(value: &Value) -> String {
    match value {
        Value::S(text) => text.clone(),
        // Numbers in key order; only a handler's own table has them.
        Value::N(number) => format!("{:020}", i128::from(*number) - i128::from(i64::MIN)),
        other => format!("{other:?}"),
    }
}

fn place(key: &Key) -> Place {
    let sort = key.sort.as_ref().map(|(_, value)| key_text(value)).unwrap_or_default();
    (key_text(&key.partition.1), sort)
}

impl State {
    fn row(&self, key: &Key) -> Option<&Row> {
        self.tables.get(&key.table)?.get(&place(key))
    }

    fn store(&mut self, key: &Key, row: Option<Row>) {
        let rows = self.tables.entry(key.table.clone()).or_default();
        match row {
            Some(row) => rows.insert(place(key), row),
            None => rows.remove(&place(key)),
        };
    }

    fn write(&mut self, write: &Write) -> Written {
        match evaluate(write, self.row(&write.key)) {
            Ok(after) => {
                let shown = matches!(write.action, Action::Update(_)).then(|| after.clone()).flatten();
                self.store(&write.key, after);
                Written::Landed(shown)
            }
            Err(()) => Written::Refused(self.row(&write.key).cloned()),
        }
    }

    fn transact(&mut self, writes: &[Write], token: &str) -> Result<Transacted, TableError> {
        let mut places: Vec<_> = writes.iter().map(|write| (&write.key.table, place(&write.key))).collect();
        places.sort_unstable();
        if writes.len() > 100 || places.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(TableError::Invalid("a transaction has at most 100 writes, of different items".into()));
        }
        if let Some(earlier) = self.transactions.get(token) {
            return if earlier == writes {
                Ok(Transacted::Landed)
            } else {
                Err(TableError::Invalid("the client token was used for another transaction".into()))
            };
        }
        let outcomes: Vec<_> = writes.iter().map(|write| evaluate(write, self.row(&write.key))).collect();
        if outcomes.iter().any(Result::is_err) {
            let reasons = outcomes.iter().zip(writes);
            return Ok(Transacted::Refused(
                reasons.map(|(outcome, write)| outcome.is_err().then(|| self.row(&write.key).cloned())).collect(),
            ));
        }
        for (write, outcome) in writes.iter().zip(outcomes) {
            self.store(&write.key, outcome.unwrap_or_default());
        }
        self.transactions.insert(token.to_owned(), writes.to_vec());
        Ok(Transacted::Landed)
    }
}

impl Table for MemoryTable {
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>> {
        ready(Ok(self.with(|state| state.write(write)))).boxed()
    }

    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>> {
        ready(self.with(|state| state.transact(writes, token))).boxed()
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>> {
        ready(Ok(self.with(|state| state.row(key).cloned()))).boxed()
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>> {
        ready(Ok(self.with(|state| keys.iter().filter_map(|key| state.row(key).cloned()).collect()))).boxed()
    }

    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>> {
        let page = self.with(|state| {
            let partition = key_text(&range.partition.1);
            let from = (partition.clone(), range.from.clone());
            let to = (partition, range.to.clone());
            let Some(rows) = state.tables.get(&range.table) else { return Page::default() };
            if from > to {
                return Page::default();
            }
            let rows: Vec<Row> = rows.range(from..=to).take(range.limit as usize).map(|(_, row)| row.clone()).collect();
            let more = rows.len() == range.limit as usize;
            Page { rows, more }
        });
        ready(Ok(page)).boxed()
    }

    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>> {
        let found = self.with(|state| {
            let Some(rows) = state.tables.get(table) else { return Scanned::default() };
            let after = segment.after.as_ref().map(place);
            let mine = |place: &Place| {
                let hash = place.0.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
                hash % segment.of == segment.number
            };
            let rows: Vec<&Row> = rows
                .iter()
                .filter(|(place, _)| after.as_ref().is_none_or(|after| *place > after) && mine(place))
                .take(segment.limit as usize)
                .map(|(_, row)| row)
                .collect();
            let last = (rows.len() == segment.limit as usize).then(|| rows.last().copied()).flatten();
            Scanned {
                rows: rows.iter().map(|&row| row.clone()).collect(),
                after: last.and_then(|row| crate::rows::key_of(table, row)),
            }
        });
        ready(Ok(found)).boxed()
    }
}
