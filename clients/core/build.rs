//! Writes the table of time zones that `zones.rs` reads: the zones of the IANA database as the library has them, from
//! 2025 to 2050. It has 22 KB, and the database 230 KB, besides the code that reads it.
//!
//! Each line has zones with the same offsets: their names, a tab, and then in turn an offset in quarters of an hour
//! and the half hours until the next one.

use std::{collections::BTreeMap, env, error::Error, fmt::Write, fs, path::Path};

use jiff::{
    Timestamp,
    tz::{self, TimeZone},
};

const QUARTER: i32 = 15 * 60;
const HALF_HOUR: i64 = 30 * 60;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let from: Timestamp = "2025-01-01T00:00:00Z".parse()?;
    let until: Timestamp = "2051-01-01T00:00:00Z".parse()?;
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in tz::db().available() {
        let zone = tz::db().get(name.as_str())?;
        lines.entry(offsets(&zone, from, until)?).or_default().push(name.to_string());
    }
    let mut table = String::new();
    for (offsets, names) in lines {
        writeln!(table, "{}\t{offsets}", names.join(" "))?;
    }
    fs::write(Path::new(&env::var("OUT_DIR")?).join("zones.txt"), table)?;
    Ok(())
}

fn offsets(zone: &TimeZone, from: Timestamp, until: Timestamp) -> Result<String, Box<dyn Error>> {
    let mut offset = zone.to_offset(from).seconds();
    let mut text = quarters(offset)?;
    let mut last = from;
    for change in zone.following(from).take_while(|change| change.timestamp() < until) {
        if change.offset().seconds() == offset {
            continue;
        }
        offset = change.offset().seconds();
        let passed = change.timestamp().as_second() - last.as_second();
        if passed % HALF_HOUR != 0 {
            return Err(format!("{zone:?} changes at {}, which is no half hour", change.timestamp()).into());
        }
        write!(text, " {} {}", passed / HALF_HOUR, quarters(offset)?)?;
        last = change.timestamp();
    }
    Ok(text)
}

fn quarters(offset: i32) -> Result<String, Box<dyn Error>> {
    if offset % QUARTER != 0 {
        return Err(format!("the offset of {offset} s is no multiple of a quarter of an hour").into());
    }
    Ok((offset / QUARTER).to_string())
}
