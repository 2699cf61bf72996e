//! Generates the reference of the sources document: `docs/sources-reference.md`, the JSON Schema for editors, and
//! `docs/providers.md`.
//!
//! The reference is part of the command and not of the parser, so that the Lambda functions' binaries do not contain
//! it. Tests check that reference and parser have the same fields and the same limits.

mod fields;
mod page;
mod providers;
mod schema;

#[cfg(test)]
mod tests;

pub use page::page;
pub use providers::providers;
pub use schema::schema;

pub fn is_of_generic(name: &str) -> bool {
    fields::GENERIC.fields.iter().any(|field| field.name == name)
}

#[derive(Debug)]
struct ReferenceTable {
    path: &'static str,
    about: &'static str,
    fields: &'static [ReferenceField],
}

#[derive(Debug)]
struct ReferenceField {
    name: &'static str,
    form: FieldForm,
    absent: Absent,
    example: &'static str,
    about: &'static str,
}

#[derive(Debug, Clone, Copy)]
enum FieldForm {
    Text(FieldPattern),
    OneOrMore(FieldPattern),
    Word(&'static [&'static str]),
    /// One of the words in the first value, or a table with one numeric field. The second value is the field's name,
    /// and the third its largest value.
    WordOrMost(&'static [&'static str], &'static str, u8),
    Count,
    Flag,
    Table(&'static ReferenceTable),
}

#[derive(Debug, Clone, Copy)]
struct FieldPattern {
    name: &'static str,
    /// A regular expression for editors. The expression may accept more than the parser, but never less.
    regex: &'static str,
}

/// The effect of omitting a field.
#[derive(Debug, Clone, Copy)]
enum Absent {
    Required,
    Is(&'static str),
    Means(&'static str),
}
