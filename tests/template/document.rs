//! A CloudFormation template, and the stack that a deploy with certain parameters makes of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use yaml_rust2::{
    parser::{Event, EventReceiver, Parser, Tag},
    scanner::TScalarStyle,
    yaml::Yaml,
};

/// A template as JSON, with short tags written out: `!Ref X` is `{"Ref": "X"}`.
#[derive(Debug, Clone)]
pub struct SamTemplate(pub Value);

/// A deployed template. Every intrinsic function is evaluated, and every value is a text. A resource's `Ref`
/// is its name, and its attribute is `Name.Attribute`.
#[derive(Debug)]
pub struct DeployedTemplate {
    resources: Value,
    pub outputs: BTreeMap<String, String>,
    /// Every parameter's value.
    pub parameters: BTreeMap<String, String>,
    /// Expressions that cannot be evaluated, such as a reference to an absent resource.
    pub broken: Vec<String>,
}

const NO_VALUE: &str = "AWS::NoValue";

impl SamTemplate {
    /// Reads a template of the repository.
    pub fn read(path: &str) -> Self {
        let mut reader = TemplateReader::default();
        Parser::new_from_str(&crate::file(path)).load(&mut reader, false).expect("it is YAML");
        Self(reader.done.expect("it has a document"))
    }

    /// Returns the parameters with their defaults.
    pub fn defaults(&self) -> BTreeMap<String, String> {
        let parameters = self.0["Parameters"].as_object().expect("a mapping").iter();
        parameters.map(|(name, parameter)| (name.clone(), text(&parameter["Default"]))).collect()
    }

    /// Deploys with these parameters; the others have their defaults.
    pub fn deployed(&self, given: &[(&str, &str)]) -> DeployedTemplate {
        self.deployed_beside(given, &BTreeMap::new())
    }

    /// Deploys next to a core stack that has these outputs.
    pub fn deployed_beside(&self, given: &[(&str, &str)], core: &BTreeMap<String, String>) -> DeployedTemplate {
        let mut parameters = self.defaults();
        for (name, value) in given {
            let default = parameters.insert((*name).to_owned(), (*value).to_owned());
            assert!(default.is_some(), "{name} is no parameter");
        }
        let mut evaluation =
            Evaluation { template: &self.0, core, parameters, broken: Vec::new(), used: BTreeSet::new() };
        let resources = evaluation.resources();
        let outputs = evaluation.outputs();
        DeployedTemplate { resources, outputs, parameters: evaluation.parameters, broken: evaluation.broken }
    }
}

impl DeployedTemplate {
    /// Returns the value at a path such as `Worker Properties`, or null.
    pub fn at(&self, path: &str) -> &Value {
        path.split(' ').fold(&self.resources, |value, name| match value {
            Value::Array(all) => name.parse().ok().and_then(|index: usize| all.get(index)).unwrap_or(&Value::Null),
            _ => &value[name],
        })
    }

    /// Returns the text at a path.
    pub fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_else(|| panic!("{path} is {}", self.at(path)))
    }

    /// Returns the names and properties of all resources of a type.
    pub fn of_type(&self, kind: &str) -> BTreeMap<&str, &Value> {
        let all = self.all().filter(|(_, resource)| resource["Type"].as_str() == Some(kind));
        all.map(|(name, resource)| (name, &resource["Properties"])).collect()
    }

    /// Returns all resources with their names.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.resources.as_object().into_iter().flatten().map(|(name, resource)| (name.as_str(), resource))
    }

    /// Returns a function's environment variables.
    pub fn variables(&self, function: &str) -> Vec<(String, String)> {
        let held = self.at(&format!("{function} Properties Environment Variables")).as_object();
        held.into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect()
    }
}

/// Returns a number, a boolean or a text as a text.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the texts of a list, or the value's only text.
pub fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(all) => all.iter().map(text).collect(),
        one => vec![text(one)],
    }
}

struct Evaluation<'a> {
    template: &'a Value,
    core: &'a BTreeMap<String, String>,
    parameters: BTreeMap<String, String>,
    broken: Vec<String>,
    /// The resources to which the evaluated resource refers.
    used: BTreeSet<String>,
}

impl Evaluation<'_> {
    fn resources(&mut self) -> Value {
        let template = self.template;
        let mut made = Map::new();
        let mut edges = BTreeMap::new();
        for (name, resource) in template["Resources"].as_object().into_iter().flatten() {
            if !self.exists(name) {
                continue;
            }
            self.used.clear();
            let mut resource = self.evaluated(resource).unwrap_or_default();
            if resource["Type"] == "AWS::Serverless::Function" {
                let globals = self.evaluated(&template["Globals"]["Function"]).unwrap_or_default();
                merge(&mut resource["Properties"], globals);
            }
            self.used.extend(texts(&resource["DependsOn"]));
            edges.insert(name.clone(), std::mem::take(&mut self.used));
            made.insert(name.clone(), resource);
        }
        edges.values_mut().for_each(|used| used.retain(|name| made.contains_key(name)));
        while let Some(free) = edges.iter().find(|(_, used)| used.is_empty()).map(|(name, _)| name.clone()) {
            edges.remove(&free);
            for used in edges.values_mut() {
                used.remove(&free);
            }
        }
        if !edges.is_empty() {
            self.broken.push(format!("resources refer to each other in a circle: {edges:?}"));
        }
        Value::Object(made)
    }

    fn outputs(&mut self) -> BTreeMap<String, String> {
        let template = self.template;
        let mut outputs = BTreeMap::new();
        for (name, output) in template["Outputs"].as_object().into_iter().flatten() {
            if let Some(value) = self.evaluated(&output["Value"]) {
                outputs.insert(name.clone(), text(&value));
            }
        }
        outputs
    }

    fn exists(&mut self, name: &str) -> bool {
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
            given => self.truth(given),
        }
    }

    fn truth(&mut self, given: &Value) -> bool {
        if let Some(name) = given["Condition"].as_str() {
            return self.holds(name);
        }
        match function(given) {
            Some(("Fn::Equals", sides)) => self.evaluated(&sides[0]) == self.evaluated(&sides[1]),
            Some(("Fn::Not", one)) => !self.truth(&one[0]),
            Some(("Fn::Or", all)) => all.as_array().into_iter().flatten().any(|one| self.truth(one)),
            _ => {
                self.broken.push(format!("{given} is no condition"));
                false
            }
        }
    }

    /// Returns the value of a name that appears in `Ref` or `${}`.
    fn named(&mut self, name: &str) -> Option<String> {
        if name == NO_VALUE {
            return None;
        }
        if name.starts_with("AWS::") {
            return Some(format!("${{{name}}}"));
        }
        if let Some(value) = self.parameters.get(name) {
            return Some(value.clone());
        }
        let resource = name.split('.').next().expect("split yields at least one");
        if !self.exists(resource) {
            self.broken.push(format!("{name} is referred to and does not exist"));
        }
        self.used.insert(resource.to_owned());
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
                (None, given) => self.evaluated_text(given),
            };
        }
        made + rest
    }

    fn evaluated_text(&mut self, given: &Value) -> String {
        self.evaluated(given).as_ref().map(text).unwrap_or_default()
    }

    /// Evaluates a value; returns `None` for `AWS::NoValue`.
    fn evaluated(&mut self, given: &Value) -> Option<Value> {
        let of_text = |text: String| Some(Value::String(text));
        match function(given) {
            Some(("Ref" | "Fn::GetAtt", name)) => self.named(&text(name)).map(Value::String),
            Some(("Fn::Sub", Value::Array(both))) => of_text(self.substituted(&text(&both[0]), &both[1])),
            Some(("Fn::Sub", pattern)) => of_text(self.substituted(&text(pattern), &Value::Null)),
            Some(("Fn::If", parts)) => {
                let chosen = if self.holds(&text(&parts[0])) { 1 } else { 2 };
                self.evaluated(&parts[chosen])
            }
            Some(("Fn::Split", parts)) => {
                let whole = self.evaluated_text(&parts[1]);
                Some(whole.split(&text(&parts[0])).map(Value::from).collect())
            }
            Some(("Fn::Join", parts)) => {
                let list = self.evaluated(&parts[1]).unwrap_or_default();
                let list: Vec<_> = list.as_array().into_iter().flatten().map(text).collect();
                of_text(list.join(&text(&parts[0])))
            }
            Some(("Fn::Select", parts)) => {
                let list = self.evaluated(&parts[1]).unwrap_or_default();
                Some(list[usize::try_from(parts[0].as_u64()?).ok()?].clone())
            }
            Some(("Fn::FindInMap", parts)) => {
                let [map, key, column] = [0, 1, 2].map(|part| self.evaluated_text(&parts[part]));
                let found = &self.template["Mappings"][&map][&key][&column];
                if found.is_null() {
                    self.broken.push(format!("{map} has no {column} for {key}"));
                }
                of_text(text(found))
            }
            Some(("Fn::GetStackOutput", of)) => {
                let output = text(&of["OutputName"]);
                let value = self.core.get(&output).cloned();
                if value.is_none() || self.evaluated_text(&of["StackName"]) != self.parameters["Core"] {
                    self.broken.push(format!("the core has no output {output}"));
                }
                value.map(Value::String)
            }
            Some((other, _)) => {
                self.broken.push(format!("{other} is not evaluated here"));
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

/// Returns the name and the argument of an intrinsic function; `None` if the value is none.
fn function(given: &Value) -> Option<(&str, &Value)> {
    let held = given.as_object().filter(|held| held.len() == 1)?;
    let (name, given) = held.iter().next()?;
    (name == "Ref" || name.starts_with("Fn::")).then_some((name, given))
}

/// Adds those properties of `Globals` that a function does not set itself.
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

/// Builds JSON from the parser's events.
#[derive(Default)]
struct TemplateReader {
    open: Vec<(Value, Option<String>, Option<Tag>)>,
    done: Option<Value>,
}

impl TemplateReader {
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

impl EventReceiver for TemplateReader {
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
