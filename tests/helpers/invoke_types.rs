//! Generates the types of the sample handlers from `docs/invoke.schema.json`.

use std::fs;

use tests::invoke_types::{python, typescript};

fn main() -> anyhow::Result<()> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let schema = serde_json::from_str(&fs::read_to_string(format!("{root}/docs/invoke.schema.json"))?)?;
    let folder = format!("{root}/shared/examples/receivers");
    fs::write(format!("{folder}/invoke_types.ts"), typescript(&schema))?;
    fs::write(format!("{folder}/invoke_types.py"), python(&schema))?;
    Ok(())
}
