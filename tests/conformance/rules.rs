//! The rules that every table keeps, a comparison of all kinds of values, and DynamoDB's invalid
//! requests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::future::BoxFuture;
use webhook_serializer::protocol::{
    format::attribute as a,
    memory::MemoryTable,
    table::{
        Action, Change, Comparison, Condition, ConditionResult, Key, Operand, Range, Row, Segment, Table, TableError,
        TableName, Transacted, Value, Write, Written,
    },
};

use crate::{
    endpoint::{is_skipped, on_dynamodb, skipped},
    generate::{NULL, TWO_ABSENT, TYPES, has_order},
    pair::TablePair,
};

/// A table, with names that only one rule uses.
struct RuleFixture<'a> {
    table: &'a dyn Table,
    effects: String,
    /// At most 10 characters.
    own: String,
    tokens: String,
}

impl RuleFixture<'_> {
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
        let from = from.to_owned();
        let to = to.to_owned();
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

    async fn assert_invalid(&self, write: Write) {
        let outcome = self.table.write(&write).await;
        assert!(matches!(outcome, Err(TableError::Invalid(_))), "{write:?}: {outcome:?}");
    }
}

type RuleCheck = for<'a> fn(&'a RuleFixture<'a>) -> BoxFuture<'a, ()>;

macro_rules! rules {
    ($($rule:ident),* $(,)?) => { [$((stringify!($rule), |fixture| Box::pin($rule(fixture)))),*] };
}

/// The rules by name. `CONFORMANCE_SKIP` takes these names, with hyphens.
const RULES: [(&str, RuleCheck); 22] = rules![
    refusal_returns_the_row,
    update_returns_the_new_row,
    changes_see_the_row_before_the_update,
    put_replaces_all_but_the_key,
    deleting_an_absent_item_lands,
    empty_any_never_holds,
    transaction_is_atomic,
    client_tokens,
    check_alone_is_invalid,
    empty_update_is_invalid,
    two_changes_of_an_attribute_are_invalid,
    update_of_a_key_is_invalid,
    ordering_of_unordered_types_is_invalid,
    comparison_with_itself_is_invalid,
    empty_transaction_is_invalid,
    transaction_has_at_most_a_hundred_items,
    addition_needs_a_number,
    range_is_read_in_order,
    empty_range_is_invalid,
    batch_leaves_out_absent_items,
    foreign_table_is_scanned_in_one_page,
    size_limits,
];

async fn check(table: &dyn Table, effects: &str, tokens: &str, is_skipped: impl Fn(&str) -> bool) {
    static OWN: AtomicU64 = AtomicU64::new(0);
    for (name, rule) in RULES {
        let name = name.replace('_', "-");
        if is_skipped(&name) {
            println!("{name}: left out by name");
            continue;
        }
        println!("{name}");
        let own = format!("r{}", OWN.fetch_add(1, Relaxed));
        rule(&RuleFixture { table, effects: effects.into(), own, tokens: tokens.into() }).await;
    }
}

#[tokio::test]
async fn memory_table_follows_every_dynamodb_rule() {
    check(&MemoryTable::new(), "effects", "", |_| false).await;
}

#[test]
fn dynamodb_follows_every_listed_rule() {
    on_dynamodb(|runtime, dynamo| {
        runtime.block_on(check(&dynamo.table, &dynamo.effects, &dynamo.nonce, is_skipped));
    });
}

/// A handler that names one of these tables in its commit is wrong.
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
                assert!(reason.message.contains("the serializer's own tables"), "{name}: {reason}");
            }
        }
    });
}

#[test]
fn every_skipped_conformance_rule_exists() {
    for name in skipped() {
        let is_rule =
            [TWO_ABSENT, NULL, TYPES].contains(&&*name) || RULES.iter().any(|(rule, _)| rule.replace('_', "-") == name);
        assert!(is_rule, "{name:?} is not a rule");
    }
}

/// Compares each value, and an absent attribute, with each value and with another attribute.
#[test]
fn memory_table_and_dynamodb_compare_values_alike() {
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
        let mut pair = TablePair::new(dynamo);
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

async fn refusal_returns_the_row(fixture: &RuleFixture<'_>) {
    let key = fixture.effect("one");
    let never = Condition::exists("never");
    for action in [Action::Put(Row::new()), Action::Update(vec![Change::set("a", "x")]), Action::Delete] {
        let write = Write { key: key.clone(), condition: never.clone(), action };
        assert_eq!(fixture.table.write(&write).await, Ok(Written::Refused(None)), "no item, no row");
    }
    fixture.land(Write::put(key.clone(), Row::new().with("a", 1_u32))).await;
    let met = key.to_row().with("a", 1_u32);
    for action in [Action::Put(Row::new()), Action::Update(vec![Change::set("a", "x")]), Action::Delete] {
        let write = Write { key: key.clone(), condition: never.clone(), action };
        assert_eq!(fixture.table.write(&write).await, Ok(Written::Refused(Some(met.clone()))));
    }
    assert_eq!(fixture.row(&key).await, Some(met));
}

async fn update_returns_the_new_row(fixture: &RuleFixture<'_>) {
    let key = fixture.effect("one");
    let created = fixture.land(Write::update(key.clone(), vec![Change::set("a", 1_u32), Change::remove("b")])).await;
    assert_eq!(created, Some(key.to_row().with("a", 1_u32)));
    let changed = fixture.land(Write::update(key.clone(), vec![Change::remove("a"), Change::set("b", "x")])).await;
    assert_eq!(changed, Some(key.to_row().with("b", "x")));
    assert_eq!(fixture.row(&key).await, changed);
}

async fn changes_see_the_row_before_the_update(fixture: &RuleFixture<'_>) {
    let key = fixture.effect("one");
    let changes = || {
        vec![
            Change::Add { attribute: "count".into(), base: 5, by: 2 },
            Change::set_if_absent("first", "x"),
            Change::add("other", 0),
        ]
    };
    fixture.land(Write::update(key.clone(), changes())).await;
    let row = fixture.land(Write::update(key.clone(), changes())).await.expect("a row");
    assert_eq!((row.number("count"), row.text("first"), row.number("other")), (Some(9), Some("x"), Some(0)));
}

async fn put_replaces_all_but_the_key(fixture: &RuleFixture<'_>) {
    let key = fixture.effect("one");
    fixture.land(Write::put(key.clone(), Row::new().with("a", 1_u32))).await;
    // Key attributes in the row are ignored.
    fixture.land(Write::put(key.clone(), Row::new().with("b", 2_u32).with("effect", "elsewhere"))).await;
    assert_eq!(fixture.row(&key).await, Some(key.to_row().with("b", 2_u32)));
}

async fn deleting_an_absent_item_lands(fixture: &RuleFixture<'_>) {
    let key = fixture.effect("one");
    fixture.land(Write::put(key.clone(), Row::new())).await;
    for _ in 0..2 {
        assert_eq!(fixture.land(Write::delete(key.clone())).await, None);
    }
    assert_eq!(fixture.row(&key).await, None);
}

async fn empty_any_never_holds(fixture: &RuleFixture<'_>) {
    let key = fixture.effect("one");
    let refused = [
        Condition::Any(vec![]),
        Condition::All(vec![Condition::Always, Condition::Any(vec![])]),
        Condition::Any(vec![Condition::Any(vec![]), Condition::exists("a")]),
    ];
    for condition in refused {
        let write = Write::put(key.clone(), Row::new()).when(condition.clone());
        assert_eq!(fixture.table.write(&write).await, Ok(Written::Refused(None)), "{condition:?}");
    }
    let held = [
        Condition::All(vec![]),
        Condition::Any(vec![Condition::Always, Condition::exists("never")]),
        Condition::Any(vec![Condition::exists("never"), Condition::All(vec![Condition::Always])]),
    ];
    for condition in held {
        fixture.land(Write::put(key.clone(), Row::new()).when(condition)).await;
    }
}

async fn transaction_is_atomic(fixture: &RuleFixture<'_>) {
    let keys = ["one", "two", "three"].map(|name| fixture.effect(name));
    fixture.land(Write::put(keys[1].clone(), Row::new().with("a", 1_u32))).await;
    let writes = [
        Write::put(keys[0].clone(), Row::new()),
        Write { key: keys[1].clone(), condition: Condition::absent("a"), action: Action::Check },
        Write::delete(keys[2].clone()).when(Condition::exists("a")),
    ];
    let met = Some(keys[1].to_row().with("a", 1_u32));
    let results = vec![ConditionResult::Held, ConditionResult::Failed(met), ConditionResult::Failed(None)];
    assert_eq!(fixture.transact(&writes, 1).await, Ok(Transacted::Refused(results)));
    assert_eq!(fixture.row(&keys[0]).await, None);
    assert_eq!(fixture.transact(&writes[..1], 2).await, Ok(Transacted::Landed));
    assert_eq!(fixture.row(&keys[0]).await, Some(keys[0].to_row()));
}

async fn client_tokens(fixture: &RuleFixture<'_>) {
    let key = fixture.effect("one");
    let once = [Write::update(key.clone(), vec![Change::add("n", 1)])];
    for _ in 0..2 {
        assert_eq!(fixture.transact(&once, 1).await, Ok(Transacted::Landed));
    }
    assert_eq!(fixture.row(&key).await.and_then(|row| row.number("n")), Some(1));
    let other = [Write::delete(key.clone())];
    let outcome = fixture.transact(&other, 1).await;
    assert!(matches!(outcome, Err(TableError::Invalid(_))), "{outcome:?}");
    let too_long = fixture.table.transact(&once, &"x".repeat(37)).await;
    assert!(matches!(too_long, Err(TableError::Invalid(_))), "{too_long:?}");
    // A refused transaction is not remembered.
    let unless = [Write::put(fixture.effect("two"), Row::new()).when(Condition::exists("a"))];
    assert_eq!(fixture.transact(&unless, 2).await, Ok(Transacted::Refused(vec![ConditionResult::Failed(None)])));
    fixture.land(Write::put(fixture.effect("two"), Row::new().with("a", 1_u32))).await;
    assert_eq!(fixture.transact(&unless, 2).await, Ok(Transacted::Landed));
}

async fn check_alone_is_invalid(fixture: &RuleFixture<'_>) {
    let key = fixture.effect("one");
    fixture.assert_invalid(Write { key: key.clone(), condition: Condition::Always, action: Action::Check }).await;
}

async fn empty_update_is_invalid(fixture: &RuleFixture<'_>) {
    fixture.assert_invalid(Write::update(fixture.effect("one"), vec![])).await;
}

async fn two_changes_of_an_attribute_are_invalid(fixture: &RuleFixture<'_>) {
    let changes = vec![Change::set("a", 1_u32), Change::remove("a")];
    fixture.assert_invalid(Write::update(fixture.effect("one"), changes)).await;
}

async fn update_of_a_key_is_invalid(fixture: &RuleFixture<'_>) {
    fixture.assert_invalid(Write::update(fixture.effect("one"), vec![Change::set("effect", "elsewhere")])).await;
    assert_eq!(fixture.row(&fixture.effect("one")).await, None);
}

async fn ordering_of_unordered_types_is_invalid(fixture: &RuleFixture<'_>) {
    for value in [Value::Bool(true), Value::Null, Value::L(vec![]), Value::M([].into())] {
        let condition = Condition::Compare("a".into(), Comparison::Less, Operand::Value(value));
        fixture.assert_invalid(Write::put(fixture.effect("one"), Row::new()).when(condition)).await;
    }
}

async fn comparison_with_itself_is_invalid(fixture: &RuleFixture<'_>) {
    let condition = Condition::compare_with("a", Comparison::Equal, "a");
    fixture.assert_invalid(Write::put(fixture.effect("one"), Row::new()).when(condition)).await;
}

async fn empty_transaction_is_invalid(fixture: &RuleFixture<'_>) {
    let of_nothing = Write { key: fixture.effect("one"), condition: Condition::Always, action: Action::Check };
    for writes in [vec![], vec![of_nothing]] {
        let outcome = fixture.transact(&writes, 1).await;
        assert!(matches!(outcome, Err(TableError::Invalid(_))), "{} writes: {outcome:?}", writes.len());
    }
}

async fn transaction_has_at_most_a_hundred_items(fixture: &RuleFixture<'_>) {
    let key = fixture.effect("one");
    let put = Write::put(key.clone(), Row::new());
    let many: Vec<Write> = (0..101).map(|n| Write::put(fixture.effect(&n.to_string()), Row::new())).collect();
    for writes in [vec![put.clone(), Write::delete(key.clone())], many] {
        let outcome = fixture.transact(&writes, 1).await;
        assert!(matches!(outcome, Err(TableError::Invalid(_))), "{} writes: {outcome:?}", writes.len());
    }
    assert_eq!(fixture.row(&key).await, None);
}

async fn addition_needs_a_number(fixture: &RuleFixture<'_>) {
    let key = fixture.effect("one");
    let add = || vec![Change::add("n", 2)];
    fixture.land(Write::put(key.clone(), Row::new().with("n", "text"))).await;
    fixture.assert_invalid(Write::update(key.clone(), add())).await;
    let outcome = fixture.transact(&[Write::update(key.clone(), add())], 1).await;
    assert!(matches!(outcome, Err(TableError::Invalid(_))), "{outcome:?}");
    fixture.land(Write::put(key.clone(), Row::new().with("n", Value::N(-5)))).await;
    let row = fixture.land(Write::update(key.clone(), add())).await.expect("a row");
    assert_eq!(row.get("n"), Some(&Value::N(-3)));
}

async fn range_is_read_in_order(fixture: &RuleFixture<'_>) {
    for item in ["b", "a", "d", "é", "c"] {
        fixture.land(Write::put(fixture.item(item), Row::new().with("v", 1_u32))).await;
    }
    let items = async |from: &str, to: &str, limit: u32| {
        let page = fixture.table.query(&fixture.range(from, to, limit)).await.expect("it answers");
        let items: Vec<String> = page.rows.iter().filter_map(|row| row.text(a::ITEM)).map(str::to_owned).collect();
        (items.concat(), page.more)
    };
    assert_eq!(items("b", "d", 10).await, ("bcd".into(), false));
    assert_eq!(items("a", "\u{10ffff}", 10).await, ("abcdé".into(), false));
    assert_eq!(items("a", "z", 2).await, ("ab".into(), true));
    assert_eq!(items("x", "y", 2).await, (String::new(), false));
}

async fn empty_range_is_invalid(fixture: &RuleFixture<'_>) {
    for range in [fixture.range("b", "a", 10), fixture.range("a", "b", 0)] {
        let outcome = fixture.table.query(&range).await;
        assert!(matches!(outcome, Err(TableError::Invalid(_))), "{range:?}: {outcome:?}");
    }
}

async fn batch_leaves_out_absent_items(fixture: &RuleFixture<'_>) {
    let keys = [fixture.item("a"), fixture.item("b")];
    fixture.land(Write::put(keys[1].clone(), Row::new())).await;
    assert_eq!(fixture.table.get_many(&keys).await, Ok(vec![keys[1].to_row()]));
    assert_eq!(fixture.table.get_many(&[]).await, Ok(vec![]));
    let many: Vec<Key> = (0..101).map(|n| fixture.item(&n.to_string())).collect();
    let elsewhere = [fixture.item("a"), fixture.effect("a")];
    for keys in [&[keys[0].clone(), keys[0].clone()][..], &many, &elsewhere] {
        let outcome = fixture.table.get_many(keys).await;
        assert!(matches!(outcome, Err(TableError::Invalid(_))), "{} keys: {outcome:?}", keys.len());
    }
}

/// Only the serializer's own tables report where a scan continues.
async fn foreign_table_is_scanned_in_one_page(fixture: &RuleFixture<'_>) {
    for name in ["one", "two", "three"] {
        fixture.land(Write::put(fixture.effect(name), Row::new())).await;
    }
    let segment = Segment { number: 0, of: 1, after: None, limit: 2 };
    let outcome = fixture.table.scan(&TableName::Named(fixture.effects.as_str().into()), &segment).await;
    assert!(matches!(outcome, Err(TableError::Invalid(_))), "{outcome:?}");
}

async fn size_limits(fixture: &RuleFixture<'_>) {
    let noise = |bytes: usize| Row::new().with("a", bytes::Bytes::from(vec![7; bytes]));
    fixture.land(Write::put(fixture.effect("one"), noise(399 * 1024))).await;
    fixture.assert_invalid(Write::put(fixture.effect("one"), noise(400 * 1024))).await;
    let changes = vec![Change::set("b", "x".repeat(2 * 1024))];
    fixture.assert_invalid(Write::update(fixture.effect("one"), changes)).await;
    assert_eq!(fixture.row(&fixture.effect("one")).await.map(|row| row.size() / 1024), Some(399));
}
