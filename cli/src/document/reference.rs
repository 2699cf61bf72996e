//! Generates the reference of the sources document: `docs/sources-reference.md`, the JSON Schema for editors, and
//! `docs/providers.md`. Also a part of `docs/operating.md`.
//!
//! The library describes the fields, beside the code that parses them.

mod page;
mod providers;
mod schema;
mod verbs;

#[cfg(test)]
mod tests;

use webhook_serializer::sources::reference;

pub use page::page;
pub use providers::providers;
pub use schema::schema;
pub use verbs::verbs;

/// Returns whether the table `generic` has a field `name`.
pub fn is_of_generic(name: &str) -> bool {
    let source = reference::source();
    let generic = source.fields.iter().find(|field| field.name == "generic").and_then(|field| field.table());
    generic.is_some_and(|generic| generic.fields.iter().any(|field| field.name == name))
}
