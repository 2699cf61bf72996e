//! The sources document, field by field: what `docs/sources-reference.md` and
//! the JSON Schema for editors are made of; and what is known of the providers,
//! `docs/providers.md`.
//!
//! It stands here and not beside the code that reads the document, so that the
//! functions do not carry it. The tests hold it against that code: every field
//! that is read is described, every field that is described is read, and what
//! is said of it is so.

mod fields;
mod page;
mod providers;
mod schema;

#[cfg(test)]
mod tests;

pub use page::page;
pub use providers::providers;
pub use schema::schema;

/// Whether a field of that name is one of the table `generic`.
pub fn is_of_generic(name: &str) -> bool {
    fields::GENERIC.fields.iter().any(|field| field.name == name)
}

/// A table of the document.
#[derive(Debug)]
struct Table {
    /// How it is written.
    path: &'static str,
    /// What it is.
    about: &'static str,
    fields: &'static [Field],
}

/// A field of a table.
#[derive(Debug)]
struct Field {
    name: &'static str,
    form: Form,
    absent: Absent,
    /// A value of it, as TOML.
    example: &'static str,
    /// What it means. Markdown.
    about: &'static str,
}

/// What is written.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// A text that this pattern describes.
    Text(Pattern),
    /// One such text, or a list of them.
    OneOrMore(Pattern),
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, or a table of which one field holds a number up to that.
    WordOrMost(&'static [&'static str], &'static str, u8),
    /// A whole number from 1 on.
    Count,
    /// `true` or `false`.
    Flag,
    /// A table of its own.
    Table(&'static Table),
}

/// A form of texts.
#[derive(Debug, Clone, Copy)]
struct Pattern {
    /// What it is called in the page.
    name: &'static str,
    /// A regular expression for editors. It may let through what the reader
    /// refuses; never the other way round.
    regex: &'static str,
}

/// What it means to leave a field out.
#[derive(Debug, Clone, Copy)]
enum Absent {
    /// It cannot be left out.
    Required,
    /// The same as this value, as TOML.
    Is(&'static str),
    /// This, in words.
    Means(&'static str),
}
