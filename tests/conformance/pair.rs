//! Two tables that get the same calls and must give the same replies.

use std::fmt::Debug;

use webhook_serializer::protocol::{
    keys::key_of,
    memory::MemoryTable,
    table::{
        Index, IndexScan, Key, Page, Range, Row, Segment, Table, TableError, TableName, Transacted, Write, Written,
    },
};

use crate::endpoint::Dynamo;

/// A table in memory and one in DynamoDB. If they differ, a method returns `Err` with a description.
pub struct TablePair<'a> {
    pub memory: MemoryTable,
    pub dynamo: &'a Dynamo,
    touched: Vec<Key>,
}

/// Compares two replies; compares only the kinds of errors.
fn same<T: PartialEq + Debug>(
    what: &dyn Debug,
    memory: Result<T, TableError>,
    dynamo: Result<T, TableError>,
) -> Result<Result<T, TableError>, String> {
    let agree = match (&memory, &dynamo) {
        (Ok(memory), Ok(dynamo)) => memory == dynamo,
        (Err(memory), Err(dynamo)) => std::mem::discriminant(memory) == std::mem::discriminant(dynamo),
        _ => false,
    };
    if agree { Ok(memory) } else { Err(format!("{what:?}\n  memory: {memory:?}\n  DynamoDB: {dynamo:?}")) }
}

/// Sorts rows whose order is undefined.
fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_key(|row| format!("{row:?}"));
    rows
}

impl<'a> TablePair<'a> {
    pub fn new(dynamo: &'a Dynamo) -> Self {
        Self { memory: MemoryTable::new(), dynamo, touched: Vec::new() }
    }

    fn touch(&mut self, key: &Key) {
        if !self.touched.contains(key) {
            self.touched.push(key.clone());
        }
    }

    pub async fn write(&mut self, write: &Write) -> Result<Result<Written, TableError>, String> {
        self.touch(&write.key);
        let dynamo = self.dynamo.table.write(write).await;
        same(write, self.memory.write(write).await, dynamo)
    }

    pub async fn transact(&mut self, writes: &[Write], token: &str) -> Result<Result<Transacted, TableError>, String> {
        for write in writes {
            self.touch(&write.key);
        }
        let dynamo = self.dynamo.table.transact(writes, token).await;
        same(&(token, writes), self.memory.transact(writes, token).await, dynamo)
    }

    pub async fn get(&mut self, key: &Key) -> Result<Option<Row>, String> {
        let dynamo = self.dynamo.table.get(key).await;
        same(key, self.memory.get(key).await, dynamo)?.map_err(|error| error.to_string())
    }

    pub async fn get_many(&mut self, keys: &[Key]) -> Result<(), String> {
        let dynamo = self.dynamo.table.get_many(keys).await.map(sorted);
        same(&keys, self.memory.get_many(keys).await.map(sorted), dynamo).map(|_| ())
    }

    /// Reads a range page by page, because a store may report more rows after the last one.
    pub async fn query(&mut self, range: &Range) -> Result<(), String> {
        let dynamo = pages(&self.dynamo.table, range).await;
        same(range, pages(&self.memory, range).await, dynamo).map(|_| ())
    }

    /// Reads a whole table in `of` segments, and leaves out the rows of other cases.
    pub async fn scan(&mut self, table: &TableName, of: u32, limit: u32) -> Result<(), String> {
        let mine: Vec<Key> = self.touched.iter().filter(|key| key.table == *table).cloned().collect();
        let dynamo = segments(&self.dynamo.table, table, of, limit).await;
        let dynamo = dynamo.map(|mut rows| {
            rows.retain(|row| key_of(table, row).is_some_and(|key| mine.contains(&key)));
            rows
        });
        same(&("scan", table, of, limit), segments(&self.memory, table, of, limit).await, dynamo).map(|_| ())
    }

    /// Reads a whole index page by page, and leaves out the rows of other cases. Returns the number of its entries.
    pub async fn scan_index(&mut self, index: Index, limit: u32) -> Result<usize, String> {
        let mine: Vec<Key> = self.touched.iter().filter(|key| key.table == index.table()).cloned().collect();
        let dynamo = entries(&self.dynamo.table, index, limit).await;
        let dynamo = dynamo.map(|mut rows| {
            rows.retain(|row| key_of(&index.table(), row).is_some_and(|key| mine.contains(&key)));
            rows
        });
        let entries = same(&(index, limit), entries(&self.memory, index, limit).await, dynamo)?;
        entries.map(|entries| entries.len()).map_err(|error| error.to_string())
    }

    /// Compares every row ever written.
    pub async fn compare(&mut self) -> Result<(), String> {
        let keys = self.touched.clone();
        for table in [TableName::Entities, TableName::Inbox, TableName::Named(self.dynamo.effects.as_str().into())] {
            let keys: Vec<Key> = keys.iter().filter(|key| key.table == table).cloned().collect();
            for batch in keys.chunks(100) {
                self.get_many(batch).await?;
            }
        }
        Ok(())
    }
}

async fn pages(table: &dyn Table, range: &Range) -> Result<Vec<Row>, TableError> {
    let mut rows: Vec<Row> = Vec::new();
    let mut range = range.clone();
    loop {
        let Page { rows: found, more } = table.query(&range).await?;
        assert!(found.len() <= range.limit as usize);
        let Some(last) = found.last().and_then(|row| row.text(&range.sort)) else { return Ok(rows) };
        range.from = format!("{last}\u{0}");
        rows.extend(found);
        if !more || range.from > range.to {
            return Ok(rows);
        }
    }
}

async fn segments(table: &dyn Table, name: &TableName, of: u32, limit: u32) -> Result<Vec<Row>, TableError> {
    let mut rows = Vec::new();
    for number in 0..of {
        let mut segment = Segment { number, of, after: None, limit };
        loop {
            let scanned = table.scan(name, &segment).await?;
            rows.extend(scanned.rows);
            match scanned.after {
                Some(after) => segment.after = Some(after),
                None => break,
            }
        }
    }
    Ok(sorted(rows))
}

async fn entries(table: &dyn Table, index: Index, limit: u32) -> Result<Vec<Row>, TableError> {
    let mut rows = Vec::new();
    let mut scan = IndexScan { index, after: None, limit };
    loop {
        let page = table.scan_index(&scan).await?;
        rows.extend(page.rows);
        match page.after {
            Some(after) => scan.after = Some(after),
            None => return Ok(sorted(rows)),
        }
    }
}
