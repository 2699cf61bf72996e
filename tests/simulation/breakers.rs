//! The auditor of the breakers reports a start that an open breaker should have refused.

use std::time::Duration;

use tests::simulation::destination::{BreakerAudit, DestinationStart};

fn second(number: u64) -> Duration {
    Duration::from_secs(number)
}

#[test]
fn start_despite_an_open_breaker_is_reported() {
    let account = BreakerAudit::default();
    let start = |source, entity, at| account.started(source, entity, 1, second(at));
    let is_probe = |start: &Result<DestinationStart, String>| start.as_ref().is_ok_and(DestinationStart::is_probe);
    let before = start("park", 0, 1);
    account.opened("park", second(2), second(5));
    assert!(start("park", 1, 6).is_err_and(|mistake| mistake.contains("before its breaker lets it")));
    assert!(start("block", 1, 6).is_ok_and(|start| !start.is_probe()), "another source");
    let first = start("park", 1, 7);
    assert!(is_probe(&first));
    assert!(start("park", 2, 8).is_err_and(|mistake| mistake.contains("another start tries")));
    drop(before);
    assert!(start("park", 2, 8).is_err(), "the other had begun before");
    // The probe fails and the breaker opens again. When that probe is dropped, it must not end the next
    // one.
    account.opened("park", second(9), second(5));
    let second_probe = start("park", 2, 14);
    drop(first);
    assert!(is_probe(&second_probe) && start("park", 3, 14).is_err());
    account.closed("park");
    assert!(start("park", 3, 14).is_ok_and(|start| !start.is_probe()));
}

#[test]
fn start_admitted_before_breaker_opened_is_accepted() {
    let account = BreakerAudit::default();
    account.writes(0, 1, second(1));
    account.opened("park", second(2), second(5));
    account.writes(0, 1, second(3));
    assert!(account.started("park", 0, 1, second(3)).is_ok());
    assert!(account.started("park", 0, 1, second(3)).is_err(), "once");
}
