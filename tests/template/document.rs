//! `template.yaml`, read. The parser leaves CloudFormation's tags out, so that
//! `!Ref X` is `X` and `!FindInMap [M, !Ref X, C]` the list of the three.

use std::collections::BTreeSet;

use yaml_rust2::{Yaml, YamlLoader};

/// The template.
pub struct Template(Yaml);

impl Template {
    /// The project's own.
    pub fn read() -> Self {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../template.yaml"));
        let mut documents = YamlLoader::load_from_str(&text.expect("there is a template")).expect("it is YAML");
        Self(documents.remove(0))
    }

    /// What stands at a path, such as `Resources Worker Properties`.
    pub fn at(&self, path: &str) -> &Yaml {
        path.split(' ').fold(&self.0, |place, name| {
            let next = &place[name];
            assert!(!next.is_badvalue(), "{name} of {path} is not there");
            next
        })
    }

    /// What a value comes to, with `parameter` set to `value` and the others
    /// at their defaults.
    pub fn resolved(&self, given: &Yaml, parameter: &str, value: &str) -> String {
        match given {
            Yaml::Integer(number) => number.to_string(),
            Yaml::String(name) if name == parameter => value.to_owned(),
            Yaml::String(name) => match &self.0["Parameters"][name.as_str()]["Default"] {
                Yaml::BadValue => name.clone(),
                default => self.resolved(default, parameter, value),
            },
            Yaml::Array(find) => {
                let [map, key, column] =
                    [0, 1, 2].map(|place| find[place].as_str().expect("FindInMap takes three names"));
                let key = self.resolved(&Yaml::String(key.to_owned()), parameter, value);
                let found = &self.0["Mappings"][map][key.as_str()][column];
                assert!(!found.is_badvalue(), "{map} has no {column} for {key}");
                self.resolved(found, parameter, value)
            }
            other => panic!("{other:?} is no value"),
        }
    }

    /// The names under a path.
    pub fn names(&self, path: &str) -> BTreeSet<String> {
        let held = self.at(path).as_hash().expect("a mapping");
        held.keys().map(|name| name.as_str().expect("names are texts").to_owned()).collect()
    }

    /// The texts of a list.
    pub fn list(&self, path: &str) -> BTreeSet<String> {
        texts(self.at(path)).collect()
    }

    /// The resources of a type, by name.
    pub fn resources(&self, kind: &str) -> Vec<(String, &Yaml)> {
        let resources = self.at("Resources").as_hash().expect("a mapping").iter();
        let wanted = resources.filter(|(_, resource)| resource["Type"].as_str() == Some(kind));
        wanted.map(|(name, resource)| (name.as_str().expect("a name").to_owned(), resource)).collect()
    }
}

/// One text, or the texts of a list.
pub fn texts(value: &Yaml) -> impl Iterator<Item = String> {
    let all = match value {
        Yaml::Array(all) => all.clone(),
        one => vec![one.clone()],
    };
    all.into_iter().map(|one| one.as_str().expect("a text").to_owned())
}
