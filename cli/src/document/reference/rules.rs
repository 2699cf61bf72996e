//! The table of the providers' own rules in `docs/sources.md`.

use std::fmt::Write;

use webhook_serializer::providers::{self, Kind, Line};

/// A row for each line of each provider's rule, in Markdown.
pub fn rules() -> String {
    let mut rows = "| provider | family of topics | the id is in | entity |\n|---|---|---|---|\n".to_owned();
    for name in providers::NAMES {
        let Some(rule) = providers::rule_of(name) else { continue };
        for line in rule.lines {
            let _ = writeln!(rows, "| `{name}` | {} | {} | {} |", families(line), ids(line), kind(line.kind));
        }
    }
    rows
}

/// A line of a rule, in a few words.
pub(super) fn line(line: &Line) -> String {
    let families = if line.families.is_empty() { String::new() } else { format!("{}: ", families(line)) };
    format!("{families}{} makes {}", ids(line), kind(line.kind))
}

fn ids(line: &Line) -> String {
    line.places.iter().map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", else ")
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
        Kind::Inside { word, marks } => {
            let marks = marks.iter().map(|mark| format!("`{mark}`")).collect::<Vec<_>>().join(" or ");
            format!("`{word}/ID`, the id behind {marks}")
        }
    }
}
