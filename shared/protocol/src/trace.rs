//! The trace of a delivery, as in the header `traceparent` of [W3C Trace
//! Context](https://www.w3.org/TR/trace-context/). Rows and deferred messages store the header's
//! text. A delivery whose header is invalid starts a new trace.
//!
//! The header `tracestate` is not stored. It may be ten times as long, and each stored byte adds to
//! the cost of writes and reads.

use super::{format::attribute as a, table::Row};

/// The parent span of a delivery's run, if there is one. Without the feature `otel` the type is
/// empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trace {
    #[cfg(feature = "otel")]
    parent: Option<TraceParent>,
}

impl Trace {
    /// Parses a `traceparent` header. The result is empty if the header is absent or invalid.
    pub fn parse(text: Option<&str>) -> Self {
        let _ = text;
        Self {
            #[cfg(feature = "otel")]
            parent: text.and_then(TraceParent::parse),
        }
    }

    pub(super) fn of_row(row: &Row) -> Self {
        let _ = row;
        Self {
            #[cfg(feature = "otel")]
            parent: row.text(a::TRACE).and_then(TraceParent::parse),
        }
    }

    pub fn text(&self) -> Option<String> {
        #[cfg(feature = "otel")]
        return self.parent.map(|parent| parent.to_string());
        #[cfg(not(feature = "otel"))]
        None
    }

    pub(super) fn put(self, row: &mut Row) {
        if let Some(text) = self.text() {
            row.set(a::TRACE, text);
        }
    }
}

#[cfg(feature = "otel")]
impl Trace {
    pub fn parent(self) -> Option<TraceParent> {
        self.parent
    }
}

#[cfg(feature = "otel")]
pub use parent::TraceParent;

#[cfg(feature = "otel")]
mod parent {
    use std::fmt;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Trace;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TraceParent {
        /// The trace id, which is not 0.
        pub trace: u128,
        /// The span id, which is not 0.
        pub span: u64,
        /// The trace flags. The lowest bit means that the trace is sampled.
        pub flags: u8,
    }

    /// The length in bytes of a `traceparent` header of version 00.
    const LENGTH: usize = 55;

    impl TraceParent {
        /// Parses a `traceparent` header. If the header has a later version, only the fields of
        /// version 00 are read.
        pub fn parse(text: &str) -> Option<Self> {
            // A later version may have more fields after another hyphen.
            let (known, more) = text.split_at_checked(LENGTH)?;
            let mut parts = known.split('-');
            let version = hex(parts.next()?, 2)?;
            let trace = hex(parts.next()?, 32)?;
            let span = hex(parts.next()?, 16)?;
            let flags = hex(parts.next()?, 2)?;
            let is_whole = match version {
                0 => more.is_empty(),
                0xff => false,
                _ => more.is_empty() || more.starts_with('-'),
            };
            let parent = Self { trace, span: span as u64, flags: flags as u8 };
            (parts.next().is_none() && is_whole && trace != 0 && span != 0).then_some(parent)
        }
    }

    fn hex(text: &str, digits: usize) -> Option<u128> {
        let is_hex = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        u128::from_str_radix(text, 16).ok().filter(|_| is_hex)
    }

    impl fmt::Display for TraceParent {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
        }
    }

    impl From<TraceParent> for Trace {
        fn from(parent: TraceParent) -> Self {
            Self { parent: Some(parent) }
        }
    }

    impl Serialize for Trace {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.text().serialize(serializer)
        }
    }

    impl<'de> Deserialize<'de> for Trace {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            Ok(Self::parse(Option::<String>::deserialize(deserializer)?.as_deref()))
        }
    }

    #[cfg(test)]
    mod tests {
        use proptest::prelude::*;

        use super::*;

        const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

        #[test]
        fn traceparent_is_written_as_read() {
            for text in [GOOD, "00-00000000000000000000000000000001-0000000000000001-00"] {
                assert_eq!(Trace::parse(Some(text)).text().as_deref(), Some(text));
            }
        }

        #[test]
        fn unknown_fields_of_later_traceparent_versions_are_ignored() {
            let later = GOOD.replacen("00", "cc", 1);
            for text in [later.clone(), format!("{later}-what the future brings"), format!("{later}-")] {
                assert_eq!(Trace::parse(Some(&text)).text().as_deref(), Some(GOOD), "{text}");
            }
            assert_eq!(TraceParent::parse(&format!("{later}.x")), None);
        }

        #[test]
        fn malformed_traceparent_is_rejected() {
            for text in [
                "",
                "garbage",
                "00",
                &GOOD[..54],
                &format!("{GOOD}-"),
                &format!("{GOOD}-00"),
                &format!("{GOOD},{GOOD}"),
                &format!(" {GOOD}"),
                &GOOD.to_uppercase(),
                &GOOD.replace('-', "_"),
                &GOOD.replacen("00", "ff", 1),
                &GOOD.replacen("4b", "+b", 1),
                &GOOD.replacen("4b", "g0", 1),
                &GOOD.replacen("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32), 1),
                &GOOD.replacen("00f067aa0ba902b7", &"0".repeat(16), 1),
                "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b-701",
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7ä0",
            ] {
                assert_eq!(TraceParent::parse(text), None, "{text}");
            }
        }

        proptest! {
            #[test]
            fn any_traceparent_is_read_as_written(trace in 1_u128.., span in 1_u64.., flags: u8) {
                let parent = TraceParent { trace, span, flags };
                prop_assert_eq!(TraceParent::parse(&parent.to_string()), Some(parent));
            }

            #[test]
            fn parsing_arbitrary_traceparent_never_panics(text in "\\PC{0,80}", more in "[0-9a-f-]{0,70}") {
                for text in [text, more] {
                    if let Some(parent) = TraceParent::parse(&text) {
                        prop_assert!(parent.trace != 0 && parent.span != 0);
                    }
                }
            }
        }
    }
}
