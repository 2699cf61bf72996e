//! The table of the providers' own rules in `docs/sources.md`.

use std::fmt::Write;

use webhook_serializer::providers::{self, Kind, Line};

/// A row for each line of each provider's rule, in Markdown.
pub fn rules() -> String {
    let mut rows = "| provider | family of topics | the id is in | entity |\n|---|---|---|---|\n".to_owned();
    for name in providers::NAMES {
        let Some(rule) = providers::rule_of(name) else { continue };
        for line in rule.lines {
            let id = line.places.iter().map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", else ");
            let _ = writeln!(rows, "| `{name}` | {} | {id} | {} |", families(line), kind(line.kind));
        }
    }
    rows
}

fn families(line: &Line) -> String {
    match line.families {
        [] => "any".to_owned(),
        families => families.iter().map(|family| format!("`{family}`")).collect::<Vec<_>>().join(", "),
    }
}

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Named(kind) => format!("`{kind}/ID`"),
        Kind::Family => "`FAMILY/ID`".to_owned(),
        Kind::At(place) => format!("`TYPE/ID`, the type from `{place}`"),
    }
}
