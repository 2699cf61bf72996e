//! Parses the tables of the sources document: TOML tables and JSON objects.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::protocol::entity::SourceName;

/// A table whose fields are read by name. Code derived by serde would also accept a list, and read the
/// fields by position.
#[derive(Default)]
pub(super) struct Table<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ByName<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ByName<T> {
            type Value = Table<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Table)
            }
        }

        deserializer.deserialize_map(ByName(PhantomData))
    }
}

/// The tables of all sources, by their names. A map of serde's would keep the last of two tables with one name.
pub(super) struct ByName<T>(pub(super) BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByName<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Names<T> {
            type Value = ByName<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut tables = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if tables.contains_key(&name) {
                        let name = SourceName::parse(&name).map_or("…".to_owned(), String::from);
                        return Err(A::Error::custom(format_args!("source `{name}` is in it twice")));
                    }
                    tables.insert(name, map.next_value()?);
                }
                Ok(ByName(tables))
            }
        }

        deserializer.deserialize_map(Names(PhantomData))
    }
}
