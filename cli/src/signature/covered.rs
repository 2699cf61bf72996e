//! Finds which parts of a webhook a signature covers, by changing the webhook. If a changed part leaves the signature
//! valid, the signature does not cover that part. This works for every provider and configuration.

use webhook_serializer::{
    providers::{Described, Unverified},
    sources::Source,
    time::Timestamp,
};

use super::SignatureClaim;

/// Returns the parts of the webhook that the signature covers: any of `topic`, `id`, `time` and `body`. If the webhook
/// has no event time, `time` stands for the signature's own time.
pub(super) fn by(claim: &SignatureClaim, source: &Source, described: &Described) -> Vec<&'static str> {
    let mut topic = described.topic != "unknown";
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

fn changed(claim: &SignatureClaim) -> impl Iterator<Item = SignatureClaim> {
    let headers = (0..claim.headers.len()).flat_map(|index| {
        let mut without = claim.clone();
        let mut other = claim.clone();
        without.headers.remove(index);
        other.headers[index].1.push('x');
        [without, other]
    });
    let longer = SignatureClaim { body: [claim.body.as_slice(), b" "].concat(), ..claim.clone() };
    headers.chain([longer, SignatureClaim { body: b"{}".to_vec(), ..claim.clone() }])
}
