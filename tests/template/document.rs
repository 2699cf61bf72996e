//! `template.yaml`, read, and what CloudFormation makes of it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use yaml_rust2::{
    parser::{Event, EventReceiver, Parser, Tag},
    scanner::TScalarStyle,
    yaml::Yaml,
};

/// The template as JSON, its short tags written out: `!Ref X` is
/// `{"Ref": "X"}`, `!GetAtt X.Arn` is `{"Fn::GetAtt": "X.Arn"}`.
#[derive(Debug, Clone)]
pub struct Template(pub Value);

/// What a deploy with certain parameters makes: every function of
/// CloudFormation's evaluated, every value a text. A resource stands for itself
/// by its name, an attribute of it by `Name.Attribute`.
#[derive(Debug)]
pub struct Deployed {
    resources: Value,
    /// Every parameter's value.
    pub parameters: BTreeMap<String, String>,
    /// What could not be evaluated, such as a reference to what is not there.
    pub broken: Vec<String>,
}

/// What is left out where it stands.
const NO_VALUE: &str = "AWS::NoValue";

impl Template {
    /// The project's own.
    pub fn read() -> Self {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../template.yaml"));
        let text = text.expect("there is a template");
        let mut reader = Reader::default();
        Parser::new_from_str(&text).load(&mut reader, false).expect("it is YAML");
        Self(reader.done.expect("it has a document"))
    }

    /// The names of its parameters, with their defaults.
    pub fn defaults(&self) -> BTreeMap<String, String> {
        let parameters = self.0["Parameters"].as_object().expect("a mapping").iter();
        parameters.map(|(name, parameter)| (name.clone(), text(&parameter["Default"]))).collect()
    }

    /// What the parameter allows.
    pub fn choices(&self, parameter: &str) -> Vec<String> {
        self.0["Parameters"][parameter]["AllowedValues"].as_array().expect("a list").iter().map(text).collect()
    }

    /// What is deployed with these parameters, the others at their defaults.
    pub fn deployed(&self, given: &[(&str, &str)]) -> Deployed {
        let mut parameters = self.defaults();
        for (name, value) in given {
            let held = parameters.insert((*name).to_owned(), (*value).to_owned());
            assert!(held.is_some(), "{name} is no parameter");
        }
        let mut evaluation = Evaluation { template: &self.0, parameters, broken: Vec::new() };
        let resources = evaluation.resources();
        Deployed { resources, parameters: evaluation.parameters, broken: evaluation.broken }
    }
}

impl Deployed {
    /// What stands at a path, such as `Worker Properties`; null: nothing.
    pub fn at(&self, path: &str) -> &Value {
        path.split(' ').fold(&self.resources, |place, name| match place {
            Value::Array(all) => name.parse().ok().and_then(|index: usize| all.get(index)).unwrap_or(&Value::Null),
            _ => &place[name],
        })
    }

    /// The text that stands at a path.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.at(path).as_str()
    }

    /// The resources of a type, by name.
    pub fn of_type(&self, kind: &str) -> BTreeMap<&str, &Value> {
        let all = self.resources.as_object().into_iter().flatten();
        let wanted = all.filter(|(_, resource)| resource["Type"].as_str() == Some(kind));
        wanted.map(|(name, resource)| (name.as_str(), &resource["Properties"])).collect()
    }
}

/// A number, a truth or a text, as a text.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

struct Evaluation<'a> {
    template: &'a Value,
    parameters: BTreeMap<String, String>,
    broken: Vec<String>,
}

impl Evaluation<'_> {
    fn resources(&mut self) -> Value {
        let template = self.template;
        let mut made = Map::new();
        for (name, resource) in template["Resources"].as_object().into_iter().flatten() {
            if !self.is_there(name) {
                continue;
            }
            let mut resource = self.evaluated(resource).unwrap_or_default();
            if resource["Type"] == "AWS::Serverless::Function" {
                let globals = self.evaluated(&template["Globals"]["Function"]).unwrap_or_default();
                merge(&mut resource["Properties"], globals);
            }
            made.insert(name.clone(), resource);
        }
        Value::Object(made)
    }

    /// Whether a resource is made.
    fn is_there(&mut self, name: &str) -> bool {
        match &self.template["Resources"][name] {
            Value::Null => false,
            resource => resource["Condition"].as_str().is_none_or(|condition| self.holds(condition)),
        }
    }

    fn holds(&mut self, condition: &str) -> bool {
        match &self.template["Conditions"][condition] {
            Value::Null => {
                self.broken.push(format!("{condition} is no condition"));
                false
            }
            given => self.truth(&given.clone()),
        }
    }

    fn truth(&mut self, given: &Value) -> bool {
        match function(given) {
            Some(("Fn::Equals", sides)) => self.evaluated(&sides[0]) == self.evaluated(&sides[1]),
            Some(("Fn::Not", one)) => !self.truth(&one[0]),
            Some(("Fn::And", all)) => sides(all).all(|one| self.truth(one)),
            Some(("Fn::Or", any)) => sides(any).any(|one| self.truth(one)),
            Some(("Condition", name)) => self.holds(&text(name)),
            _ => {
                self.broken.push(format!("{given} is no condition"));
                false
            }
        }
    }

    /// What a name stands for, in `Ref` or in a text's `${}`.
    fn named(&mut self, name: &str) -> Option<String> {
        let resource = name.split('.').next().expect("split yields one at least");
        if name == NO_VALUE {
            return None;
        }
        if name.starts_with("AWS::") {
            return Some(format!("${{{name}}}"));
        }
        if let Some(value) = self.parameters.get(name) {
            return Some(value.clone());
        }
        if !self.is_there(resource) {
            self.broken.push(format!("{name} is referred to and not there"));
        }
        Some(name.to_owned())
    }

    fn substituted(&mut self, pattern: &str, own: &Value) -> String {
        let mut made = String::new();
        let mut rest = pattern;
        while let Some((before, behind)) = rest.split_once("${") {
            let Some((name, behind)) = behind.split_once('}') else { break };
            made += before;
            rest = behind;
            made += &match (name.strip_prefix('!'), &own[name]) {
                (Some(literal), _) => format!("${{{literal}}}"),
                (None, Value::Null) => self.named(name).unwrap_or_default(),
                (None, given) => self.evaluated(&given.clone()).as_ref().map(text).unwrap_or_default(),
            };
        }
        made + rest
    }

    /// `None`: nothing stands there.
    fn evaluated(&mut self, given: &Value) -> Option<Value> {
        let of_text = |text: String| Some(Value::String(text));
        match function(given) {
            Some(("Ref", name)) => self.named(&text(name)).map(Value::String),
            Some(("Fn::GetAtt", name)) => self.named(&text(name)).map(Value::String),
            Some(("Fn::Sub", Value::Array(both))) => of_text(self.substituted(&text(&both[0]), &both[1])),
            Some(("Fn::Sub", pattern)) => of_text(self.substituted(&text(pattern), &Value::Null)),
            Some(("Fn::If", parts)) => {
                let chosen = if self.holds(&text(&parts[0])) { 1 } else { 2 };
                self.evaluated(&parts[chosen])
            }
            Some(("Fn::Split", parts)) => {
                let whole = self.evaluated(&parts[1]).as_ref().map(text).unwrap_or_default();
                Some(whole.split(&text(&parts[0])).map(Value::from).collect())
            }
            Some(("Fn::FindInMap", parts)) => {
                let [map, key, column] = [0, 1, 2].map(|part| self.evaluated(&parts[part]).as_ref().map(text));
                let [map, key, column] = [map, key, column].map(Option::unwrap_or_default);
                let found = self.template["Mappings"][&map][&key][&column].clone();
                if found.is_null() {
                    self.broken.push(format!("{map} has no {column} for {key}"));
                }
                of_text(text(&found))
            }
            Some((other, _)) => {
                self.broken.push(format!("{other} is not known here"));
                None
            }
            None => match given {
                Value::Array(all) => Some(all.iter().filter_map(|one| self.evaluated(one)).collect()),
                Value::Object(all) => {
                    let held = all.iter().filter_map(|(name, one)| Some((name.clone(), self.evaluated(one)?)));
                    Some(Value::Object(held.collect()))
                }
                scalar => of_text(text(scalar)),
            },
        }
    }
}

fn sides(all: &Value) -> impl Iterator<Item = &Value> {
    all.as_array().into_iter().flatten()
}

/// A function of CloudFormation's, with what it is given.
pub fn function(given: &Value) -> Option<(&str, &Value)> {
    let held = given.as_object().filter(|held| held.len() == 1)?;
    let (name, given) = held.iter().next()?;
    let is_function = name == "Ref" || name == "Condition" || name.starts_with("Fn::");
    // A statement's or a resource's condition is a property of it.
    (is_function && (name != "Condition" || given.is_string())).then_some((name, given))
}

/// What a function's own properties do not say, the common ones do.
fn merge(own: &mut Value, common: Value) {
    match (own, common) {
        (Value::Object(own), Value::Object(common)) => {
            for (name, value) in common {
                match own.get_mut(&name) {
                    Some(held) => merge(held, value),
                    None => drop(own.insert(name, value)),
                }
            }
        }
        (own @ Value::Null, common) => *own = common,
        _ => {}
    }
}

/// Makes JSON of what the parser reads.
#[derive(Default)]
struct Reader {
    open: Vec<(Value, Option<String>, Option<Tag>)>,
    done: Option<Value>,
}

impl Reader {
    fn close(&mut self, value: Value, tag: Option<Tag>) {
        let value = match tag.map(|tag| tag.suffix) {
            None => value,
            Some(name) if name == "Ref" || name == "Condition" => json!({ name: value }),
            Some(name) => json!({ format!("Fn::{name}"): value }),
        };
        match self.open.last_mut() {
            None => self.done = Some(value),
            Some((Value::Array(all), ..)) => all.push(value),
            Some((Value::Object(all), key, _)) => match key.take() {
                None => *key = Some(text(&value)),
                Some(name) => assert!(all.insert(name.clone(), value).is_none(), "{name} stands twice"),
            },
            Some(_) => unreachable!("only these two are opened"),
        }
    }
}

impl EventReceiver for Reader {
    fn on_event(&mut self, event: Event) {
        match event {
            Event::SequenceStart(_, tag) => self.open.push((json!([]), None, tag)),
            Event::MappingStart(_, tag) => self.open.push((json!({}), None, tag)),
            Event::SequenceEnd | Event::MappingEnd => {
                let (value, _, tag) = self.open.pop().expect("it was opened");
                self.close(value, tag);
            }
            Event::Scalar(text, style, _, tag) => {
                let value = match Yaml::from_str(&text) {
                    _ if style != TScalarStyle::Plain || tag.is_some() => text.into(),
                    Yaml::Integer(number) => number.into(),
                    Yaml::Boolean(truth) => truth.into(),
                    _ => text.into(),
                };
                self.close(value, tag);
            }
            _ => {}
        }
    }
}
