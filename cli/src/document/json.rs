//! A JSON object that keeps its order, and of which only what is changed is
//! written anew.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::{RawValue, to_raw_value};

/// Its members, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Object(Vec<(String, Box<RawValue>)>);

impl Object {
    /// The value of a member.
    pub(super) fn get<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        let (_, raw) = self.0.iter().find(|(held, _)| held == name)?;
        serde_json::from_str(raw.get()).ok()
    }

    /// Sets it, in its place or behind the others.
    pub(super) fn set(&mut self, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
        let raw = to_raw_value(value)?;
        match self.0.iter_mut().find(|(held, _)| held == name) {
            Some((_, held)) => *held = raw,
            None => self.0.push((name.to_owned(), raw)),
        }
        Ok(())
    }

    /// Takes it out.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(held, _)| held != name);
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(held, _)| held == name)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
