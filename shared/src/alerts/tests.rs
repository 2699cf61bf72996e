//! Looks that follow each other, and the messages about them.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use super::*;
use crate::{
    protocol::{
        alert::AlertsRow,
        entity::{EntityKey, SourceName},
        format::{FORMAT, attribute as a},
        keys::{alerts_row, outage_row},
        outage::{DestinationId, Outage},
        table::Row,
        waits::SourceTag,
    },
    sources::alerts::AlertForm,
    time::{Nonce, Timestamp},
};

const NOW: Timestamp = Timestamp::from_secs(1_767_261_600);
const MINUTE: Duration = Duration::from_secs(60);
const AFTER: Duration = Duration::from_secs(120);
const ALL: Contents = Contents { keys: true, errors: true };
const LITTLE: Contents = Contents { keys: false, errors: false };

fn order(key: &str, minutes_ago: u32) -> OrderInTrouble {
    let since = Timestamp::from_millis(NOW.as_millis() - u64::from(minutes_ago) * 60_000);
    OrderInTrouble { since, order: EntityKey::parse(key).expect("a key"), source: "shop".to_owned() }
}

fn tag(source: &str) -> SourceTag {
    SourceTag::of(&SourceName::parse(source).expect("a name"))
}

fn of(trouble: Trouble, source: &str, error: &str) -> Common {
    Common::new(trouble, tag(source), source, error)
}

fn look(trouble: Trouble, error: &str, orders: usize) -> Look {
    let mut look = Look::default();
    for number in 0..orders {
        look.add(of(trouble, "shop", error), order(&format!("shop/order/{number}"), 5));
    }
    look
}

/// Looks once a minute, and returns the changes to report.
#[derive(Default)]
struct Looks {
    known: KnownGroups,
    minutes: u32,
}

impl Looks {
    fn next(&mut self, look: &Look) -> Vec<(ChangeKind, u64)> {
        let now = NOW + self.minutes * MINUTE;
        self.minutes += 1;
        let Comparison { known, changes } = compare(&self.known, look, AFTER, now);
        self.known = KnownGroups::parse(&known.to_text()).expect("it is read as written");
        changes.iter().map(|change| (change.kind, change.group.count)).collect()
    }

    fn all<'a>(&mut self, looks: impl IntoIterator<Item = &'a Look>) -> Vec<Vec<(ChangeKind, u64)>> {
        looks.into_iter().map(|look| self.next(look)).collect()
    }
}

/// Returns the changes to report once `look` has lasted.
fn lasting(look: &Look) -> Vec<GroupChange> {
    let first = compare(&KnownGroups::default(), look, AFTER, NOW);
    assert_eq!(first.changes, []);
    compare(&first.known, look, AFTER, NOW + AFTER).changes
}

fn shop() -> DeploymentNaming {
    DeploymentNaming { name: "shop".to_owned(), option: " --stack shop".to_owned() }
}

fn text(look: &Look, contents: Contents) -> String {
    AlertMessage::new(&shop(), &lasting(look), &[], contents, NOW + AFTER).text(3800)
}

#[test]
fn group_is_reported_once_it_has_lasted_then_when_tenfold_then_when_over() {
    let (none, one, nine, ten) = (Look::default(), look(Trouble::Blocked, "no", 1), 9, 10);
    let [nine, ten] = [nine, ten].map(|count| look(Trouble::Blocked, "no", count));
    let changes = Looks::default().all([&one, &one, &one, &nine, &ten, &ten, &none, &none, &none, &none]);
    let mut expected = vec![Vec::new(); 10];
    expected[2] = vec![(ChangeKind::Began, 1)];
    expected[4] = vec![(ChangeKind::Grew, 10)];
    expected[8] = vec![(ChangeKind::Ended, 0)];
    assert_eq!(changes, expected);
}

#[test]
fn short_trouble_and_short_recovery_are_not_reported() {
    let (none, some) = (Look::default(), look(Trouble::Failing, "no", 3));
    let changes = Looks::default().all([&some, &some, &none, &some, &some, &some, &none, &some, &none, &some, &none]);
    let changes: Vec<_> = changes.into_iter().flatten().collect();
    assert_eq!(changes, [(ChangeKind::Began, 3)], "a group that flaps is reported once");
}

#[test]
fn unreadable_index_ends_nothing() {
    let mut looks = Looks::default();
    looks.all([&look(Trouble::Blocked, "no", 1); 3]);
    let without = |trouble| {
        let mut look = Look::default();
        look.incomplete.insert(trouble);
        look
    };
    let blind = without(Trouble::Blocked);
    assert_eq!(looks.all([&blind; 9]).concat(), []);
    let other = without(Trouble::Parked);
    assert_eq!(looks.all([&other; 3]).concat(), [(ChangeKind::Ended, 0)]);
}

#[test]
fn source_that_leaves_the_document_keeps_its_group() {
    let mut unnamed = Look::default();
    unnamed.add(Common { name: String::new(), ..of(Trouble::Failing, "shop", "no") }, order("shop/order/0", 5));
    let mut looks = Looks::default();
    assert_eq!(looks.all([&look(Trouble::Failing, "no", 1); 3]).concat(), [(ChangeKind::Began, 1)]);
    assert_eq!(looks.all([&unnamed; 5]).concat(), []);
    looks.all([&Look::default(); 2]);
    let changes = compare(&looks.known, &Look::default(), AFTER, NOW + 20 * MINUTE).changes;
    let over = AlertMessage::new(&shop(), &changes, &[], ALL, NOW).text(3800);
    assert!(over.contains("Over: failing orders of shop, 1 in the last message: no"), "{over}");
}

#[test]
fn clock_that_was_ahead_delays_nothing_for_long() {
    let some = look(Trouble::Blocked, "no", 1);
    let ahead = compare(&KnownGroups::default(), &some, AFTER, NOW + 1000 * MINUTE).known;
    let back = compare(&ahead, &some, AFTER, NOW);
    assert_eq!(back.changes, []);
    assert_eq!(compare(&back.known, &some, AFTER, NOW + AFTER).changes.len(), 1);
}

#[test]
fn errors_that_differ_in_ids_are_one_group() {
    let mut look = Look::default();
    for id in ["12345", "67890"] {
        look.add(of(Trouble::Failing, "shop", &format!("no order {id}")), order(&format!("shop/order/{id}"), 5));
    }
    assert_eq!(lasting(&look).len(), 1);
}

/// A flood of groups that change every minute, with the longest texts.
fn flood(minute: u32) -> Look {
    let mut look = Look::default();
    for number in 0..600 {
        let source = format!("{}-{}", "s".repeat(60), number % 100);
        for trouble in [Trouble::Blocked, Trouble::Parked, Trouble::Failing, Trouble::Unavailable, Trouble::OnHold] {
            let error = format!("{minute} {} \"\\\u{1b}{}", number % 300, "\"".repeat(100));
            look.add(of(trouble, &source, &error), order(&format!("shop/{}/{number}", "k".repeat(400)), 5));
        }
    }
    look
}

#[test]
fn row_and_message_stay_small_in_a_flood() {
    let mut looks = Looks::default();
    for minute in 0..6 {
        let flood = flood(minute / 3);
        let Comparison { changes, .. } = compare(&looks.known, &flood, AFTER, NOW + looks.minutes * MINUTE);
        looks.next(&flood);
        let row = alerts_row().to_row().with(a::VERSION, FORMAT).with(a::NONCE, Nonce::from_parts(NOW, 1).as_str());
        let row = row.with(a::GROUPS, looks.known.to_text());
        assert!(row.size() <= AlertsRow::MOST_BYTES, "{} bytes", row.size());
        let message = AlertMessage::new(&shop(), &changes, &[], ALL, NOW);
        for form in [AlertForm::Slack, AlertForm::Teams, AlertForm::Discord, AlertForm::Webhook] {
            let body = form::body(form, &message, NOW).to_string();
            assert!(body.len() < 20_000, "{form:?}: {} bytes", body.len());
        }
        // The groups of the first three minutes end with the sixth.
        assert_eq!(changes.is_empty(), !matches!(minute, 2 | 5), "{minute}");
        let count: u64 = changes.iter().map(|change| change.group.count).sum();
        assert_eq!(count, if minute == 2 { 3000 } else { 0 });
    }
}

#[test]
fn repeated_message_has_the_same_id_and_new_groups_another() {
    let row = Nonce::from_parts(NOW, 1);
    let one = look(Trouble::Blocked, "no", 1);
    let id = |row: &Nonce, look: &Look| message_id(row, &lasting(look));
    assert_eq!(id(&row, &one), id(&row, &look(Trouble::Blocked, "no", 3)), "the next minute, after a crash");
    assert_ne!(id(&row, &one), id(&Nonce::from_parts(NOW, 2), &one));
    let mut two = one.clone();
    two.add(of(Trouble::Failing, "shop", "no"), order("shop/order/9", 1));
    assert_ne!(id(&row, &one), id(&row, &two));
}

#[test]
fn message_counts_and_names_orders_with_the_next_command() {
    let mut look = look(Trouble::Blocked, "422 no address", 12);
    look.add(of(Trouble::Parked, "stripe", "500"), order("stripe/it's 1", 2000));
    let text = text(&look, ALL);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..6],
        [
            "shop: 13 orders or deliveries are in trouble",
            "12 blocked orders of shop, the oldest waiting since 09:55 UTC: 422 no address",
            "1 parked delivery of stripe, the oldest since 2025-12-31 00:40 UTC: 500",
            "The first orders, and what to type next:",
            "serializer show --stack shop shop/order/0  # shop, blocked, waiting since 09:55 UTC",
            r"serializer show --stack shop 'stripe/it'\''s 1'  # shop, parked since 2025-12-31 00:40 UTC",
        ]
    );
    assert_eq!((lines.len(), lines[14]), (15, "All: serializer status --stack shop"), "ten orders");
}

#[test]
fn keys_and_errors_are_left_out_unless_wanted() {
    let look = look(Trouble::Blocked, "no such customer Ann", 1);
    let changes = lasting(&look);
    let message = AlertMessage::new(&shop(), &changes, &[], LITTLE, NOW);
    let hash = EntityKey::parse("shop/order/0").unwrap().hash();
    for form in [AlertForm::Slack, AlertForm::Teams, AlertForm::Discord, AlertForm::Webhook] {
        let body = form::body(form, &message, NOW).to_string();
        assert!(!body.contains("shop/order") && !body.contains("Ann"), "{body}");
        assert!(body.contains(&format!("serializer show --stack shop {hash}")), "{body}");
    }
}

#[test]
fn orders_that_wait_for_one_destination_are_one_line() {
    let destination = DestinationId::of("forward", "https://shop.example/");
    let row = outage_row(&destination).to_row().with(a::VERSION, FORMAT).with(a::DESTINATION, "https://shop.example");
    let row = row.with(a::DOWN_SINCE, NOW.as_millis() + 1_260_000).with(a::ERROR, "connection refused");
    let row: Row = row.with(a::NONCE, Nonce::from_parts(NOW, 1).as_str()).with(a::DUE, NOW.as_millis());
    let outage = Outage::parse(&row).unwrap().expect("it is down");
    let mut look = Look::default();
    for (source, key) in [("shop", "shop/1"), ("shop", "shop/2"), ("store", "store/1")] {
        look.add(of(Trouble::Unavailable, source, ""), order(key, 0));
    }
    let outages = [OutageOf { outage, sources: BTreeSet::from(["shop".to_owned(), "store".to_owned()]) }];
    let text = |contents| AlertMessage::new(&shop(), &lasting(&look), &outages, contents, NOW).text(3800);
    let line = |error: &str| format!("https://shop.example is down since 10:21 UTC{error}. 3 orders wait.");
    assert_eq!(text(ALL).lines().nth(1), Some(&*line(": connection refused")));
    assert_eq!(text(LITTLE).lines().nth(1), Some(&*line("")));
}

#[test]
fn text_beyond_the_limit_leaves_out_orders_first() {
    let mut look = look(Trouble::Blocked, "no", 12);
    look.add(of(Trouble::Parked, "stripe", "500"), order("stripe/1", 1));
    let message = AlertMessage::new(&shop(), &lasting(&look), &[], ALL, NOW);
    let whole = message.text(3800);
    for most in 260..whole.len() {
        let text = message.text(most);
        assert!(text.len() <= most && text.contains("12 blocked") && text.contains("1 parked"), "{most}: {text}");
    }
    let short = message.text(500);
    assert!(short.contains("… and 8 more orders\nAll: serializer status --stack shop"), "{short}");
}

#[test]
fn markup_and_mentions_in_a_key_have_no_effect() {
    let mut look = Look::default();
    let key = "shop/<!channel> @everyone ```*a*[b](https://c) &";
    look.add(of(Trouble::Blocked, "shop", "<@U1>"), order(key, 1));
    let message = AlertMessage::new(&shop(), &lasting(&look), &[], ALL, NOW);
    let body = |form| form::body(form, &message, NOW);
    let slack = body(AlertForm::Slack);
    let text = slack["text"].as_str().unwrap();
    assert!(!text.contains(['<', '>']) && text.contains("&lt;!channel&gt;") && text.contains("&amp;"), "{text}");
    assert_eq!(slack["mrkdwn"], false);
    let discord = body(AlertForm::Discord);
    let content = discord["content"].as_str().unwrap();
    assert!(content.starts_with("```\n") && content.ends_with("\n```") && content.matches('`').count() == 6);
    assert_eq!(discord["allowed_mentions"]["parse"], Value::Array(Vec::new()));
    let card = &body(AlertForm::Teams)["attachments"][0]["content"];
    assert!(card["body"].as_array().unwrap().iter().all(|block| block["type"] == "RichTextBlock"), "{card}");
    assert!(card.get("msteams").is_none());
}
