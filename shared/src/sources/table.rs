//! Parses the tables of the sources document: TOML tables and JSON objects.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{protocol::entity::SourceName, providers::Secret};

/// A table whose fields are read by name. Code derived by serde would also accept a list, and read the
/// fields by position.
#[derive(Default)]
pub(super) struct StrictTable<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for StrictTable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
            type Value = StrictTable<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(Entries(map))).map(StrictTable)
            }
        }

        deserializer.deserialize_map(TableVisitor(PhantomData))
    }
}

/// The entries of a table, whose values are read by one function for each type. One for each field would make a Lambda
/// function 14 KB larger.
struct Entries<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    #[inline(never)]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

/// The tables of all sources, by their names. A map of serde's would keep the last of two tables with one name.
pub(super) struct ByName<T>(pub(super) BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByName<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TablesVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for TablesVisitor<T> {
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

        deserializer.deserialize_map(TablesVisitor(PhantomData))
    }
}

/// Declares the value of a field that is one text or a list of texts. The second argument is the error about any other
/// value.
macro_rules! one_or_more {
    ($(#[$attribute:meta])* $vis:vis $name:ident($value:ty), $expected:literal) => {
        $(#[$attribute])*
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = $expected)]
        $vis enum $name {
            One($value),
            Several(Vec<$value>),
        }

        impl Default for $name {
            fn default() -> Self {
                Self::Several(Vec::new())
            }
        }

        impl $name {
            #[allow(dead_code, reason = "not every field asks")]
            pub(crate) fn is_empty(&self) -> bool {
                matches!(self, Self::Several(values) if values.is_empty())
            }
        }

        impl From<$name> for Vec<$value> {
            fn from(values: $name) -> Self {
                match values {
                    $name::One(value) => vec![value],
                    $name::Several(values) => values,
                }
            }
        }
    };
}

one_or_more!(
    pub(crate) Secrets(Secret),
    "a secret is a text; several secrets, during a rotation, are a list of texts"
);

pub(super) use one_or_more;
