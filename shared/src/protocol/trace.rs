//! Where the trace of a delivery goes on: what the header `traceparent` of [W3C
//! Trace Context](https://www.w3.org/TR/trace-context/) names. A row and a deferred
//! message hold it as that header's text; one that cannot be read is none, and the
//! delivery begins a trace of its own.
//!
//! The header `tracestate` is not kept: it may be ten times as long, and a delivery's
//! size is paid for with each write and read of it.

use super::{format::attribute as a, table::Row};

/// A place in a trace, or none. Without the feature `otel` it is always none, and
/// takes no room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trace {
    #[cfg(feature = "otel")]
    place: Option<Place>,
}

impl Trace {
    /// What the text of a `traceparent` names.
    pub fn parse(text: Option<&str>) -> Self {
        let _ = text;
        Self {
            #[cfg(feature = "otel")]
            place: text.and_then(Place::parse),
        }
    }

    /// As a delivery's row has it.
    pub(super) fn of_row(row: &Row) -> Self {
        let _ = row;
        Self {
            #[cfg(feature = "otel")]
            place: row.text(a::TRACE).and_then(Place::parse),
        }
    }

    /// The text of a `traceparent` that names it.
    pub fn text(&self) -> Option<String> {
        #[cfg(feature = "otel")]
        return self.place.map(|place| place.to_string());
        #[cfg(not(feature = "otel"))]
        None
    }

    /// Puts it into a delivery's row.
    pub(super) fn put(self, row: &mut Row) {
        if let Some(text) = self.text() {
            row.set(a::TRACE, text);
        }
    }
}

#[cfg(feature = "otel")]
impl Trace {
    /// The place, where it is one.
    pub fn place(self) -> Option<Place> {
        self.place
    }
}

#[cfg(feature = "otel")]
pub use place::Place;

#[cfg(feature = "otel")]
mod place {
    use std::fmt;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Trace;

    /// A span of a trace.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Place {
        /// The trace; not 0.
        pub trace: u128,
        /// The span; not 0.
        pub span: u64,
        /// The trace's flags; the lowest says that it is sampled.
        pub flags: u8,
    }

    /// So long is a `traceparent` of version 00.
    const LENGTH: usize = 55;

    impl Place {
        /// Reads a `traceparent`: of version 00 to the letter, of a later one as much as
        /// both have in common.
        pub fn parse(text: &str) -> Option<Self> {
            // A later version may say more behind another hyphen.
            let (known, more) = text.split_at_checked(LENGTH)?;
            let mut parts = known.split('-');
            let (version, trace) = (hex(parts.next()?, 2)?, hex(parts.next()?, 32)?);
            let (span, flags) = (hex(parts.next()?, 16)?, hex(parts.next()?, 2)?);
            let is_whole = match version {
                0 => more.is_empty(),
                0xff => false,
                _ => more.is_empty() || more.starts_with('-'),
            };
            let place = Self { trace, span: span as u64, flags: flags as u8 };
            (parts.next().is_none() && is_whole && trace != 0 && span != 0).then_some(place)
        }
    }

    /// So many digits, in lower case.
    fn hex(text: &str, digits: usize) -> Option<u128> {
        let is_hex = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        u128::from_str_radix(text, 16).ok().filter(|_| is_hex)
    }

    impl fmt::Display for Place {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
        }
    }

    impl From<Place> for Trace {
        fn from(place: Place) -> Self {
            Self { place: Some(place) }
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
        fn a_traceparent_is_read_and_written_as_it_was() {
            for text in [GOOD, "00-00000000000000000000000000000001-0000000000000001-00"] {
                assert_eq!(Trace::parse(Some(text)).text().as_deref(), Some(text));
            }
        }

        #[test]
        fn of_a_later_version_what_both_have_in_common_is_read() {
            let later = GOOD.replacen("00", "cc", 1);
            for text in [later.clone(), format!("{later}-what the future brings"), format!("{later}-")] {
                assert_eq!(Trace::parse(Some(&text)).text().as_deref(), Some(GOOD), "{text}");
            }
            assert_eq!(Place::parse(&format!("{later}.x")), None);
        }

        #[test]
        fn what_is_not_to_the_letter_is_none() {
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
                assert_eq!(Place::parse(text), None, "{text}");
            }
        }

        proptest! {
            #[test]
            fn any_place_is_read_as_it_was_written(trace in 1_u128.., span in 1_u64.., flags: u8) {
                let place = Place { trace, span, flags };
                prop_assert_eq!(Place::parse(&place.to_string()), Some(place));
            }

            #[test]
            fn any_text_is_read_or_is_none(text in "\\PC{0,80}", more in "[0-9a-f-]{0,70}") {
                for text in [text, more] {
                    if let Some(place) = Place::parse(&text) {
                        prop_assert!(place.trace != 0 && place.span != 0);
                    }
                }
            }
        }
    }
}
