//! What every table does, one rule after the other; what differs between two
//! of them in one comparison of all values with each other; and what DynamoDB
//! accepts as no request, so that nothing in memory may.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::future::BoxFuture;
use webhook_serializer::protocol::{
    format::attribute as a,
    memory::MemoryTable,
    table::{
        Action, Change, Comparison, Condition, Key, Operand, Range, Row, Segment, Table, TableError, TableName,
        Transacted, Value, Write, Written,
    },
};

use crate::{
    endpoint::{is_skipped, on_dynamodb, skipped},
    generate::{NULL, TWO_ABSENT, TYPES, has_order},
    pair::Pair,
};

/// A table and names of a rule's own in it.
struct Stage<'a> {
    table: &'a dyn Table,
    effects: String,
    /// At most 10 characters.
    own: String,
    tokens: String,
}

impl Stage<'_> {
    fn effect(&self, name: &str) -> Key {
        Key::named(self.effects.as_str(), "effect", format!("{}/{name}", self.own))
    }

    fn item(&self, item: &str) -> Key {
        Key { table: TableName::Inbox, partition: self.partition(), sort: Some((a::ITEM.into(), item.into())) }
    }

    fn partition(&self) -> (webhook_serializer::protocol::table::Attribute, Value) {
        (a::ENTITY.into(), format!("rules/{}", self.own).into())
    }

    fn range(&self, from: &str, to: &str, limit: u32) -> Range {
        let (from, to) = (from.to_owned(), to.to_owned());
        Range { table: TableName::Inbox, partition: self.partition(), sort: a::ITEM.into(), from, to, limit }
    }

    async fn land(&self, write: Write) -> Option<Row> {
        match self.table.write(&write).await {
            Ok(Written::Landed(row)) => row,
            other => panic!("{write:?}: {other:?}"),
        }
    }

    async fn transact(&self, writes: &[Write], number: u32) -> Result<Transacted, TableError> {
        // At most 36 characters.
        self.table.transact(writes, &format!("{}{number}{}", self.own, self.tokens)).await
    }

    async fn row(&self, key: &Key) -> Option<Row> {
        self.table.get(key).await.expect("it answers")
    }

    async fn is_no_request(&self, write: Write) {
        let outcome = self.table.write(&write).await;
        assert!(matches!(outcome, Err(TableError::Invalid(_))), "{write:?}: {outcome:?}");
    }
}

type Rule = for<'a> fn(&'a Stage<'a>) -> BoxFuture<'a, ()>;

/// By name; the name is what is printed, and what `CONFORMANCE_SKIP` takes.
const RULES: [(&str, Rule); 22] = [
    ("a-refusal-brings-the-row-it-met", |stage| Box::pin(a_refusal_brings_the_row_it_met(stage))),
    ("an-update-brings-the-row-as-it-is-now", |stage| Box::pin(an_update_brings_the_row_as_it_is_now(stage))),
    ("every-change-sees-the-row-from-before", |stage| Box::pin(every_change_sees_the_row_from_before(stage))),
    ("a-put-replaces-all-but-its-key", |stage| Box::pin(a_put_replaces_all_but_its_key(stage))),
    ("deleting-what-is-gone-lands", |stage| Box::pin(deleting_what_is_gone_lands(stage))),
    ("any-of-nothing-never-holds", |stage| Box::pin(any_of_nothing_never_holds(stage))),
    ("a-transaction-is-all-or-nothing", |stage| Box::pin(a_transaction_is_all_or_nothing(stage))),
    ("client-tokens", |stage| Box::pin(client_tokens(stage))),
    ("a-check-alone-is-no-request", |stage| Box::pin(a_check_alone_is_no_request(stage))),
    ("an-update-of-nothing-is-no-request", |stage| Box::pin(an_update_of_nothing_is_no_request(stage))),
    ("an-update-of-one-attribute-twice-is-no-request", |stage| {
        Box::pin(an_update_of_one_attribute_twice_is_no_request(stage))
    }),
    ("an-update-of-a-key-is-no-request", |stage| Box::pin(an_update_of_a_key_is_no_request(stage))),
    ("order-of-what-has-none", |stage| Box::pin(only_texts_numbers_and_bytes_have_an_order(stage))),
    ("an-attribute-is-not-compared-with-itself", |stage| Box::pin(an_attribute_is_not_compared_with_itself(stage))),
    ("a-transaction-of-nothing-is-no-request", |stage| Box::pin(a_transaction_of_nothing_is_no_request(stage))),
    ("a-transaction-is-of-a-hundred-different-items", |stage| {
        Box::pin(a_transaction_is_of_a_hundred_different_items_at_most(stage))
    }),
    ("only-numbers-are-added-to", |stage| Box::pin(only_numbers_are_added_to(stage))),
    ("a-range-is-read-in-order", |stage| Box::pin(a_range_is_read_in_order(stage))),
    ("a-range-that-holds-nothing-is-no-request", |stage| Box::pin(a_range_that_holds_nothing_is_no_request(stage))),
    ("a-batch-leaves-out-what-is-not-there", |stage| Box::pin(a_batch_leaves_out_what_is_not_there(stage))),
    ("a-scan-of-a-foreign-table-is-never-cut-short", |stage| {
        Box::pin(a_scan_of_a_foreign_table_is_never_cut_short(stage))
    }),
    ("size-limits", |stage| Box::pin(size_limits(stage))),
];

async fn check(table: &dyn Table, effects: &str, tokens: &str, is_skipped: impl Fn(&str) -> bool) {
    static OWN: AtomicU64 = AtomicU64::new(0);
    for (name, rule) in RULES {
        if is_skipped(name) {
            println!("{name}: left out by name");
            continue;
        }
        println!("{name}");
        let own = format!("r{}", OWN.fetch_add(1, Relaxed));
        rule(&Stage { table, effects: effects.into(), own, tokens: tokens.into() }).await;
    }
}

#[tokio::test]
async fn memory_keeps_every_rule() {
    check(&MemoryTable::new(), "effects", "", |_| false).await;
}

#[test]
fn dynamodb_keeps_every_rule() {
    on_dynamodb(|runtime, dynamo| {
        runtime.block_on(check(&dynamo.table, &dynamo.effects, &dynamo.nonce, is_skipped));
    });
}

/// What stands there is the protocol's: a handler that names one of them in its
/// commit has made a mistake.
#[test]
fn commit_cannot_name_the_serializers_own_tables() {
    on_dynamodb(|runtime, dynamo| {
        let arn = "arn:aws:dynamodb:us-east-1:000000000000:table/";
        for table in ["entities", "inbox"].map(|table| format!("conformance-{table}-{}", dynamo.nonce)) {
            for name in [table.clone(), format!("{arn}{table}")] {
                let key = Key::named(name.as_str(), a::ENTITY, "test/a");
                let key = if table.contains("inbox") { key.and(a::ITEM, "x") } else { key };
                let writes = [Write::put(key, Row::new())];
                let answer = runtime.block_on(dynamo.table.transact(&writes, &dynamo.nonce));
                let Err(TableError::Invalid(reason)) = answer else { panic!("{name}: {answer:?}") };
                assert!(reason.contains("the serializer's own tables"), "{name}: {reason}");
            }
        }
    });
}

#[test]
fn skipped_names_are_rules() {
    for name in skipped() {
        let is_rule = [TWO_ABSENT, NULL, TYPES].contains(&&*name) || RULES.iter().any(|(rule, _)| *rule == name);
        assert!(is_rule, "{name:?} is none");
    }
}

/// Every comparison of each value, and of an attribute that is not there, with
/// each value and with another attribute.
#[test]
fn comparisons_agree_for_all_values() {
    use Comparison::*;
    let values = [
        Value::N(1),
        Value::N(10),
        Value::N(-2),
        Value::S("1".into()),
        Value::S("10".into()),
        Value::S("é".into()),
        Value::B(b"1"[..].into()),
        Value::Bool(true),
        Value::Null,
        Value::L(vec![Value::N(1)]),
        Value::M([("a".to_owned(), Value::N(1))].into()),
    ];
    on_dynamodb(|runtime, dynamo| {
        let mut pair = Pair::new(dynamo);
        let key = Key::named(dynamo.effects.as_str(), "effect", "compared");
        for left in [None].into_iter().chain(values.clone().map(Some)) {
            for right in [None].into_iter().chain(values.clone().map(Some)) {
                let mut row = Row::new();
                for (name, value) in [("left", &left), ("right", &right)] {
                    if let Some(value) = value {
                        row.set(name, value.clone());
                    }
                }
                runtime.block_on(pair.write(&Write::put(key.clone(), row))).expect("alike").expect("it lands");
                let has_null = left == Some(Value::Null) || right == Some(Value::Null);
                if has_null && is_skipped(NULL) {
                    continue;
                }
                let both_absent = left.is_none() && right.is_none();
                let with = right.clone().map(Operand::Value).into_iter().chain([Operand::Attribute("right".into())]);
                for operand in with {
                    let of_one_type = left
                        .as_ref()
                        .zip(right.as_ref())
                        .is_none_or(|(left, right)| std::mem::discriminant(left) == std::mem::discriminant(right));
                    if both_absent && is_skipped(TWO_ABSENT) || !of_one_type && is_skipped(TYPES) {
                        continue;
                    }
                    let is_ordered =
                        !is_skipped(TYPES) || left.clone().is_none_or(|left| has_order(&Operand::Value(left)));
                    let ordered =
                        [Less, AtMost, Greater, AtLeast].into_iter().filter(|_| is_ordered && has_order(&operand));
                    for comparison in [Equal, NotEqual].into_iter().chain(ordered) {
                        let condition = Condition::Compare("left".into(), comparison, operand.clone());
                        let write = Write::update(key.clone(), vec![Change::remove("none")]).when(condition);
                        if let Err(difference) = runtime.block_on(pair.write(&write)) {
                            panic!("{difference}");
                        }
                    }
                }
            }
        }
    });
}

async fn a_refusal_brings_the_row_it_met(stage: &Stage<'_>) {
    let key = stage.effect("one");
    let never = Condition::exists("never");
    for action in [Action::Put(Row::new()), Action::Update(vec![Change::set("a", "x")]), Action::Delete] {
        let write = Write { key: key.clone(), condition: never.clone(), action };
        assert_eq!(stage.table.write(&write).await, Ok(Written::Refused(None)), "no item, no row");
    }
    stage.land(Write::put(key.clone(), Row::new().with("a", 1_u32))).await;
    let met = key.to_row().with("a", 1_u32);
    for action in [Action::Put(Row::new()), Action::Update(vec![Change::set("a", "x")]), Action::Delete] {
        let write = Write { key: key.clone(), condition: never.clone(), action };
        assert_eq!(stage.table.write(&write).await, Ok(Written::Refused(Some(met.clone()))));
    }
    assert_eq!(stage.row(&key).await, Some(met));
}

async fn an_update_brings_the_row_as_it_is_now(stage: &Stage<'_>) {
    let key = stage.effect("one");
    let created = stage.land(Write::update(key.clone(), vec![Change::set("a", 1_u32), Change::remove("b")])).await;
    assert_eq!(created, Some(key.to_row().with("a", 1_u32)));
    let changed = stage.land(Write::update(key.clone(), vec![Change::remove("a"), Change::set("b", "x")])).await;
    assert_eq!(changed, Some(key.to_row().with("b", "x")));
    assert_eq!(stage.row(&key).await, changed);
}

async fn every_change_sees_the_row_from_before(stage: &Stage<'_>) {
    let key = stage.effect("one");
    let changes = || {
        vec![
            Change::Add { attribute: "count".into(), base: 5, by: 2 },
            Change::set_if_absent("first", "x"),
            Change::Add { attribute: "other".into(), base: 0, by: 0 },
        ]
    };
    stage.land(Write::update(key.clone(), changes())).await;
    let row = stage.land(Write::update(key.clone(), changes())).await.expect("a row");
    assert_eq!((row.number("count"), row.text("first"), row.number("other")), (Some(9), Some("x"), Some(0)));
}

async fn a_put_replaces_all_but_its_key(stage: &Stage<'_>) {
    let key = stage.effect("one");
    stage.land(Write::put(key.clone(), Row::new().with("a", 1_u32))).await;
    // Attributes that the key has are the key's, whatever the row says.
    stage.land(Write::put(key.clone(), Row::new().with("b", 2_u32).with("effect", "elsewhere"))).await;
    assert_eq!(stage.row(&key).await, Some(key.to_row().with("b", 2_u32)));
}

async fn deleting_what_is_gone_lands(stage: &Stage<'_>) {
    let key = stage.effect("one");
    stage.land(Write::put(key.clone(), Row::new())).await;
    for _ in 0..2 {
        assert_eq!(stage.land(Write::delete(key.clone())).await, None);
    }
    assert_eq!(stage.row(&key).await, None);
}

async fn any_of_nothing_never_holds(stage: &Stage<'_>) {
    let key = stage.effect("one");
    let refused = [
        Condition::Any(vec![]),
        Condition::All(vec![Condition::Always, Condition::Any(vec![])]),
        Condition::Any(vec![Condition::Any(vec![]), Condition::exists("a")]),
    ];
    for condition in refused {
        let write = Write::put(key.clone(), Row::new()).when(condition.clone());
        assert_eq!(stage.table.write(&write).await, Ok(Written::Refused(None)), "{condition:?}");
    }
    let held = [
        Condition::All(vec![]),
        Condition::Any(vec![Condition::Always, Condition::exists("never")]),
        Condition::Any(vec![Condition::exists("never"), Condition::All(vec![Condition::Always])]),
    ];
    for condition in held {
        stage.land(Write::put(key.clone(), Row::new()).when(condition)).await;
    }
}

async fn a_transaction_is_all_or_nothing(stage: &Stage<'_>) {
    let keys = ["one", "two", "three"].map(|name| stage.effect(name));
    stage.land(Write::put(keys[1].clone(), Row::new().with("a", 1_u32))).await;
    let writes = [
        Write::put(keys[0].clone(), Row::new()),
        Write { key: keys[1].clone(), condition: Condition::absent("a"), action: Action::Check },
        Write::delete(keys[2].clone()).when(Condition::exists("a")),
    ];
    let met = Some(keys[1].to_row().with("a", 1_u32));
    assert_eq!(stage.transact(&writes, 1).await, Ok(Transacted::Refused(vec![None, Some(met), Some(None)])));
    assert_eq!(stage.row(&keys[0]).await, None);
    assert_eq!(stage.transact(&writes[..1], 2).await, Ok(Transacted::Landed));
    assert_eq!(stage.row(&keys[0]).await, Some(keys[0].to_row()));
}

async fn client_tokens(stage: &Stage<'_>) {
    let key = stage.effect("one");
    let once = [Write::update(key.clone(), vec![Change::Add { attribute: "n".into(), base: 0, by: 1 }])];
    for _ in 0..2 {
        assert_eq!(stage.transact(&once, 1).await, Ok(Transacted::Landed));
    }
    assert_eq!(stage.row(&key).await.and_then(|row| row.number("n")), Some(1));
    let other = [Write::delete(key.clone())];
    let outcome = stage.transact(&other, 1).await;
    assert!(matches!(outcome, Err(TableError::Invalid(_))), "{outcome:?}");
    let too_long = stage.table.transact(&once, &"x".repeat(37)).await;
    assert!(matches!(too_long, Err(TableError::Invalid(_))), "{too_long:?}");
    // What was refused is not remembered.
    let unless = [Write::put(stage.effect("two"), Row::new()).when(Condition::exists("a"))];
    assert_eq!(stage.transact(&unless, 2).await, Ok(Transacted::Refused(vec![Some(None)])));
    stage.land(Write::put(stage.effect("two"), Row::new().with("a", 1_u32))).await;
    assert_eq!(stage.transact(&unless, 2).await, Ok(Transacted::Landed));
}

async fn a_check_alone_is_no_request(stage: &Stage<'_>) {
    let key = stage.effect("one");
    stage.is_no_request(Write { key: key.clone(), condition: Condition::Always, action: Action::Check }).await;
}

async fn an_update_of_nothing_is_no_request(stage: &Stage<'_>) {
    stage.is_no_request(Write::update(stage.effect("one"), vec![])).await;
}

async fn an_update_of_one_attribute_twice_is_no_request(stage: &Stage<'_>) {
    let changes = vec![Change::set("a", 1_u32), Change::remove("a")];
    stage.is_no_request(Write::update(stage.effect("one"), changes)).await;
}

async fn an_update_of_a_key_is_no_request(stage: &Stage<'_>) {
    stage.is_no_request(Write::update(stage.effect("one"), vec![Change::set("effect", "elsewhere")])).await;
    assert_eq!(stage.row(&stage.effect("one")).await, None);
}

async fn only_texts_numbers_and_bytes_have_an_order(stage: &Stage<'_>) {
    for value in [Value::Bool(true), Value::Null, Value::L(vec![]), Value::M([].into())] {
        let condition = Condition::Compare("a".into(), Comparison::Less, Operand::Value(value));
        stage.is_no_request(Write::put(stage.effect("one"), Row::new()).when(condition)).await;
    }
}

async fn an_attribute_is_not_compared_with_itself(stage: &Stage<'_>) {
    let condition = Condition::compare_with("a", Comparison::Equal, "a");
    stage.is_no_request(Write::put(stage.effect("one"), Row::new()).when(condition)).await;
}

async fn a_transaction_of_nothing_is_no_request(stage: &Stage<'_>) {
    let of_nothing = Write { key: stage.effect("one"), condition: Condition::Always, action: Action::Check };
    for writes in [vec![], vec![of_nothing]] {
        let outcome = stage.transact(&writes, 1).await;
        assert!(matches!(outcome, Err(TableError::Invalid(_))), "{} writes: {outcome:?}", writes.len());
    }
}

async fn a_transaction_is_of_a_hundred_different_items_at_most(stage: &Stage<'_>) {
    let key = stage.effect("one");
    let put = Write::put(key.clone(), Row::new());
    let many: Vec<Write> = (0..101).map(|n| Write::put(stage.effect(&n.to_string()), Row::new())).collect();
    for writes in [vec![put.clone(), Write::delete(key.clone())], many] {
        let outcome = stage.transact(&writes, 1).await;
        assert!(matches!(outcome, Err(TableError::Invalid(_))), "{} writes: {outcome:?}", writes.len());
    }
    assert_eq!(stage.row(&key).await, None);
}

async fn only_numbers_are_added_to(stage: &Stage<'_>) {
    let key = stage.effect("one");
    let add = || vec![Change::Add { attribute: "n".into(), base: 0, by: 2 }];
    stage.land(Write::put(key.clone(), Row::new().with("n", "text"))).await;
    stage.is_no_request(Write::update(key.clone(), add())).await;
    let outcome = stage.transact(&[Write::update(key.clone(), add())], 1).await;
    assert!(matches!(outcome, Err(TableError::Invalid(_))), "{outcome:?}");
    stage.land(Write::put(key.clone(), Row::new().with("n", Value::N(-5)))).await;
    let row = stage.land(Write::update(key.clone(), add())).await.expect("a row");
    assert_eq!(row.get("n"), Some(&Value::N(-3)));
}

async fn a_range_is_read_in_order(stage: &Stage<'_>) {
    for item in ["b", "a", "d", "é", "c"] {
        stage.land(Write::put(stage.item(item), Row::new().with("v", 1_u32))).await;
    }
    let items = async |from: &str, to: &str, limit: u32| {
        let page = stage.table.query(&stage.range(from, to, limit)).await.expect("it answers");
        let items: Vec<String> = page.rows.iter().filter_map(|row| row.text(a::ITEM)).map(str::to_owned).collect();
        (items.concat(), page.more)
    };
    assert_eq!(items("b", "d", 10).await, ("bcd".into(), false));
    assert_eq!(items("a", "\u{10ffff}", 10).await, ("abcdé".into(), false));
    assert_eq!(items("a", "z", 2).await, ("ab".into(), true));
    assert_eq!(items("x", "y", 2).await, (String::new(), false));
}

async fn a_range_that_holds_nothing_is_no_request(stage: &Stage<'_>) {
    for range in [stage.range("b", "a", 10), stage.range("a", "b", 0)] {
        let outcome = stage.table.query(&range).await;
        assert!(matches!(outcome, Err(TableError::Invalid(_))), "{range:?}: {outcome:?}");
    }
}

async fn a_batch_leaves_out_what_is_not_there(stage: &Stage<'_>) {
    let keys = [stage.item("a"), stage.item("b")];
    stage.land(Write::put(keys[1].clone(), Row::new())).await;
    assert_eq!(stage.table.get_many(&keys).await, Ok(vec![keys[1].to_row()]));
    assert_eq!(stage.table.get_many(&[]).await, Ok(vec![]));
    let many: Vec<Key> = (0..101).map(|n| stage.item(&n.to_string())).collect();
    let elsewhere = [stage.item("a"), stage.effect("a")];
    for keys in [&[keys[0].clone(), keys[0].clone()][..], &many, &elsewhere] {
        let outcome = stage.table.get_many(keys).await;
        assert!(matches!(outcome, Err(TableError::Invalid(_))), "{} keys: {outcome:?}", keys.len());
    }
}

/// Where to go on is told for our own tables only.
async fn a_scan_of_a_foreign_table_is_never_cut_short(stage: &Stage<'_>) {
    for name in ["one", "two", "three"] {
        stage.land(Write::put(stage.effect(name), Row::new())).await;
    }
    let segment = Segment { number: 0, of: 1, after: None, limit: 2 };
    let outcome = stage.table.scan(&TableName::Named(stage.effects.as_str().into()), &segment).await;
    assert!(matches!(outcome, Err(TableError::Invalid(_))), "{outcome:?}");
}

async fn size_limits(stage: &Stage<'_>) {
    let noise = |bytes: usize| Row::new().with("a", bytes::Bytes::from(vec![7; bytes]));
    stage.land(Write::put(stage.effect("one"), noise(399 * 1024))).await;
    stage.is_no_request(Write::put(stage.effect("one"), noise(400 * 1024))).await;
    let changes = vec![Change::set("b", "x".repeat(2 * 1024))];
    stage.is_no_request(Write::update(stage.effect("one"), changes)).await;
    assert_eq!(stage.row(&stage.effect("one")).await.map(|row| row.size() / 1024), Some(399));
}
