//! The template with one property taken out, or changed into what it might have
//! been written as instead.

use serde_json::{Value, json};

use crate::document::{Template, function, text};

/// Properties that no guarantee rests on, and why. A star stands for one name,
/// two for all that is below; some are of every resource but those of a type.
pub const RESTS_ON_NOTHING: &[(&str, &str)] = &[
    ("Resources * Metadata, but of AWS::Serverless::Function", "beside a function's, only checkov's"),
    ("Resources * Metadata checkov **", "a judgement, for the judge, which `.ci/deployable` asks"),
    ("Resources * Properties Policies * PolicyName", "a name, for people"),
    ("Resources * Properties Policies * PolicyDocument Statement * Sid", "a name, for people"),
    ("Resources * Properties Policies * PolicyDocument Statement * Fn::If * Sid", "a name, for people"),
    ("Resources ThrottlesAlarm Properties Metrics * Label", "a caption, for people"),
    ("Resources NotFedAlarm Properties Metrics * Label", "a caption, for people"),
    ("Resources RefusedAlarm Properties Metrics * Label", "a caption, for people"),
    ("Resources UnavailableAlarm Properties Metrics * Label", "a caption, for people"),
    ("Resources * DeletionPolicy, but of AWS::DynamoDB::Table", "wake-ups come again, and logs are only read"),
    ("Resources * UpdateReplacePolicy, but of AWS::DynamoDB::Table", "the same"),
];

/// One thing is not as it was.
pub struct Mutation {
    pub template: Template,
    /// Which, for people.
    pub what: String,
    path: Vec<String>,
    kind: String,
}

impl Mutation {
    /// Whether it is where a pattern says.
    pub fn is_at(&self, pattern: &str) -> bool {
        if let Some((pattern, kind)) = pattern.split_once(", but of ") {
            return self.kind != kind && self.is_at(pattern);
        }
        let names: Vec<_> = pattern.split(' ').collect();
        let (names, is_open) = match names.split_last() {
            Some((&"**", names)) => (names, true),
            _ => (&names[..], false),
        };
        let fits = names.iter().zip(&self.path).all(|(name, found)| *name == "*" || name == found);
        fits && (names.len() == self.path.len() || is_open && names.len() <= self.path.len())
    }
}

/// All of them: below these, each mapping's and each list's part is taken out,
/// and each value is changed. Parameters are held against values of their own
/// by `.ci/parameters`.
pub fn mutations(template: &Template) -> Vec<Mutation> {
    let mut found = Vec::new();
    for part in ["Resources", "Globals", "Mappings", "Conditions"] {
        below(template, vec![part.to_owned()], &mut found);
    }
    found
}

fn at<'a>(whole: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(whole, |place, name| match place {
        Value::Array(all) => &all[name.parse::<usize>().expect("a place in a list")],
        _ => &place[name],
    })
}

fn at_mut<'a>(whole: &'a mut Value, path: &[String]) -> &'a mut Value {
    path.iter().fold(whole, |place, name| match place {
        Value::Array(all) => &mut all[name.parse::<usize>().expect("a place in a list")],
        _ => &mut place[name],
    })
}

fn below(template: &Template, path: Vec<String>, found: &mut Vec<Mutation>) {
    let here = at(&template.0, &path);
    let mut changed = |what: String, change: &dyn Fn(&mut Value)| {
        let mut changed = template.clone();
        change(&mut changed.0);
        let kind = path.get(1).map(|resource| text(&template.0["Resources"][resource]["Type"]));
        found.push(Mutation { template: changed, what, path: path.clone(), kind: kind.unwrap_or_default() });
    };
    let shown = path.join(" ");
    if path.len() > 1 {
        let (last, above) = path.split_last().expect("longer than one");
        changed(format!("{shown} is taken out"), &|whole| match at_mut(whole, above) {
            Value::Array(all) => drop(all.remove(last.parse().expect("a place in a list"))),
            Value::Object(all) => drop(all.remove(last)),
            other => unreachable!("{other} has parts"),
        });
        for other in alternatives(template, here) {
            changed(format!("{shown} is {other}, not {here}"), &|whole| *at_mut(whole, &path) = other.clone());
        }
    }
    let parts: Vec<String> = match (function(here), here) {
        // Both of its outcomes; what else a function is given is changed with it.
        (Some(("Fn::If", _)), _) => {
            for outcome in ["1", "2"] {
                let inner = [&path[..], &["Fn::If".to_owned(), outcome.to_owned()]].concat();
                if !matches!(function(at(&template.0, &inner)), Some(("Ref", name)) if name == "AWS::NoValue") {
                    below(template, inner, found);
                }
            }
            return;
        }
        (Some(_), _) => return,
        (None, Value::Array(all)) => (0..all.len()).map(|place| place.to_string()).collect(),
        (None, Value::Object(all)) => all.keys().cloned().collect(),
        (None, _) => return,
    };
    for part in parts {
        below(template, [&path[..], &[part]].concat(), found);
    }
}

/// Words of which one may stand where another should.
const WORDS: &[&[&str]] = &[
    &["Retain", "Delete", "Snapshot"],
    &["GreaterThanOrEqualToThreshold", "GreaterThanThreshold", "LessThanThreshold", "LessThanOrEqualToThreshold"],
    &["Sum", "Maximum", "Minimum", "Average", "SampleCount"],
    &["breaching", "notBreaching", "missing", "ignore"],
    &["Allow", "Deny"],
    &["PAY_PER_REQUEST", "PROVISIONED"],
    &["HASH", "RANGE"],
    &["NONE", "AWS_IAM"],
    &["arm64", "x86_64"],
    &["JSON", "Text"],
    &["PassThrough", "Active"],
    &["WARN", "INFO", "DEBUG"],
    &["cron(* * * * ? *)", "cron(0 * * * ? *)", "rate(5 minutes)"],
];

/// What might have been written instead.
fn alternatives(template: &Template, here: &Value) -> Vec<Value> {
    let resources = &template.0["Resources"];
    match function(here) {
        Some(("Ref", name)) => {
            let name = text(name);
            match template.defaults().get(&name) {
                // As if there was no such parameter.
                Some(default) => vec![json!(default)],
                None => others(resources, &name).map(|other| json!({ "Ref": other })).collect(),
            }
        }
        Some(("Fn::GetAtt", name)) => {
            let name = text(name);
            let (resource, attribute) = name.split_once('.').expect("a resource and its attribute");
            others(resources, resource).map(|other| json!({ "Fn::GetAtt": format!("{other}.{attribute}") })).collect()
        }
        Some(("Fn::Sub", Value::Array(both))) => {
            vec![json!({ "Fn::Sub": [format!("{}-other", text(&both[0])), both[1]] })]
        }
        Some(("Fn::Sub", Value::String(pattern))) => vec![json!({ "Fn::Sub": format!("{pattern}-other") })],
        Some(("Fn::If", parts)) => vec![parts[1].clone(), parts[2].clone()],
        Some(("Fn::FindInMap", parts)) => {
            let first = template.0["Mappings"][text(&parts[0])].as_object().and_then(|map| map.values().next());
            first.map(|row| row[text(&parts[2])].clone()).into_iter().collect()
        }
        Some(("Fn::Equals", sides)) => {
            vec![json!({ "Fn::Equals": [sides[0], "other"] }), json!({ "Fn::Equals": ["x", "x"] })]
        }
        Some(("Fn::Not", one)) => vec![one[0].clone()],
        Some(("Fn::And" | "Fn::Or", sides)) => sides.as_array().expect("a list").clone(),
        Some(_) => Vec::new(),
        None => match here {
            Value::Bool(truth) => vec![json!(!truth)],
            Value::Number(number) => {
                let number = number.as_i64().expect("a whole number");
                vec![json!(number + 1), json!(number * 10), json!(0)]
                    .into_iter()
                    .filter(|other| other != here)
                    .collect()
            }
            Value::String(text) => {
                let words = WORDS.iter().find(|words| words.contains(&text.as_str())).copied().unwrap_or_default();
                let words = words.iter().filter(|word| *word != text).map(|word| json!(word));
                words.chain([json!(format!("{text}-other"))]).collect()
            }
            _ => Vec::new(),
        },
    }
}

/// Another resource of the kind, or any other where there is none.
fn others(resources: &Value, name: &str) -> impl Iterator<Item = String> {
    let kind = &resources[name]["Type"];
    let mut all: Vec<_> = resources.as_object().into_iter().flatten().filter(|(other, _)| *other != name).collect();
    all.sort_by_key(|(_, other)| other["Type"] != *kind);
    all.into_iter().take(1).map(|(other, _)| other.clone()).collect::<Vec<_>>().into_iter()
}
