//! Tests of properties that every provider and every sample in `events/` has.

use super::{Described, Provider, Request, Secret, TOLERANCE, Unverified, Verified};
use crate::time::Timestamp;

mod cases;
mod properties;
pub(super) mod rows;
mod samples;
mod senders;
mod vectors;

/// The parameter `seconds` is the current time, since the Unix epoch.
pub(super) fn verify(
    provider: &dyn Provider,
    headers: &[(&str, &str)],
    body: &[u8],
    secrets: &[&str],
    seconds: u64,
) -> Result<Verified, Unverified> {
    let headers = headers.iter().copied().collect();
    let secrets: Vec<Secret> = secrets.iter().copied().map(Secret::new).collect();
    provider.verify(Request { headers: &headers, body }, &secrets)?.near(Timestamp::from_secs(seconds), TOLERANCE)
}

pub(super) fn describe(provider: &dyn Provider, headers: &[(&str, &str)], body: &str) -> Described {
    let headers = headers.iter().copied().collect();
    provider.describe(Request { headers: &headers, body: body.as_bytes() })
}
