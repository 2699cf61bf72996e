//! The log of programs that are not Lambda functions.

use tracing::Level;

use super::{
    Observer,
    event::Event,
    line::{FieldValue, LogLine},
    metric::Metric,
};

/// An observer that passes events to the program's `tracing` subscriber. The functions use
/// [`JsonLog`](super::JsonLog) instead.
#[derive(Debug, Clone, Copy, Default)]
pub struct TracingLog;

/// Calls `tracing` with every field that a line can have. `tracing` needs the names of fields at compile
/// time.
macro_rules! event {
    ($line:ident at $level:expr) => {
        event!($line at $level, texts: entity delivery topic filter wake_up reason queue job tick message_id,
            numbers: sequence token attempt retry_in_ms after_ms delay_ms wait_ms held_ms took_ms segments seen woken kept
                unreadable unserved lost sources)
    };
    ($line:ident at $level:expr, texts: $($text:ident)*, numbers: $($number:ident)*) => {
        tracing::event!(
            $level,
            $($text = $line.text_of(stringify!($text)),)*
            source = $line.source(),
            outcome = $line.outcome(),
            $($number = $line.number_of(stringify!($number)),)*
            handler_ms = $line.value(Metric::HandlerMs),
            waited_ms = $line.value(Metric::WaitMs),
            polls = $line.value(Metric::Polls),
            "{}",
            $line.message
        )
    };
}

impl Observer for TracingLog {
    fn observe(&self, event: &Event<'_>) {
        let line = LogLine::of(event);
        match line.level {
            Level::ERROR => event!(line at Level::ERROR),
            Level::WARN => event!(line at Level::WARN),
            Level::INFO => event!(line at Level::INFO),
            Level::DEBUG => event!(line at Level::DEBUG),
            Level::TRACE => event!(line at Level::TRACE),
        }
    }
}

impl LogLine<'_> {
    fn field(&self, name: &str) -> Option<&FieldValue<'_>> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, field)| field)
    }

    fn text_of(&self, name: &str) -> Option<&str> {
        match self.field(name)? {
            FieldValue::Text(text) => Some(text),
            FieldValue::Number(_) => None,
        }
    }

    fn number_of(&self, name: &str) -> Option<u64> {
        match self.field(name)? {
            FieldValue::Text(_) => None,
            FieldValue::Number(number) => Some(*number),
        }
    }

    fn source(&self) -> Option<&str> {
        self.dimensions.map(|of| of.source).or_else(|| self.text_of("source"))
    }

    fn outcome(&self) -> Option<&str> {
        self.dimensions.map(|of| of.outcome).or_else(|| self.text_of("outcome"))
    }

    fn value(&self, metric: Metric) -> Option<u64> {
        self.metrics.iter().find(|(known, _)| *known == metric).map(|(_, value)| *value)
    }
}
