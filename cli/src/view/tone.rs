//! The tones of states, outcomes and events. Terminal, pictures and console take their colours from this table.

use console::{Style, StyledObject};
use webhook_serializer::{protocol::receipt::Settlement, telemetry::LogMessage};

use super::order_status::Kind;

/// The attention that a state or an outcome needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Bad,
    Warn,
    Busy,
    Good,
    Quiet,
}

impl Tone {
    /// Returns the style in a terminal, the class in the console's style sheet, and the colour in a picture.
    fn look(self) -> (Style, &'static str, &'static str) {
        let style = Style::new();
        match self {
            Self::Bad => (style.red().bold(), "bad", "#d64545"),
            Self::Warn => (style.yellow(), "warn", "#8a5a00"),
            Self::Busy => (style.cyan(), "busy", "#3b7dd8"),
            Self::Good => (style.green(), "good", "#2f9e8f"),
            Self::Quiet => (style.dim(), "none", "#8a8a8a"),
        }
    }

    pub fn style(self) -> Style {
        self.look().0
    }

    pub fn class(self) -> &'static str {
        self.look().1
    }

    pub fn colour(self) -> &'static str {
        self.look().2
    }
}

impl From<Kind> for Tone {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Blocked | Kind::Parked => Self::Bad,
            Kind::OnHold | Kind::Failing | Kind::Unavailable | Kind::Abandoned | Kind::Leased => Self::Warn,
            Kind::Waiting | Kind::AtWork => Self::Busy,
            Kind::Idle => Self::Good,
        }
    }
}

impl From<Settlement> for Tone {
    fn from(settlement: Settlement) -> Self {
        match settlement {
            Settlement::Applied => Self::Good,
            Settlement::Parked => Kind::Parked.into(),
            Settlement::Repeat | Settlement::Superseded | Settlement::Void => Self::Quiet,
        }
    }
}

/// The word for a state, an outcome or an event, and its tone, if it has one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    pub tone: Option<Tone>,
}

impl Word {
    pub fn new(text: impl Into<String>, tone: impl Into<Tone>) -> Self {
        Self { text: text.into(), tone: Some(tone.into()) }
    }

    pub fn style(&self) -> Style {
        self.tone.map(Tone::style).unwrap_or_default()
    }

    pub fn styled(&self) -> StyledObject<&str> {
        self.style().apply_to(&self.text)
    }
}

impl From<Kind> for Word {
    fn from(kind: Kind) -> Self {
        Self::new(kind.as_str(), kind)
    }
}

impl From<Settlement> for Word {
    fn from(settlement: Settlement) -> Self {
        Self::new(settlement.as_str(), settlement)
    }
}

impl From<LogMessage> for Word {
    fn from(message: LogMessage) -> Self {
        let tone = match message {
            LogMessage::Accepted => Some(Kind::Waiting.into()),
            LogMessage::Blocked => Some(Kind::Blocked.into()),
            LogMessage::LeaseLost | LogMessage::WakeUpNotSent | LogMessage::WakeUpOwed => Some(Tone::Warn),
            _ => None,
        };
        Self { text: message.as_str().to_owned(), tone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::lanes::MarkKind;

    #[test]
    fn outcome_has_one_tone_as_word_and_as_mark() {
        for settlement in Settlement::ALL {
            let mark = MarkKind::of(settlement).map(|mark| mark.sign().1);
            assert!(mark.is_none_or(|mark| mark == settlement.into()), "{settlement}");
        }
        assert_eq!(Word::from(Settlement::Parked).tone, Word::from(Kind::Parked).tone);
        assert_eq!(Word::from(LogMessage::Blocked), Word::from(Kind::Blocked));
    }

    #[test]
    fn style_sheet_has_each_tone_of_badges_and_signs() {
        let sheet = include_str!("../console/assets/console.css");
        // Elements without a rule of their own are quiet.
        let has = |element: &str, tone: Tone| {
            tone == Tone::Quiet || sheet.contains(&format!(".{element}.{} {{", tone.class()))
        };
        assert!(Kind::ALL.into_iter().all(|kind| has("badge", kind.into())));
        let marks = [MarkKind::Parked, MarkKind::Blocked, MarkKind::Failed, MarkKind::TakenOver];
        assert!(marks.into_iter().all(|mark| has("sign", mark.sign().1)));
    }
}
