//! Finds which parts of a webhook a signature covers, by changing the webhook. If a changed part leaves the signature
//! valid, the signature does not cover that part. This works for every provider and configuration.

use serde_json::Value;
use webhook_serializer::{
    providers::{Described, Unverified},
    sources::Source,
    time::Timestamp,
};

use super::SignatureClaim;

/// Returns the parts of the webhook that the signature covers: any of `topic`, `id`, `time` and `body`. If the webhook
/// has no event time, `time` stands for the signature's own time.
pub(super) fn by(claim: &SignatureClaim, source: &Source, described: &Described) -> Vec<&'static str> {
    let mut topic = described.has_topic();
    let mut id = true;
    let mut time = match described.event_time {
        Some(_) => true,
        None => has_time(claim, source),
    };
    let mut body = true;
    for changed in changed(claim) {
        if changed.verified_by(source).is_err() {
            continue;
        }
        let otherwise = changed.described_by(source);
        topic &= otherwise.topic == described.topic;
        id &= otherwise.delivery_id == described.delivery_id;
        time &= otherwise.event_time == described.event_time;
        body &= changed.body == claim.body;
    }
    [("topic", topic), ("id", id), ("time", time), ("body", body)]
        .into_iter()
        .filter_map(|(name, is_covered)| is_covered.then_some(name))
        .collect()
}

fn has_time(claim: &SignatureClaim, source: &Source) -> bool {
    let much_later = SignatureClaim { now: Timestamp::from_millis(u64::MAX), ..claim.clone() };
    matches!(much_later.verified_by(source), Err(Unverified::Stale(_)))
}

/// The most values of a body that are changed one by one.
const MOST_VALUES: usize = 1000;

fn changed(claim: &SignatureClaim) -> impl Iterator<Item = SignatureClaim> {
    let headers = (0..claim.headers.len()).flat_map(|index| {
        let mut without = claim.clone();
        let mut other = claim.clone();
        without.headers.remove(index);
        other.headers[index].1.push('x');
        [without, other]
    });
    let longer = SignatureClaim { body: [claim.body.as_slice(), b" "].concat(), ..claim.clone() };
    let emptied = SignatureClaim { body: b"{}".to_vec(), ..claim.clone() };
    headers.chain([longer, emptied]).chain(with_other_values(claim))
}

/// Changes each value of a JSON body alone, because a signature may cover some of them.
fn with_other_values(claim: &SignatureClaim) -> impl Iterator<Item = SignatureClaim> {
    let body: Value = serde_json::from_slice(&claim.body).unwrap_or_default();
    let mut places = Vec::new();
    add_places(&body, "", &mut places);
    places.into_iter().take(MOST_VALUES).filter_map(move |place| {
        let mut other = body.clone();
        let value = other.pointer_mut(&place)?;
        *value = match &*value {
            Value::String(text) => format!("{text}x").into(),
            Value::Number(number) => (number.as_f64()? + 1.0).into(),
            Value::Bool(is_set) => (!is_set).into(),
            _ => "x".into(),
        };
        Some(SignatureClaim { body: other.to_string().into_bytes(), ..claim.clone() })
    })
}

/// Adds the JSON pointers to the values below `value` that are neither objects nor lists.
fn add_places(value: &Value, at: &str, places: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            add_places(member, &format!("{at}/{name}"), places);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| add_places(item, &format!("{at}/{index}"), places));
        }
        _ => places.push(at.to_owned()),
    }
}
