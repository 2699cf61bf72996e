//! Random rows, writes and sequences of operations.

use std::collections::BTreeMap;

use proptest::{collection::vec, option, prelude::*, sample::select};
use webhook_serializer::protocol::{
    state::LeaseKind,
    table::{Action, Change, Comparison, Condition, Key, Operand, Row, TableName, Value, Write},
};

use crate::{endpoint::is_skipped, random::OperationKind};

/// Few names, so that conditions often meet earlier writes.
const NAMES: [&str; 5] = ["a", "b", "c", "size", "#:x"];

/// A key, to which the names of a case are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyTemplate {
    Entity(u8),
    Inbox(u8, u8),
    Effect(u8),
}

/// The names of one case, which no other case writes.
#[derive(Debug, Clone)]
pub struct CaseNames {
    pub effects: String,
    pub case: String,
}

impl CaseNames {
    pub fn key(&self, place: KeyTemplate) -> Key {
        let own = |what: &str, number: u8| Value::S(format!("{}/{what}{number}", self.case));
        match place {
            KeyTemplate::Entity(number) => {
                Key { table: TableName::Entities, partition: ("entity".into(), own("e", number)), sort: None }
            }
            KeyTemplate::Inbox(partition, item) => Key {
                table: TableName::Inbox,
                partition: ("entity".into(), own("i", partition)),
                sort: Some(("item".into(), Value::S(format!("i{item}")))),
            },
            KeyTemplate::Effect(number) => Key::named(self.effects.as_str(), "effect", own("f", number)),
        }
    }

    pub fn write(&self, loose: &Loose) -> Write {
        Write { key: self.key(loose.place), condition: loose.condition.clone(), action: loose.action.clone() }
    }
}

#[derive(Debug, Clone)]
pub struct Loose {
    pub place: KeyTemplate,
    pub condition: Condition,
    pub action: Action,
}

/// An operation with its random parameters.
#[derive(Debug, Clone)]
pub struct RandomOperation {
    pub kind: OperationKind,
    pub entity: u8,
    /// The index into the leases, rows and sequences seen so far; 0 is the newest.
    pub pick: usize,
    pub lease: LeaseKind,
    /// By how much the clock advances. A third of the operations use another machine's clock instead.
    pub millis: u64,
    /// Varies the operation's other parameters.
    pub twist: u8,
    /// The writes of a handler's commit, or the row to park.
    pub beside: Vec<Loose>,
}

#[derive(Debug, Clone)]
pub enum CaseStep {
    Act(RandomOperation),
    Write(Loose),
    Transact(Vec<Loose>),
    /// Repeats the last write or transaction, as after a lost reply.
    Again,
    /// Repeats the last transaction's client token with other writes.
    SameToken(Vec<Loose>),
    Get(KeyTemplate),
    GetMany(Vec<KeyTemplate>),
    Query {
        partition: u8,
        from: u8,
        to: u8,
        limit: u32,
    },
}

fn name() -> impl Strategy<Value = &'static str> {
    select(&NAMES[..])
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => (-3_i64..12).prop_map(Value::N),
        1 => select(vec![i64::MAX, i64::MIN, 1_767_225_600_000, -10]).prop_map(Value::N),
        4 => select(vec!["", "a", "b", "ab", "é", "\u{1f}", "10", "9", "\u{10000}", "\u{ffff}"]).prop_map(Value::from),
        2 => select(vec![&b""[..], b"a", b"\xff", b"\x00\x01"]).prop_map(|bytes| Value::B(bytes.to_vec().into())),
        1 => any::<bool>().prop_map(|truth| if is_skipped(TYPES) { Value::from("true") } else { Value::Bool(truth) }),
        1 => Just(if is_skipped(NULL) { Value::Bool(false) } else { Value::Null }),
        1 => select(vec!["1.5", "-0.25", "100000000000000000000"]).prop_map(|text| Value::Decimal(text.into())),
    ]
}

pub fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::L),
            vec((name(), inner), 0..3).prop_map(|items| Value::M(
                items.into_iter().map(|(name, item)| (name.into(), item)).collect::<BTreeMap<_, _>>()
            )),
        ]
    })
}

pub fn comparison() -> impl Strategy<Value = Comparison> {
    use Comparison::*;
    select(vec![Equal, NotEqual, Less, AtMost, Greater, AtLeast])
}

/// Returns whether the operand's type is ordered. DynamoDB refuses to order other types; no emulator does.
pub fn has_order(operand: &Operand) -> bool {
    matches!(
        operand,
        Operand::Attribute(_) | Operand::Value(Value::S(_) | Value::N(_) | Value::Decimal(_) | Value::B(_))
    )
}

/// Two absent attributes are not equal; moto finds them equal.
pub const TWO_ABSENT: &str = "two-absent-attributes-differ";

/// Null is a value, and differs from an absent attribute; moto confuses them.
pub const NULL: &str = "null-is-not-absent";

/// Values of different types are neither equal nor ordered. moto finds 1 equal to true, and fails when it has
/// to order them.
pub const TYPES: &str = "types-differ";

/// Only numbers can be added to; moto fails at other values.
pub const ADDED: &str = "addition-needs-a-number";

/// Returns a valid comparison.
fn compared(name: &'static str, comparison: Comparison, operand: Operand) -> Condition {
    let is_ordering = !matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    if operand == Operand::Attribute(name.into()) || (is_ordering && !has_order(&operand)) {
        return Condition::exists(name);
    }
    let comparison = if is_ordering && is_skipped(TYPES) { Comparison::Equal } else { comparison };
    let compared = Condition::Compare(name.into(), comparison, operand);
    if is_skipped(TWO_ABSENT) { Condition::All(vec![Condition::exists(name), compared]) } else { compared }
}

fn condition() -> impl Strategy<Value = Condition> {
    let one = prop_oneof![
        2 => Just(Condition::Always),
        2 => name().prop_map(Condition::exists),
        2 => name().prop_map(Condition::absent),
        6 => (name(), comparison(), value())
            .prop_map(|(name, comparison, value)| compared(name, comparison, Operand::Value(value))),
        3 => (name(), comparison(), name())
            .prop_map(|(name, comparison, other)| compared(name, comparison, Operand::Attribute(other.into()))),
    ];
    one.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Condition::All), vec(inner, 0..4).prop_map(Condition::Any),]
    })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (name(), value()).prop_map(|(name, value)| Change::set(name, value)),
        3 => (name(), value()).prop_map(|(name, value)| Change::set_if_absent(name, value)),
        3 => (name(), 0_u64..5, 0_u64..5).prop_map(|(name, base, by)| match is_skipped(ADDED) {
            true => Change::set_if_absent(name, base),
            false => Change::Add { attribute: name.into(), base, by },
        }),
        3 => name().prop_map(Change::remove),
    ]
}

/// Keeps the first change of each attribute: a second change of one attribute is invalid.
fn distinct(changes: Vec<Change>) -> Vec<Change> {
    let mut names = Vec::new();
    let mut is_first = |change: &Change| {
        let (Change::Set(name, _)
        | Change::SetIfAbsent(name, _)
        | Change::Remove(name)
        | Change::Add { attribute: name, .. }) = change;
        let is_first = !names.contains(name);
        names.push(name.clone());
        is_first
    };
    changes.into_iter().filter(|change| is_first(change)).collect()
}

fn row() -> impl Strategy<Value = Row> {
    (vec((name(), value()), 0..5), option::weighted(0.1, Just("elsewhere"))).prop_map(|(attributes, elsewhere)| {
        let mut row: Row = attributes.into_iter().map(|(name, value)| (name.into(), value)).collect();
        if let Some(elsewhere) = elsewhere {
            row.set("entity", elsewhere);
        }
        row
    })
}

fn place() -> impl Strategy<Value = KeyTemplate> {
    prop_oneof![
        (0_u8..2).prop_map(KeyTemplate::Entity),
        ((0_u8..2), (0_u8..5)).prop_map(|(partition, item)| KeyTemplate::Inbox(partition, item)),
        (0_u8..2).prop_map(KeyTemplate::Effect),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => row().prop_map(Action::Put),
        5 => vec(change(), 1..4).prop_map(|changes| Action::Update(distinct(changes))),
        2 => Just(Action::Delete),
        1 => Just(Action::Check),
    ]
}

pub fn loose() -> impl Strategy<Value = Loose> {
    (place(), prop_oneof![Just(Condition::Always), condition()], action())
        .prop_map(|(place, condition, action)| Loose { place, condition, action })
}

fn act() -> impl Strategy<Value = RandomOperation> {
    // Mostly uses one entity, the newest lease and the newest row. Otherwise nothing would ever be settled.
    let entity = prop_oneof![5 => Just(0_u8), 1 => Just(1)];
    let pick = prop_oneof![6 => Just(0_usize), 1 => 1_usize..4];
    let kind = prop_oneof![
        2 => Just(OperationKind::Claim),
        3 => Just(OperationKind::Acquire),
        2 => Just(OperationKind::Settle),
        1 => Just(OperationKind::Unblock),
        1 => Just(OperationKind::RequestYield),
        14 => select(OperationKind::ALL),
    ];
    let lease = prop_oneof![2 => Just(LeaseKind::Drain), 1 => Just(LeaseKind::Exclusive)];
    let parameters = (entity, pick, lease, 0_u64..4000, 0_u8..12);
    (kind, parameters, vec(loose(), 0..3)).prop_map(|(kind, (entity, pick, lease, millis, twist), beside)| {
        RandomOperation { kind, entity, pick, lease, millis, twist, beside }
    })
}

pub fn step() -> impl Strategy<Value = CaseStep> {
    prop_oneof![
        16 => act().prop_map(CaseStep::Act),
        5 => loose().prop_map(CaseStep::Write),
        2 => vec(loose(), 1..4).prop_map(CaseStep::Transact),
        3 => Just(CaseStep::Again),
        1 => vec(loose(), 1..3).prop_map(CaseStep::SameToken),
        1 => place().prop_map(CaseStep::Get),
        1 => vec(place(), 0..4).prop_map(CaseStep::GetMany),
        1 => (0_u8..2, 0_u8..5, 0_u8..5, 1_u32..4)
            .prop_map(|(partition, from, more, limit)| CaseStep::Query { partition, from, to: from + more, limit }),
    ]
}
