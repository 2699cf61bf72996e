//! Makes the reference page of the sources document.

use std::fmt::Write;

use webhook_serializer::sources::reference::{Absent, FieldForm, FieldPattern, ReferenceField, ReferenceTable, tables};

pub fn page() -> String {
    let mut page = HEAD.to_owned();
    let tables = tables();
    for table in &tables {
        section(table, &mut page);
    }
    page.push_str("\n## Forms\n\n| form | is |\n|---|---|\n");
    let patterns = tables.iter().flat_map(|table| &table.fields).filter_map(ReferenceField::pattern);
    let mut listed: Vec<&str> = Vec::new();
    for FieldPattern { name, about, .. } in patterns {
        if !about.is_empty() && !listed.contains(&name) {
            let _ = writeln!(page, "| {name} | {about} |");
            listed.push(name);
        }
    }
    page
}

const HEAD: &str = r#"<!-- Made by `just generate`; a test compares. Change the tables in shared/src/sources/ instead. -->

# The sources document, field by field

[Sources](sources.md) explains the use of the fields. The document is TOML, or JSON if it starts with a brace. A field that is not listed here is refused.

Editors can complete and check the document by [sources.schema.json](sources.schema.json). Visual Studio Code needs the extension *Even Better TOML*; others need [Taplo](https://taplo.tamasfe.dev). The document's first line names the schema, relative to its own folder:

```toml
#:schema docs/sources.schema.json
```

In JSON, a field names it: `"$schema": "docs/sources.schema.json"`. Outside this repository, `serializer check --schema >sources.schema.json` writes the file.

A document has at most 4 KB in an SSM parameter, 8 KB with the tier Advanced, and 64 KB in a Secrets Manager secret.
"#;

fn section(table: &ReferenceTable, page: &mut String) {
    let ReferenceTable { path, about, fields } = table;
    let _ = write!(page, "\n## `{path}`\n\n{about}\n\n| field | form | if left out | |\n|---|---|---|---|\n");
    for field in fields {
        let ReferenceField { name, form, absent, about, .. } = field;
        let form = form_of(*form);
        let absent = absent_of(*absent);
        let _ = writeln!(page, "| `{name}` | {form} | {absent} | {about} Example: `{}` |", field.example);
    }
}

fn form_of(form: FieldForm) -> String {
    match form {
        FieldForm::Text(pattern) => pattern.name.to_owned(),
        FieldForm::OneOrMore(pattern) => format!("{}, or a list", pattern.name),
        FieldForm::Word(words) => one_of(words),
        FieldForm::WordOrMost(words, field, most) => {
            format!("{}, `{{ {field} = 2 }}` to `{{ {field} = {most} }}`", one_of(words))
        }
        FieldForm::Count => "whole number from 1".to_owned(),
        FieldForm::Flag => "`true`, `false`".to_owned(),
        FieldForm::Filter => "table".to_owned(),
        FieldForm::Table(_) => "table".to_owned(),
    }
}

fn one_of(words: &[&str]) -> String {
    words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
}

fn absent_of(absent: Absent) -> String {
    match absent {
        Absent::Required => "**required**".to_owned(),
        Absent::Is("{}") => "each field's default".to_owned(),
        Absent::Is(value) => format!("`{value}`"),
        Absent::Means(words) => words.to_owned(),
        Absent::MeansUnless(words, field, values) => format!("{words}; required by {}", has_value(field, values)),
        Absent::RequiredBy(field, values) => {
            format!("required by {}, refused with any other", has_value(field, values))
        }
        Absent::RequiredWithout(fields) => {
            let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
            format!("required, unless {} is set", fields.join(" or "))
        }
    }
}

fn has_value(field: &str, values: &[&str]) -> String {
    values.iter().map(|value| format!("`{field} = {value}`")).collect::<Vec<_>>().join(" and ")
}
