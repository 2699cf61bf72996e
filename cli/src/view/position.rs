//! A delivery's position: the last four digits of its sequence, as people read and type them.
//!
//! A sequence has 13 digits, because the first sequence of an order is the order's creation time in milliseconds. No
//! row tells where an order began, and the first deliveries expire, so deliveries cannot be counted from the start. The
//! last digits do not change, follow from the sequence alone, and grow by one from delivery to delivery.

use std::{fmt, str::FromStr, time::Duration};

use webhook_serializer::{
    engine::store::{Store, StoreError},
    protocol::entity::{EntityKey, Sequence},
};

use crate::output::this_command;

/// The timeout of reading an order's row.
const PATIENCE: Duration = Duration::from_secs(10);

const RANGE: u64 = 10_000;

/// Formats a sequence by its last four digits: `{}` gives `7011`, and `{:#}` gives `#7011`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortSequence(pub Sequence);

impl fmt::Display for ShortSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if f.alternate() { "#" } else { "" };
        match self.0.0 {
            sequence @ ..RANGE => write!(f, "{mark}{sequence}"),
            sequence => write!(f, "{mark}{:04}", sequence % RANGE),
        }
    }
}

pub fn marked(sequence: Sequence) -> String {
    format!("{:#}", ShortSequence(sequence))
}

/// A delivery as an operator names it: a whole sequence or its last four digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named(u64);

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix('#').unwrap_or(text).parse().map(Self).map_err(|_| {
            format!(
                "a delivery is named by its position, the last four digits of its sequence, such as 7011, or by its whole \
                 sequence. `{} show ORDER` lists the order's deliveries by position",
                this_command()
            )
        })
    }
}

impl Named {
    /// Returns the sequence of the delivery of `order` that this number names. If the number is a position, the order's
    /// row is read.
    pub async fn of_order(self, order: &EntityKey, store: &Store) -> Result<Sequence, StoreError> {
        if self.0 >= RANGE {
            return Ok(Sequence(self.0));
        }
        let state = store.entity(order, PATIENCE).await?;
        Ok(self.up_to(state.map_or(Sequence(0), |state| state.tail)))
    }

    pub fn fits(self, sequence: Sequence) -> bool {
        sequence.0 == self.0 || self.0 < RANGE && sequence.0 % RANGE == self.0
    }

    /// Returns the newest sequence up to `newest` that ends in the typed digits. Without such a sequence, returns the typed
    /// number as a sequence.
    pub fn up_to(self, newest: Sequence) -> Sequence {
        if self.0 >= RANGE {
            return Sequence(self.0);
        }
        let sequence = newest.0 - newest.0 % RANGE + self.0;
        let fitting = if sequence <= newest.0 { Some(sequence) } else { sequence.checked_sub(RANGE) };
        Sequence(fitting.unwrap_or(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_is_last_four_digits_of_sequence() {
        let shown = [3, 9_999, 10_000, 1_795_504_557_011].map(|number| marked(Sequence(number)));
        assert_eq!(shown, ["#3", "#9999", "#0000", "#7011"]);
        assert_eq!(ShortSequence(Sequence(1_795_504_550_042)).to_string(), "0042");
    }

    #[test]
    fn typed_position_selects_newest_matching_sequence() {
        let up_to = |text: &str, newest| text.parse::<Named>().unwrap().up_to(Sequence(newest)).0;
        assert_eq!(up_to("7011", 1_795_504_557_013), 1_795_504_557_011);
        assert_eq!(up_to("#7011", 1_795_504_557_011), 1_795_504_557_011);
        assert_eq!(up_to("9998", 1_795_504_560_003), 1_795_504_559_998);
        assert_eq!(up_to("1795504557011", 1_795_504_557_013), 1_795_504_557_011);
        assert_eq!((up_to("3", 4), up_to("12", 4)), (3, 12));
    }

    #[test]
    fn malformed_position_error_says_what_a_position_is() {
        for text in ["abc", "", "#", "7011x", "99999999999999999999"] {
            let error = text.parse::<Named>().unwrap_err();
            assert!(error.contains("the last four digits of its sequence") && error.contains("show ORDER"), "{error}");
        }
    }

    #[test]
    fn shown_position_does_not_match_adjacent_sequence() {
        for number in [3, 9_999, 10_000, 1_795_504_557_011, u64::MAX] {
            let typed: Named = marked(Sequence(number)).parse().unwrap();
            assert!(typed.fits(Sequence(number)) && !typed.fits(Sequence(number - 1)), "{number}");
        }
        let whole: Named = "1795504557011".parse().unwrap();
        assert!(!whole.fits(Sequence(1_795_504_567_011)));
    }
}
