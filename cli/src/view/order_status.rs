//! How an order stands, in sentences: what is the matter, and which command is
//! next.

use console::{Style, StyledObject};
use webhook_serializer::{
    protocol::{
        attempt::{FailureClass, Retries},
        delivery::Item,
        entity::Sequence,
        state::{BlockReason, EntityState, LeaseKind, VANISHED_BEFORE_START},
    },
    time::Timestamp,
};

use crate::output::duration;

/// How an order stands, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// It was stopped, and waits for a person.
    Blocked,
    /// A person put it on hold.
    OnHold,
    /// Its next delivery failed, and is tried again.
    Failing,
    /// Its next delivery waits for a destination that is unavailable.
    Unavailable,
    /// Its holder died or froze, and nobody has taken it over yet.
    Abandoned,
    /// Somebody who is no worker has its lease.
    Held,
    /// Deliveries wait for a worker.
    Waiting,
    /// A worker is at work on it.
    AtWork,
    /// Nothing waits.
    Idle,
}

impl Kind {
    /// How an order with this row stands at `now`.
    pub fn of(state: &EntityState, now: Timestamp) -> Self {
        match &state.held {
            _ if state.blocked.is_some() => Self::Blocked,
            _ if state.hold.since().is_some() => Self::OnHold,
            Some(held) if held.runs(now) => match held.kind {
                LeaseKind::Drain => Self::AtWork,
                LeaseKind::Exclusive => Self::Held,
            },
            Some(_) => Self::Abandoned,
            None if state.is_empty() => Self::Idle,
            None if is_unavailable(state) => Self::Unavailable,
            None if state.attempts > 0 || failed_together(state).is_some() => Self::Failing,
            None => Self::Waiting,
        }
    }

    /// In one word, or two.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::OnHold => "on hold",
            Self::Failing => "failing",
            Self::Unavailable => "unavailable",
            Self::Abandoned => "abandoned",
            Self::Held => "held",
            Self::Waiting => "waiting",
            Self::AtWork => "at work",
            Self::Idle => "idle",
        }
    }

    /// Coloured by how urgent it is.
    pub fn styled(self) -> StyledObject<&'static str> {
        let style = match self {
            Self::Blocked => Style::new().red(),
            Self::Idle => Style::new().green(),
            _ => Style::new().yellow(),
        };
        style.apply_to(self.as_str())
    }
}

/// A word, coloured by how urgent it is, and what there is to say about it.
#[derive(Debug)]
pub struct Standing {
    /// In one word, or two.
    pub word: StyledObject<&'static str>,
    /// The sentences, one a line.
    pub sentences: Vec<String>,
}

/// Whether what is next waits for a destination that cannot be reached, or gives no
/// answer.
fn is_unavailable(state: &EntityState) -> bool {
    let waits = state.retry_at.is_some() && state.last_error.is_some() && state.retries != Retries::default();
    waits && state.retries.class != FailureClass::Failed && !state.is_empty()
}

/// Up to which place each is tried by itself, because a group with it failed: none
/// of it is charged for that.
fn failed_together(state: &EntityState) -> Option<Sequence> {
    let is_uncharged = state.attempts == 0 && state.suspect == 0 && state.last_error.is_some();
    state.one_by_one.filter(|_| state.is_one_by_one() && is_uncharged)
}

/// How an order with this row stands at `now`. `next` is what waits at its
/// place `head + 1`, if that is known; `command` makes a command line about this
/// order of a command such as `unblock`.
pub fn standing(
    state: &EntityState,
    next: Option<&Item>,
    now: Timestamp,
    command: impl Fn(&str) -> String,
) -> Standing {
    let delivery = match next {
        Some(Item::Delivery(unpacked)) => format!("{} ({})", state.next(), unpacked.head().topic()),
        _ => state.next().to_string(),
    };
    let error = state.last_error.as_deref().unwrap_or("no error was recorded");
    let by = state.holder_info.as_ref().map_or("somebody", |info| info.as_str());
    let mut sentences = Vec::new();
    if let Some(reason) = state.blocked {
        sentences.push(match reason {
            BlockReason::Attempts => {
                format!("Blocked after {} at {delivery}: {error}", times(state.attempts, "failed attempt"))
            }
            BlockReason::Expired => format!(
                "Blocked at {}: its place is empty, and so old that its delivery may have expired. Check in the shop itself whether something is missing.",
                state.next()
            ),
            BlockReason::Vanished => format!(
                "Blocked at {delivery}: {VANISHED_BEFORE_START} workers in a row died with it before its handler was started. Their logs say why."
            ),
        });
        let go_on = match reason {
            BlockReason::Attempts => "Once that is mended, let it go on with",
            BlockReason::Expired => "Give the place up and let it go on with",
            BlockReason::Vanished => "Once the cause is mended, let it go on with",
        };
        sentences.push(format!("The rest of the order waits behind it. {go_on} `{}`.", command("unblock")));
        if reason != BlockReason::Expired {
            let skip = command("skip");
            sentences.push(format!("Or set it aside, and let the rest go on: `{skip} {} --why TEXT`.", state.next()));
        }
        sentences.extend(on_hold(state, now, &command));
        return Standing { word: Kind::Blocked.styled(), sentences };
    }
    if let Some(told) = on_hold(state, now, &command) {
        sentences.push(told);
        match &state.held {
            Some(held) if held.kind == LeaseKind::Drain && held.runs(now) => {
                sentences.push(format!("A worker ({by}) ends what it is at, and starts nothing else."));
            }
            Some(held) if held.runs(now) => sentences.push(format!("Its lease is {by}'s, which is no worker.")),
            _ => {}
        }
        if let Some(error) = state.last_error.as_ref().filter(|_| !state.is_empty()) {
            sentences.push(format!("{delivery} failed before: {error}"));
        }
        return Standing { word: Kind::OnHold.styled(), sentences };
    }
    let apart = failed_together(state);
    let is_failing = state.attempts > 0 || apart.is_some() || is_unavailable(state);
    if is_failing {
        let again = match state.retry_at {
            Some(at) if at > now => {
                let wait = duration(at.since(now));
                format!("It is tried again in {wait}; at once with `{}`.", command("retry"))
            }
            _ => "It is tried again as soon as a worker takes it up.".to_owned(),
        };
        let tried = times(state.attempts, "attempt");
        sentences.push(match apart {
            _ if is_unavailable(state) => {
                format!("{delivery} has waited {} for its destination: {error}", duration(state.retries.total()))
            }
            Some(last) => format!("A group up to {last} failed: {error} Each of it is tried by itself."),
            None if state.has_attempts_of_latest() => {
                format!("The latest of those that wait failed after {tried}: {error}")
            }
            None => format!("{delivery} failed after {tried}: {error}"),
        });
        sentences.push(again);
    }
    if state.suspect > 0 {
        let died = times(state.suspect, "worker");
        sentences.push(format!(
            "{died} died while {delivery} was next. It is a suspect: it runs after the others of its batch, alone, and its start is recorded before."
        ));
    }
    let kind = Kind::of(state, now);
    sentences.extend(match (kind, &state.held) {
        (Kind::AtWork, Some(held)) => {
            let left = duration(held.expires_at.since(now));
            vec![format!("A worker ({by}) is at work on it; its lease expires in {left} unless renewed.")]
        }
        (Kind::Held, Some(held)) => {
            let left = duration(held.expires_at.since(now));
            let release = command("lease release");
            vec![
                format!("Held by {by}, which is no worker; the lease expires in {left} unless renewed. Deliveries wait until then."),
                format!("If it hangs, take the lease from it with `{release} --why TEXT`."),
            ]
        }
        (_, Some(held)) => {
            let ago = duration(now.since(held.expires_at));
            vec![format!(
                "Its holder ({by}) died or froze: its lease expired {ago} ago. The next wake-up takes it over: the dead worker's own, a new webhook's, or the sweep's within the hour. Wake it now with `{}`.",
                command("unblock")
            )]
        }
        (Kind::Idle, None) => vec!["All that arrived is settled.".to_owned()],
        (Kind::Waiting, None) => {
            let waiting = state.waiting();
            let wait = if waiting == 1 { "1 delivery waits".to_owned() } else { format!("{waiting} deliveries wait") };
            vec![format!("{wait} for a worker. If that lasts, wake one with `{}`.", command("unblock"))]
        }
        (_, None) => Vec::new(),
    });
    Standing { word: kind.styled(), sentences }
}

/// That a person put it on hold, where that is so.
fn on_hold(state: &EntityState, now: Timestamp, command: impl Fn(&str) -> String) -> Option<String> {
    let since = duration(now.since(state.hold.since()?));
    let waiting = match state.waiting() {
        0 => "Nothing waits".to_owned(),
        1 => "1 delivery waits".to_owned(),
        many => format!("{many} deliveries wait"),
    };
    let (history, resume) = (command("history"), command("resume"));
    Some(format!("On hold for {since}: `{history}` says who, and why. {waiting}, until `{resume}`."))
}

fn times(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::protocol::{
        entity::{EntityKey, Sequence},
        format::{FORMAT, attribute as a},
        table::Row,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn state(change: impl FnOnce(&mut EntityState)) -> EntityState {
        let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, "shop/order/1").with(a::TAIL, 4_u32);
        let mut state = EntityState::parse(&row.with(a::HEAD, 2_u32).with(a::TOKEN, 9_u32)).unwrap();
        assert_eq!((&state.entity, state.next()), (&EntityKey::parse("shop/order/1").unwrap(), Sequence(3)));
        change(&mut state);
        state
    }

    fn said(state: &EntityState) -> String {
        let standing = standing(state, None, NOW, |command| format!("serializer {command} shop/order/1"));
        format!("{} | {}", standing.word.force_styling(false), standing.sentences.join(" "))
    }

    #[test]
    fn a_blocked_order_says_why_and_how_it_goes_on() {
        let blocked = |reason| {
            state(|state| {
                state.blocked = Some(reason);
                state.attempts = 8;
                state.last_error = Some("the warehouse is closed".into());
            })
        };
        assert_eq!(
            said(&blocked(BlockReason::Attempts)),
            "blocked | Blocked after 8 failed attempts at 3: the warehouse is closed The rest of the order waits behind it. Once that is mended, let it go on with `serializer unblock shop/order/1`. Or set it aside, and let the rest go on: `serializer skip shop/order/1 3 --why TEXT`."
        );
        for reason in [BlockReason::Expired, BlockReason::Vanished] {
            let said = said(&blocked(reason));
            assert!(said.starts_with("blocked | Blocked at 3: ") && said.contains("`serializer unblock "), "{said}");
        }
    }

    #[test]
    fn an_attempt_that_is_due_is_not_again_in_0_ms() {
        let failing = |retry_at: u64| {
            state(|state| {
                state.attempts = 1;
                state.last_error = Some("no".into());
                state.retry_at = Some(Timestamp::from_millis(retry_at));
            })
        };
        let due = said(&failing(999_000));
        assert_eq!(due, "failing | 3 failed after 1 attempt: no It is tried again as soon as a worker takes it up.");
        let later = said(&failing(1_004_000));
        assert!(
            later.ends_with("It is tried again in 4.0 s; at once with `serializer retry shop/order/1`."),
            "{later}"
        );
    }

    #[test]
    fn a_group_that_failed_is_said_to_be_tried_one_by_one() {
        let failed = |one_by_one, attempts| {
            said(&state(|state| {
                (state.one_by_one, state.attempts) = (Some(Sequence(one_by_one)), attempts);
                state.last_error = Some("no".into());
                state.retry_at = Some(Timestamp::from_millis(1_004_000));
            }))
        };
        assert_eq!(
            failed(4, 0),
            "failing | A group up to 4 failed: no Each of it is tried by itself. It is tried again in 4.0 s; at once with `serializer retry shop/order/1`."
        );
        let latest = "failing | The latest of those that wait failed after 1 attempt: no It is tried again in 4.0 s; ";
        assert!(failed(2, 1).starts_with(latest), "{}", failed(2, 1));
    }

    #[test]
    fn an_order_on_hold_says_since_when_and_how_to_learn_why() {
        let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, "shop/order/1").with(a::TAIL, 4_u32);
        let row = row.with(a::HEAD, 2_u32).with(a::TOKEN, 9_u32).with(a::HOLD, 940_000_u32);
        let rest = "On hold for 1 min: `serializer history shop/order/1` says who, and why. 2 deliveries wait, until `serializer resume shop/order/1`.";
        assert_eq!(said(&EntityState::parse(&row).unwrap()), format!("on hold | {rest}"));
        let blocked = said(&EntityState::parse(&row.clone().with(a::BLOCKED, "attempts")).unwrap());
        assert!(blocked.starts_with("blocked | ") && blocked.ends_with(rest), "{blocked}");
        let drained = row.with(a::HOLDER, "h").with(a::KIND, "drain").with(a::EXPIRES_AT, 1_012_000_u32);
        let drained = said(&EntityState::parse(&drained).unwrap());
        assert!(drained.ends_with("ends what it is at, and starts nothing else."), "{drained}");
    }

    #[test]
    fn a_holder_that_vanished_is_said_to_be_taken_over_and_by_what() {
        let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, "shop/order/1").with(a::TAIL, 4_u32);
        let row = row.with(a::HEAD, 2_u32).with(a::TOKEN, 9_u32).with(a::SUSPECT, 2_u32);
        let held = |kind: &str, until: u64| {
            let row = row.clone().with(a::HOLDER, "h").with(a::KIND, kind).with(a::HOLDER_INFO, "worker 3");
            said(&EntityState::parse(&row.with(a::EXPIRES_AT, until)).unwrap())
        };
        let gone = held("drain", 992_000);
        assert!(gone.contains("(worker 3) died or froze: its lease expired 8.0 s ago."), "{gone}");
        assert!(gone.contains("2 workers died while 3 was next. It is a suspect"), "{gone}");
        assert!(held("drain", 1_012_000).contains("A worker (worker 3) is at work on it; its lease expires in 12.0 s"));
        let held = held("exclusive", 1_012_000);
        assert!(
            held.contains("Held by worker 3, which is no worker") && held.contains("`serializer lease release"),
            "{held}"
        );
    }
}
