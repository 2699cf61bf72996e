//! Describes the fields of the sources document, for its reference page, its schema and the command.
//!
//! The macro `document_table` declares a table once: the struct that serde parses, and its description. The Lambda
//! functions do not call the descriptions, so the linker leaves them out of their binaries.

use std::fmt;

use serde::{
    Deserialize,
    de::{self, value::StrDeserializer},
};

#[cfg(any(test, feature = "scheduler"))]
use super::alerts::AlertsEntry;
use super::{origin::OriginEntry, source::SourceEntry};

#[derive(Debug)]
pub struct ReferenceTable {
    pub path: &'static str,
    pub about: &'static str,
    pub fields: Vec<ReferenceField>,
}

#[derive(Debug)]
pub struct ReferenceField {
    pub name: &'static str,
    pub form: FieldForm,
    pub absent: Absent,
    pub example: &'static str,
    pub about: &'static str,
    /// Other fields and the values that they need, if this field is present.
    pub needs: &'static [(&'static str, &'static str)],
}

#[derive(Debug, Clone, Copy)]
pub enum FieldForm {
    Text(FieldPattern),
    OneOrMore(FieldPattern),
    Word(&'static [&'static str]),
    /// One of the words in the first value, or a table with one numeric field. The second value is the field's name,
    /// and the third its largest value.
    WordOrMost(&'static [&'static str], &'static str, u8),
    Count,
    Flag,
    /// A table from JSON pointers to a value or a list of values.
    Filter,
    Table(fn() -> ReferenceTable),
}

#[derive(Debug, Clone, Copy)]
pub struct FieldPattern {
    pub name: &'static str,
    /// The form in words, for the reference page. Empty if the name says it.
    pub about: &'static str,
    /// A regular expression for editors. The expression may accept more than the parser, but never less.
    pub regex: &'static str,
    /// Texts that neither the parser nor the expression accepts.
    pub refused: &'static [&'static str],
    pub is_secret: bool,
}

/// The effect of omitting a field.
#[derive(Debug, Clone, Copy)]
pub enum Absent {
    Required,
    Is(&'static str),
    Means(&'static str),
    /// The effect, unless another field has one of these values, which require the field.
    MeansUnless(&'static str, &'static str, &'static [&'static str]),
    /// The field is required if another field has one of these values, and refused otherwise.
    RequiredBy(&'static str, &'static [&'static str]),
    /// The field is required if all these other fields, of its table or of the source, are absent, and refused otherwise.
    RequiredWithout(&'static [&'static str]),
}

pub const NAME: &str = "^[a-z0-9_-]{1,64}$";

pub(crate) const fn pattern(name: &'static str, regex: &'static str, refused: &'static [&'static str]) -> FieldPattern {
    FieldPattern { name, about: "", regex, refused, is_secret: false }
}

const fn secret(regex: &'static str, refused: &'static [&'static str]) -> FieldPattern {
    FieldPattern { is_secret: true, ..pattern("text", regex, refused) }
}

pub(crate) const ANY: FieldPattern = pattern("text", "", &[]);
pub(crate) const NOT_EMPTY: FieldPattern = pattern("text", ".", &[""]);
pub(crate) const SOURCE: FieldPattern = pattern("source", NAME, &["", "My Shop"]).about("a source's name");
pub(crate) const DURATION: FieldPattern = pattern("duration", r"^\s*(0|([0-9.]+\s*[A-Za-zµ]+\s*)+)\s*$", &["soon"])
    .about("a text of numbers and units: `\"500ms\"`, `\"10s\"`, `\"5m\"`, `\"1h 30m\"`");
pub(crate) const RATE: FieldPattern =
    pattern("rate", r"^\s*\+?0*([1-9][0-9]{0,2}|1000)\s*/\s*(s|min|h)\s*$", &["5", "0/s", "1001/s", "5/day"])
        .about("a text: a number from 1 to 1000, a slash, and `s`, `min` or `h`");
pub(crate) const HEADER: FieldPattern =
    pattern("header", r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", &["", "x y"]).about("a header's name, in any case");
pub(crate) const PLACE: FieldPattern =
    pattern(
        "place",
        r"^((/([^~]|~[01])*)|[!#$%&'*+.^_`|~0-9A-Za-z-]+|\{(form|query):[^{}]+\})$",
        &["", "x y", "event/type", "{id}"],
    )
    .about(
        "a header's name; starting with a slash, a JSON pointer into the body: `\"/order/id\"`; `{form:NAME}` in a form; or `{query:NAME}` in the URL",
    );
pub(crate) const TOKEN: FieldPattern =
    pattern("token place", r"^([!#$%&'*+.^_`|~0-9A-Za-z-]+|\{query:[^{}]+\})$", &["", "x y", "/key", "{form:key}"])
        .about("a header's name, `{query:NAME}` or `basic`");
pub(crate) const TEMPLATE: FieldPattern = pattern(
    "template",
    r"^([^{}]*\{([^{}:]+:)?(source|provider|topic|account|entity|/[^{}]+|(header|form|query):[^{}]+)\}[^{}]*)+$|^[^{}/]+/[^{}]+$",
    &["{order}", "orders"],
)
.about("a text with [fields in braces](sources.md#entity-what-order-is-kept-for)");
pub(crate) const TOPIC: FieldPattern = pattern("topic", r"^\S(.*\S)?$", &["", " orders/*", "orders/* "])
    .about("a topic as the provider writes it, where `*` matches any text, even none: `\"orders/*\"`");
pub(crate) const URL: FieldPattern =
    pattern("URL", "^[Hh][Tt][Tt][Pp][Ss]?://.", &["example.com", "ftp://example.com/"]);
pub(crate) const FUNCTION: FieldPattern = pattern(
    "function",
    "^(arn:aws[A-Za-z0-9_-]*:lambda:[A-Za-z0-9_-]{1,32}:[0-9]{12}:function:)?[A-Za-z0-9_-]{1,64}$",
    &["two words", "orders:live"],
);
pub(crate) const QUALIFIER: FieldPattern = pattern("qualifier", r"^(\$LATEST|[A-Za-z0-9_-]{1,128})$", &["", "$OLDEST"]);
pub(crate) const SIGNED: FieldPattern = pattern("text", r"\{body\}", &["", "{timestamp}"]);
pub(crate) const TABLE_NAME: FieldPattern = pattern("table", "^[A-Za-z0-9_.-]{3,255}$", &["", "a b"]);
pub(crate) const SECRET: FieldPattern = secret(".", &[""]);
pub(crate) const SIGNING_KEY: FieldPattern = secret("^whsec_.", &["secret"]);
#[cfg(any(test, feature = "scheduler"))]
pub(crate) const ALERT_URL: FieldPattern =
    FieldPattern { name: "URL", ..secret("^[Hh][Tt][Tt][Pp][Ss]?://.", &["example.com", "ftp://example.com/"]) };
pub(crate) const ORIGIN_SECRET: FieldPattern = secret(".{32}", &["short"]);

impl FieldPattern {
    pub(crate) const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }
}

/// Returns the table of one source.
pub fn source() -> ReferenceTable {
    SourceEntry::reference()
}

pub fn origin() -> ReferenceTable {
    OriginEntry::reference()
}

#[cfg(any(test, feature = "scheduler"))]
pub fn alerts() -> ReferenceTable {
    AlertsEntry::reference()
}

/// Returns all tables of the document, in the order of the reference page.
#[cfg(any(test, feature = "scheduler"))]
pub fn tables() -> Vec<ReferenceTable> {
    let source = source();
    let inner: Vec<ReferenceTable> = source.fields.iter().filter_map(|field| field.table()).collect();
    [source].into_iter().chain(inner).chain([origin(), alerts()]).collect()
}

impl ReferenceField {
    pub fn table(&self) -> Option<ReferenceTable> {
        match self.form {
            FieldForm::Table(table) => Some(table()),
            _ => None,
        }
    }

    pub fn pattern(&self) -> Option<FieldPattern> {
        match self.form {
            FieldForm::Text(pattern) | FieldForm::OneOrMore(pattern) => Some(pattern),
            _ => None,
        }
    }
}

/// Returns the form of an enum, with the words that its parser accepts.
pub(crate) fn word<'de, T: Deserialize<'de>>() -> FieldForm {
    let refused = T::deserialize(StrDeserializer::<RefusedWord>::new(""));
    FieldForm::Word(refused.err().map_or(&[], |RefusedWord(expected)| expected))
}

/// A parser's error about a word, which contains the accepted ones.
#[derive(Debug)]
struct RefusedWord(&'static [&'static str]);

impl de::Error for RefusedWord {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self(expected)
    }
}

impl std::error::Error for RefusedWord {}

impl fmt::Display for RefusedWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.0.join(", "))
    }
}

/// Declares a table of the sources document: the struct that serde parses, and `reference`, which returns the
/// table's description.
///
/// The doc comments are the texts of the reference page. The attribute `field` has the field's form, the effect of
/// omitting it, an example in TOML, and, in `needs`, the values of other fields that the example depends on.
macro_rules! document_table {
    (
        $(#[doc = $about:literal])+
        #[table($path:literal)]
        $(#[$attribute:meta])*
        $vis:vis struct $table:ident {
            $(
                $(#[doc = $doc:literal])+
                #[field(
                    $form:expr,
                    $absent:ident $(($($value:tt)+))?,
                    example($($example:tt)+)
                    $(, needs($($other:ident = $($toml:ident)? $needed:literal),+))?
                )]
                $(#[$field_attribute:meta])*
                $field_vis:vis $field:ident: $type:ty,
            )+
        }
    ) => {
        $(#[doc = $about])+
        $(#[$attribute])*
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $vis struct $table {
            $(
                $(#[doc = $doc])+
                $(#[$field_attribute])*
                $field_vis $field: $type,
            )+
        }

        impl $table {
            pub(crate) fn reference() -> $crate::sources::reference::ReferenceTable {
                use $crate::sources::reference::{Absent, ReferenceField, ReferenceTable, absent, toml};
                ReferenceTable {
                    path: $path,
                    about: concat!($($about),+).trim_start(),
                    fields: vec![$(ReferenceField {
                        name: stringify!($field).rsplit('#').next().unwrap_or_default(),
                        form: $form,
                        absent: absent!($absent $($($value)+)?),
                        example: toml!($($example)+),
                        about: concat!($($doc),+).trim_start(),
                        needs: &[$($((stringify!($other), toml!($($toml)? $needed))),+)?],
                    }),+],
                }
            }
        }
    };
}

macro_rules! absent {
    (required) => { Absent::Required };
    (default $($value:tt)+) => { Absent::Is(toml!($($value)+)) };
    (means $words:literal) => { Absent::Means($words) };
    (means_unless $words:literal, $field:ident = $($value:literal)|+) => {
        Absent::MeansUnless($words, stringify!($field), &[$(stringify!($value)),+])
    };
    (required_by $field:ident = $($value:literal)|+) => { Absent::RequiredBy(stringify!($field), &[$(stringify!($value)),+]) };
    (required_without $($field:ident)|+) => { Absent::RequiredWithout(&[$(stringify!($field)),+]) };
}

/// The TOML text of a literal, or the text after `toml`.
macro_rules! toml {
    (toml $text:literal) => {
        $text
    };
    ($value:literal) => {
        stringify!($value)
    };
}

pub(crate) use {absent, document_table, toml};
